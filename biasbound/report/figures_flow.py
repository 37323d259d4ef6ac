"""Figures of the flows: samples, rollouts, spectra, distances over time, training curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from biasbound.data.trajectories import Trajectories
from biasbound.report.pictures import image, quantities
from biasbound.report.reading import numbers
from biasbound.report.study import Model, Study
from biasbound.report.style import WIDTH, Absent, curve, finish, name_ends

__all__ = ["first_quantity", "fsd", "rollouts", "samples", "spectra", "training"]

COLUMNS = 4  # frames of a flow in two dimensions
METHODS = 5  # rollouts beside each other at most
SAMPLES = 3
TRUTH: dict[str, Any] = {"color": "0.6", "linewidth": 4.5, "linestyle": "-", "marker": ""}
ROUND_OFF = 1e-12  # of the largest energy: what lies below is the arithmetic's


def first_quantity(test: Trajectories, fields: Float[np.ndarray, "K C *N"]) -> tuple[str, Float[np.ndarray, "K ..."]]:
    """(name, values) of what the eye knows best: vorticity of a flow, else the first channel.

    A third space axis is cut in its middle; values inside a body are NaN.
    """
    name, values = list(all_quantities(test, fields).items())[-1 if _is_flow(test) else 0]
    return name, values


def _is_flow(test: Trajectories) -> bool:
    return len(test.layout.grid) > 1 and len(test.channels) > 1


def all_quantities(test: Trajectories, fields: Float[np.ndarray, "K C *N"]) -> dict[str, Float[np.ndarray, "K ..."]]:
    """Everything worth showing of some frames, by name."""
    if len(test.layout.grid) == 1:
        return {name: fields[:, c] for c, name in enumerate(test.channels)}
    middle: Any = (..., *(n // 2 for n in test.layout.grid[2:]))
    found = quantities(test, np.asarray(fields[middle]))
    mask = test.static.get("mask")
    if mask is None:
        return found
    shape = next(iter(found.values())).shape[1:]
    solid = np.broadcast_to(np.asarray(mask)[middle], shape) < 0.5
    return {name: np.where(solid, np.nan, values) for name, values in found.items()}


def _test(study: Study) -> Trajectories:
    if study.test is None:
        raise Absent("this run has no test data: it comes from the stage 01-data")
    return study.test


def _rolled(study: Study) -> list[Model]:
    models = [m for m in study.first_seeds() if m.rollout is not None]
    if not models:
        raise Absent("this run has no rollouts: they come from the stage 05-rollout")
    return models


def _extent(test: Trajectories, frames: int, dt: float) -> tuple[float, float, float, float]:
    """Of a space–time picture, or of a frame."""
    if len(test.layout.grid) == 1:
        return (dt, dt * max(frames, 2), *test.layout.domain[0])
    return (*test.layout.domain[0], *test.layout.domain[1])


def samples(study: Study) -> Figure:
    """A few test trajectories: space–time in one dimension, frames in two."""
    test = _test(study)
    count = min(SAMPLES, len(test))
    flat = len(test.layout.grid) == 1
    frames = np.arange(test.layout.frames) if flat else _evenly(test.layout.frames, COLUMNS)
    taken = test.take(np.arange(count), np.broadcast_to(frames, (count, len(frames))))
    every = [first_quantity(test, fields) for fields in taken]
    name, shown = every[0][0], np.stack([values for _, values in every])
    rows, columns = (1, count) if flat else (count, len(frames))
    height = 2.7 if flat else 0.4 + count * 0.85 * WIDTH / columns * _aspect(test)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    extent = _extent(test, test.layout.frames, test.dt)
    for i, values in enumerate(shown):
        for j, axes in enumerate([grid[0, i]] if flat else grid[i]):
            drawn = image(axes, values if flat else values[j], shown, extent)
            title = f"trajectory {i}" if flat else f"t = {frames[j] * test.dt:.3g}" if i == 0 else ""
            axes.set_title(title, fontsize=9)
            if flat:
                axes.set_xlabel("time t")
            else:
                axes.set_aspect("equal")
    grid[0, 0].set_ylabel("position x" if flat else "")
    figure.colorbar(drawn, ax=list(grid.ravel()), label=name, pad=0.01)
    return figure


def _evenly(count: int, wanted: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, wanted).round().astype(np.int64))


def _aspect(test: Trajectories) -> float:
    (left, right), (bottom, top) = test.layout.domain[:2]
    return min(2.0, max(0.25, (top - bottom) / (right - left)))


def rollouts(study: Study, trajectory: int = 0) -> Figure:
    """The truth, each method's rollout of it, and the difference."""
    test, models = _test(study), _rolled(study)[:METHODS]
    shapes = [m.rollout.prediction.shape for m in models if m.rollout is not None]
    frames = min(shape[2] for shape in shapes)
    truth = study.truth(1, frames, trajectory)[0]
    name, true = first_quantity(test, truth)
    flat = len(test.layout.grid) == 1
    pick = np.arange(frames) if flat else _evenly(frames, COLUMNS)
    lines: list[tuple[str, np.ndarray, np.ndarray]] = [("truth", true[pick], true[pick])]
    for model in models:
        assert model.rollout is not None
        fields = np.asarray(model.rollout.prediction[0, trajectory, :frames])
        with np.errstate(invalid="ignore", over="ignore"):  # a rollout may have broken down
            guess = first_quantity(test, fields)[1][pick]
            error = guess - true[pick]
        lines.append((model.label, guess, true[pick]))
        lines.append(("error", error, true[pick] - np.nanmean(true)))
    if flat:
        return _space_times(test, name, lines, frames)
    return _frame_rows(test, name, lines, pick)


def _space_times(
    test: Trajectories, name: str, lines: list[tuple[str, np.ndarray, np.ndarray]], frames: int
) -> Figure:
    """One row a method: its prediction left, its error right; the truth on top."""
    rows = (len(lines) + 1) // 2
    figure = Figure(figsize=(WIDTH, 0.5 + 1.45 * rows), layout="constrained")
    grid = figure.subplots(rows, 2, squeeze=False, sharex=True, sharey=True)
    extent = _extent(test, frames, test.dt)
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
    return figure


def _frame_rows(
    test: Trajectories, name: str, lines: list[tuple[str, np.ndarray, np.ndarray]], pick: np.ndarray
) -> Figure:
    """One row of frames for the truth and two a method."""
    height = 0.8 * WIDTH / (len(pick) + 0.4) * _aspect(test) + 0.1
    figure = Figure(figsize=(WIDTH, 0.6 + height * len(lines)), layout="constrained")
    grid = figure.subplots(len(lines), len(pick), squeeze=False, sharex=True, sharey=True)
    extent = _extent(test, len(pick), test.dt)
    for row, (title, values, scale) in zip(grid, lines, strict=True):
        for axes, frame in zip(row, values, strict=True):
            drawn = image(axes, frame, scale, extent)
            axes.set_aspect("equal")
            axes.tick_params(labelsize=7)
        row[0].set_ylabel(title, fontsize=9)
    for axes, k in zip(grid[0], pick, strict=True):
        axes.set_title(f"t = {(k + 1) * test.dt:.3g}", fontsize=9)
    figure.colorbar(drawn, ax=list(grid.ravel()), label=name, pad=0.01, aspect=40)
    return figure


def last_spectra(study: Study) -> Mapping[str, Float[np.ndarray, " K"]]:
    """Energy spectra at the last predicted frame of "truth" and of each method, over all its trajectories."""
    found: dict[str, Float[np.ndarray, " K"]] = {}
    for model in _rolled(study):
        assert model.rollout is not None
        _, s, k, *_ = model.rollout.prediction.shape
        if "truth" not in found:
            found["truth"] = study.energy(study.truth(s, k)[:, -1])
        last = np.asarray(model.rollout.prediction[:, :, -1])
        whole = last.reshape(-1, *last.shape[2:])
        whole = whole[np.isfinite(whole).reshape(len(whole), -1).all(1)]
        if len(whole):  # a broken trajectory has no spectrum
            found[model.label] = study.energy(whole)
    return found


def spectra(study: Study) -> Figure:
    """Energy spectra of truth and predictions at the last step of the rollout."""
    _test(study)
    figure, axes = _single()
    found = last_spectra(study)
    for name, energy in found.items():
        k = np.arange(1, len(energy)).tolist()
        style = TRUTH if name == "truth" else {}
        curve(axes, k, energy[1:].tolist(), name, study.labels.index(name) if name in study.labels else 0, **style)
    finish(axes, x="wavenumber k", y="energy E(k)", title="Last predicted frame", log="xy")
    top = max(float(energy[1:].max()) for energy in found.values())
    axes.set_ylim(bottom=max(axes.get_ylim()[0], ROUND_OFF * top))
    return figure


def _single() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(0.72 * WIDTH, 4.0), layout="constrained")
    return figure, figure.subplots()


def fsd(study: Study) -> Figure:
    """Fréchet spectral distance over the rollout, mean over seeds, one line a method."""
    found = study.series("fsd")
    if not found:
        raise Absent("this run has no rows of the metric fsd: they come from the stage 06-evaluate")
    figure, axes = _single()
    for dataset, label in dict.fromkeys(key[:2] for key in found):
        own = [points for key, points in found.items() if key[:2] == (dataset, label)]
        seeds = [{p[0]: p[1] for p in points} for points in own]
        steps = sorted(set.intersection(*(set(s) for s in seeds)))
        means = [float(np.mean([s[k] for s in seeds])) for k in steps]
        curve(axes, steps, means, label, study.labels.index(label))
    finish(axes, x="predicted frame", y="Fréchet spectral distance", log="y", legend=False)
    name_ends(axes)
    return figure


def training(study: Study) -> Figure:
    """Loss, and validation measures where they were logged, against the updates."""
    models = [m for m in study.first_seeds() if m.log]
    if not models:
        raise Absent("this run has no training logs: they come from the stage 03-train")
    measures = {key for m in models for row in m.log for key in row} - {"update", "lr", "loss"}
    panels = ["loss", *sorted(m for m in measures if not m.endswith("_stderr"))[:3]]
    figure = Figure(figsize=(WIDTH, 0.3 + 3.0 * -(-len(panels) // 2)), layout="constrained")
    grid = figure.subplots(-(-len(panels) // 2), min(2, len(panels)), squeeze=False).ravel()
    for spare in grid[len(panels) :]:
        spare.remove()
    for axes, measure in zip(grid, panels, strict=False):
        for model in models:
            rows = [r for r in model.log if r.get(measure) is not None]
            curve(axes, numbers(rows, "update"), numbers(rows, measure), model.label, study.labels.index(model.label))
        finish(axes, x="updates", y=measure, log="y", legend=False)
        name_ends(axes)
    return figure


FIGURES: dict[str, Callable[[Study], Figure]] = {
    "fsd": fsd,
    "samples": samples,
    "rollouts": rollouts,
    "training": training,
    "spectra": spectra,
}
