"""Figures of the flows: samples, rollouts, spectra; and training curves."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from biasbound.data.trajectories import Trajectories
from biasbound.metrics.arrays import at_points
from biasbound.report.parts import Model
from biasbound.report.pictures import evenly, image, name_hidden
from biasbound.report.planes import planes, quantities
from biasbound.report.study import Study
from biasbound.report.style import WIDTH, Absent, curve, finish, grid_of, name_ends

COLUMNS = 4  # frames of a flow in two dimensions
METHODS = 5  # rollouts beside each other at most
SAMPLES = 3
TRUTH: dict[str, Any] = {"color": "0.6", "linewidth": 4.5, "linestyle": "-", "marker": ""}
Picture = tuple[str, np.ndarray, np.ndarray]  # title, values, what sets the colours
ROUND_OFF = 1e-12  # of the largest energy: what lies below is the arithmetic's


def _familiar(test: Trajectories, fields: Float[np.ndarray, "K C *N"]) -> tuple[str, Float[np.ndarray, "K ..."]]:
    """(name, values) of the most familiar quantity."""
    return next(iter(quantities(test, fields).items()))


def _test(study: Study) -> Trajectories:
    if study.test is None:
        raise Absent("this run has no test data: it comes from the stage 01-data")
    return study.test


def _rolled(study: Study) -> list[Model]:
    models = [m for m in study.first_seeds() if m.rollout is not None]
    if not models:
        raise Absent("this run has no rollouts: they come from the stage 05-rollout")
    return models


def _extent(test: Trajectories, frames: int) -> tuple[float, float, float, float]:
    """Of a space–time picture, or of a frame."""
    if len(test.layout.grid) == 1:
        return (test.dt, test.dt * max(frames, 2), *test.layout.domain[0])
    return (*test.layout.domain[0], *test.layout.domain[1])


def samples(study: Study) -> Figure:
    """A few test trajectories: space–time in one dimension, frames in two, frames of a middle plane in three."""
    test = _test(study)
    count = min(SAMPLES, len(test))
    flat = len(test.layout.grid) == 1
    frames = np.arange(test.layout.frames) if flat else evenly(test.layout.frames, COLUMNS)
    taken = test.take(np.arange(count), np.broadcast_to(frames, (count, len(frames))))
    every = [_familiar(test, fields) for fields in taken]
    name, shown = every[0][0], np.stack([values for _, values in every])
    if flat:
        height, pictures = 2.7, shown[None]
        titles = [f"trajectory {i}" for i in range(count)]
    else:
        height, pictures = 0.4 + count * 0.85 * WIDTH / len(frames) * planes(test)[0].ratio, shown
        titles = [f"t = {k * test.dt:.3g}" for k in frames]
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    grid = figure.subplots(*pictures.shape[:2], squeeze=False, sharex=True, sharey=True)
    extent = _extent(test, test.layout.frames)
    for axes, picture in zip(grid.ravel(), pictures.reshape(-1, *pictures.shape[2:]), strict=True):
        drawn = image(axes, picture, shown, extent)
        if not flat:
            axes.set_aspect("equal")
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("time t" if flat else "")
    grid[0, 0].set_ylabel("position x" if flat else "")
    figure.colorbar(drawn, ax=list(grid.ravel()), label=name, pad=0.01)
    name_hidden(figure, test)
    return figure


def rollouts(study: Study, trajectory: int = 0) -> Figure:
    """The truth, each method's rollout of it, and the difference."""
    test, models = _test(study).stride(time=study.every), _rolled(study)[:METHODS]
    shapes = [m.rollout.prediction.shape for m in models if m.rollout is not None]
    frames = min(shape[2] for shape in shapes)
    truth = study.truth(1, frames, trajectory)[0]
    name, true = _familiar(test, truth)
    flat = len(test.layout.grid) == 1
    pick = np.arange(frames) if flat else evenly(frames, COLUMNS)
    lines: list[Picture] = [("truth", true[pick], true[pick])]
    for model in models:
        assert model.rollout is not None
        fields = np.asarray(model.rollout.prediction[0, trajectory, :frames])
        with np.errstate(invalid="ignore", over="ignore"):  # a rollout may have broken down
            guess = _familiar(test, fields)[1][pick]
            error = guess - true[pick]
        lines.append((model.label, guess, true[pick]))
        lines.append(("error", error, true[pick] - np.nanmean(true)))
    if flat:
        return _space_times(test, name, lines, frames)
    return _frame_rows(test, name, lines, pick)


def _space_times(test: Trajectories, name: str, lines: list[Picture], frames: int) -> Figure:
    """One row per method: its prediction left, its error right; the truth on top."""
    rows = (len(lines) + 1) // 2
    figure = Figure(figsize=(WIDTH, 0.5 + 1.45 * rows), layout="constrained")
    grid = figure.subplots(rows, 2, squeeze=False, sharex=True, sharey=True)
    extent = _extent(test, frames)
    grid[0, 1].set_axis_off()
    places = [grid[0, 0], *grid[1:].ravel()]
    for axes, (title, values, scale) in zip(places, lines, strict=True):
        drawn = image(axes, values, scale, extent)
        axes.set_title(title, fontsize=9)
        axes.tick_params(labelsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("time t")
    grid[-1, 0].set_ylabel("position x")
    figure.colorbar(drawn, ax=list(grid.ravel()), label=name, pad=0.01, aspect=40)
    name_hidden(figure, test)
    return figure


def _frame_rows(test: Trajectories, name: str, lines: list[Picture], pick: np.ndarray) -> Figure:
    """One row of frames for the truth and two for each method."""
    height = 0.8 * WIDTH / (len(pick) + 0.4) * planes(test)[0].ratio + 0.1
    figure = Figure(figsize=(WIDTH, 0.6 + height * len(lines)), layout="constrained")
    grid = figure.subplots(len(lines), len(pick), squeeze=False, sharex=True, sharey=True)
    extent = _extent(test, len(pick))
    for row, (title, values, scale) in zip(grid, lines, strict=True):
        for axes, frame in zip(row, values, strict=True):
            drawn = image(axes, frame, scale, extent)
            axes.set_aspect("equal")
            axes.tick_params(labelsize=7)
        row[0].set_ylabel(title, fontsize=9)
    for axes, k in zip(grid[0], pick, strict=True):
        axes.set_title(f"t = {(k + 1) * test.dt:.3g}", fontsize=9)
    figure.colorbar(drawn, ax=list(grid.ravel()), label=name, pad=0.01, aspect=40)
    name_hidden(figure, test)
    return figure


def last_spectra(study: Study) -> Mapping[str, Float[np.ndarray, " K"]]:
    """Energy spectra at the last predicted frame: of "truth" and of each method by label."""
    found: dict[str, Float[np.ndarray, " K"]] = {}
    for model in _rolled(study):
        assert model.rollout is not None
        _, s, k, *_ = model.rollout.prediction.shape
        if "truth" not in found:
            found["truth"] = study.energy(study.truth(s, k)[:, -1])
        last = np.asarray(model.rollout.prediction[:, :, -1])
        whole = last.reshape(-1, *last.shape[2:])
        points = np.asarray(at_points(whole, None if study.test is None else study.test.mask))
        whole = whole[np.isfinite(points).reshape(len(whole), -1).all(1)]
        if len(whole):  # a broken trajectory has no spectrum
            found[model.label] = study.energy(whole)
    return found


def spectra(study: Study) -> Figure:
    """Energy spectra of truth and predictions at the last step of the rollout."""
    _test(study)
    figure, (axes,) = grid_of(1, height=3.5)
    found = last_spectra(study)
    for name, energy in found.items():
        k = np.arange(1, len(energy)).tolist()
        style = TRUTH if name == "truth" else {}
        curve(axes, k, energy[1:].tolist(), name, study.labels.index(name) if name in study.labels else 0, **style)
    finish(axes, x="wavenumber k", y="energy E(k)", title="Last predicted frame", log="xy")
    top = max(float(energy[1:].max()) for energy in found.values())
    axes.set_ylim(bottom=max(axes.get_ylim()[0], ROUND_OFF * top))
    return figure


def training(study: Study) -> Figure:
    """Loss, and validation measures where they were logged, against the updates."""
    models = [m for m in study.first_seeds() if m.log]
    if not models:
        raise Absent("this run has no training logs: they come from the stage 03-train")
    measures = {key for m in models for row in m.log for key in row} - {"update", "lr", "loss"}
    shown = ["loss", *sorted(m for m in measures if not m.endswith("_stderr"))[:3]]
    figure, panels = grid_of(len(shown), columns=2, share=False)
    for axes, measure in zip(panels, shown, strict=True):
        for model in models:
            points = [(row.get("update"), row.get(measure)) for row in model.log]
            known = [(x, y) for x, y in points if x is not None and y is not None]
            place = study.labels.index(model.label)
            curve(axes, [x for x, _ in known], [y for _, y in known], model.label, place)
        finish(axes, x="updates", y=measure, log="y", legend=False)
        name_ends(axes)
    return figure


FIGURES = (samples, rollouts, training, spectra)
