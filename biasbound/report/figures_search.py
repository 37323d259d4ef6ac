"""Figures of the method itself: thresholds, ladders, biases along the chain, gradients."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from biasbound.core.schedule import Schedule
from biasbound.report.parts import Moment
from biasbound.report.pictures import evenly
from biasbound.report.searches import Landscape, Point, Search
from biasbound.report.study import Study, told_apart
from biasbound.report.style import (
    BIAS_MAP,
    LADDER,
    LOOK,
    PALETTE,
    WIDTH,
    bias_bar,
    bias_norm,
    curve,
    finish,
    grid_of,
    look,
    needed,
)

TAUS = (1.01, 1.03, 1.05, 1.10, 1.15)
SHOWN_TIMES = 4  # of training, in `schedules`
SIGMA = "noise level σ"
SEARCHED = "02-search, or 03-train where the ladder grows"


def _column(rows: Sequence[Any], name: str) -> list[float]:
    """One field of each row; NaN where it is not known."""
    found = [getattr(row, name) for row in rows]
    return [math.nan if value is None else float(value) for value in found]


def crossings(points: Sequence[Point], tau: float, width: float) -> list[tuple[float, list[float]]]:
    """(σ, clean-input errors) of the measurements whose own bias lies within τ ± width."""
    found: dict[float, list[float]] = {}
    for point in points:
        if abs(point.own - tau) <= width:
            found.setdefault(point.sigma, []).append(point.clean)
    return sorted(found.items())


def thresholds(study: Study, width: float = 0.01) -> Figure:
    """Clean-input error against σ when the own bias passes τ ± width, for several τ, one panel per method.

    Searches of one method (seeds, runs with other τ) share a panel. The cross of a search is the lowest level that it
    brought below its τ.
    """
    explored = needed([s for s in study.searches if s.exploration.points], "exploration.json", "02-search")
    groups: dict[tuple[str, str], list[Search]] = {}
    for search in explored:
        groups.setdefault((search.dataset, search.label.split(" @ ")[0]), []).append(search)
    figure, panels = grid_of(len(groups), height=3.6, columns=2)
    several = len({dataset for dataset, _ in groups}) > 1
    for axes, ((dataset, label), searches) in zip(panels, groups.items(), strict=True):
        points = [p for s in searches for p in s.exploration.points]
        for i, tau in enumerate(TAUS):
            _crossed(axes, crossings(points, tau, width), f"τ = {tau:.2f} ± {width:g}", i)
        for search in searches:
            _cross(axes, search)
        title = f"{label} · {dataset}" if several else label
        finish(axes, x=SIGMA, y="clean-input error", title=title, log="xy")
    return figure


def _crossed(axes: Axes, groups: Sequence[tuple[float, list[float]]], name: str, place: int) -> None:
    """Medians with bars from the least to the largest error."""
    if not groups:
        return
    sigma, values = zip(*groups, strict=True)
    errors = [float(np.median(v)) for v in values]
    spread = [[e - min(v), max(v) - e] for e, v in zip(errors, values, strict=True)]
    axes.errorbar(sigma, errors, np.transpose(spread), capsize=3, label=name, **look(place))


def _cross(axes: Axes, search: Search) -> None:
    """The lowest level that became stable, in the colour of its τ, named once per τ."""
    found = search.exploration
    lowest = min(found.solved, default=math.nan)
    errors = [p.clean for p in found.points if math.isclose(p.sigma, lowest)]
    if not errors:
        return
    same = [i for i, tau in enumerate(TAUS) if found.tau is not None and math.isclose(tau, found.tau)]
    name = "lowest stable level" + (f" at τ = {found.tau:g}" if found.tau is not None else "")
    axes.plot(
        [lowest], [min(errors)], "x", color=PALETTE[same[0]] if same else LADDER, markersize=10, markeredgewidth=2.6,
        label=None if name in axes.get_legend_handles_labels()[1] else name, zorder=5,
    )  # fmt: skip


def schedules(study: Study) -> Figure:
    """Clean-input and inference-input error along the chain at several times of training."""
    models = needed([m for m in study.first_seeds() if m.chain], "chain.jsonl", "03-train")
    figure, panels = grid_of(len(models))
    for axes, model in zip(panels, models, strict=True):
        times = [model.chain[i] for i in evenly(len(model.chain), SHOWN_TIMES)]
        for i, time in enumerate(times):
            _errors_at(axes, time, (i + 1) / len(times))
        title = f"{model.label}\nupdates {times[0].update:,} (pale) to {times[-1].update:,}"
        finish(axes, x=SIGMA, y="error", title=title, log="xy", legend=axes is panels[0])
    return figure


def _errors_at(axes: Axes, time: Moment, age: float) -> None:
    """Both errors at one time: the younger, the paler; those of age 1 are named."""
    shade = 0.72 * (1 - age)
    kinds = (("clean", "--", "o", PALETTE[0]), ("inference", "-", "s", PALETTE[1]))
    for name, dash, marker, colour in kinds:
        axes.plot(
            _column(time.rows, "sigma"), _column(time.rows, name), linestyle=dash, marker=marker, markersize=3.0,
            color=tuple((1 - shade) * c + shade for c in to_rgb(colour)),
            label=f"{name} input" if age == 1 else None, linewidth=LOOK["linewidth"] if age == 1 else 1.0,
        )  # fmt: skip


def landscape(study: Study) -> Figure:
    """E_clean over σ with the ladder's levels marked, E_inf along it, and the data's spectrum."""
    searches = needed([s for s in study.searches if s.landscape], "landscape.json", SEARCHED)
    figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    inference = {(m.label, m.seed): m.bias for m in study.models}
    for i, search in enumerate(searches):
        assert search.landscape is not None
        clean, name = search.landscape.clean, study.name(search)
        sigma = sorted(clean)
        errors = [clean[s][0] for s in sigma]
        curve(left, sigma, errors, f"{name}: clean input", i, [clean[s][1] for s in sigma])
        if search.schedule is not None:
            steps = [s for s in search.schedule.sigma if s in clean]
            left.plot(
                steps, [clean[s][0] for s in steps], linestyle="none", marker="o", markersize=10,
                markerfacecolor="none", markeredgecolor=PALETTE[i % 8], label=f"{name}: ladder",
            )  # fmt: skip
        if rows := inference.get((search.label, search.seed)):
            left.plot(
                _column(rows, "sigma"), _column(rows, "inference"), linestyle="none", marker="x",
                color="black", markersize=6, label=f"{name}: inference input (test)",
            )  # fmt: skip
    finish(left, x=SIGMA, y="error", title="Error landscape and ladder", log="xy")
    _data_spectrum(right, study)
    return figure


def _data_spectrum(axes: Axes, study: Study) -> None:
    if study.test is None:
        axes.text(0.5, 0.5, "no test data in this run", ha="center", va="center")
        axes.set_axis_off()
        return
    frames = np.linspace(0, study.test.layout.frames - 1, 8).round().astype(np.int64)
    count = min(len(study.test), 16)
    fields = study.test.take(np.arange(count), np.broadcast_to(frames, (count, len(frames))))
    energy = study.energy(fields.reshape(-1, *fields.shape[2:]))
    curve(axes, np.arange(1, len(energy)).tolist(), energy[1:].tolist(), study.dataset, 0)
    finish(axes, x="wavenumber k", y="energy E(k)", title="Energy spectrum of the data", log="xy", legend=False)
    axes.set_ylim(bottom=max(axes.get_ylim()[0], 1e-12 * float(energy[1:].max())))


def contributions(study: Study) -> Figure:
    """Own-prediction bias, two-step bias and REB along the chain, one panel per method."""
    models = needed([m for m in study.first_seeds() if m.bias], "bias.json", "06-evaluate")
    figure, panels = grid_of(len(models))
    units = [(m.dataset, m.label, 0) for m in models]  # one seed each
    for axes, model, unit in zip(panels, models, units, strict=True):
        sigma = _column(model.bias, "sigma")
        kinds = (("reb", "inference (REB)"), ("two_step", "two steps"), ("own", "own prediction"))
        for i, (key, name) in enumerate(kinds):
            errors = _column(model.bias, f"{key}_stderr")
            curve(axes, sigma, _column(model.bias, key), name, i, errors, markevery=1)
        axes.axhline(1.0, color="0.4", linewidth=0.8)
        title, first = told_apart(unit, units), axes is panels[0]
        finish(axes, x=SIGMA, y="error over clean-input error", title=title, log="xy", legend=first)
    return figure


def gradients(study: Study) -> Figure:
    """Cosine between gradients with proxy P⁽ⁿ⁾ and with full unrolling, against n."""
    models = needed([m for m in study.first_seeds() if m.gradients], "gradients.json", "06-evaluate")
    figure, panels = grid_of(len(models))
    kinds = {"to_full": "proxy and full unrolling", "to_teacher": "proxy and teacher forcing"}
    for axes, model in zip(panels, models, strict=True):
        rows = [r for r in model.gradients if isinstance(r.n, int)]
        for i, (key, name) in enumerate(kinds.items()):
            errors = _column(rows, f"{key}_stderr")
            curve(axes, _column(rows, "n"), _column(rows, key), name, i, errors, markevery=1)
        for row in model.gradients:
            if row.n == "teacher":
                axes.axhline(row.to_full, color="0.3", linestyle=":", label="teacher forcing and full unrolling")
        x, y = "transitions n of the proxy", "cosine of gradients"
        finish(axes, x=x, y=y, title=model.label, legend=axes is panels[0])
    return figure


def ladder(study: Study) -> Figure:
    """Two-step bias of every jump σ′ → σ, the border of τ, and the ladder as steps."""
    searches = needed([s for s in study.searches if s.landscape], "landscape.json", SEARCHED)
    figure, panels = grid_of(len(searches), height=4.3, columns=2, share=False)
    for axes, search in zip(panels, searches, strict=True):
        found = search.landscape
        assert found is not None
        drawn = _bias_map(axes, found, search.schedule)
        bias_bar(figure, drawn, axes, found.tau, "two-step bias")
        _level_ticks(axes, found.levels)
        axes.set_title(f"{study.name(search)}, τ = {found.tau:g} (black line)", fontsize=10)
    return figure


def _bias_map(axes: Axes, found: Landscape, schedule: Schedule | None) -> AxesImage:
    """One cell per jump, with the border of τ and the ladder."""
    levels = found.levels
    excess = np.full((len(levels),) * 2, np.nan)
    for (to, start), (bias, _) in found.biases.items():
        excess[levels.index(to), levels.index(start)] = min(max(bias - 1, 1e-3), 1e9)
    drawn = axes.imshow(excess, origin="lower", cmap=BIAS_MAP, norm=bias_norm(), interpolation="nearest")
    for edge in tau_edges(levels, found.bias, found.tau):
        axes.plot(*edge, color="black", linewidth=1.0)
    if schedule is not None and set(schedule.sigma) <= set(levels):
        x, y = staircase([levels.index(s) for s in schedule.sigma])
        axes.plot(x, y, color="white", linewidth=4.0)
        axes.plot(x, y, color=LADDER, linewidth=2.0, label="ladder")
    return drawn


def staircase(cells: Sequence[int]) -> tuple[list[float], list[float]]:
    """Steps from jump to jump: right from the diagonal to the cell (from, to), then up again."""
    x, y = [float(cells[0])], [float(cells[0])]
    for to, start in pairwise(cells):
        x += [float(start), float(start)]
        y += [float(to), float(start)]
    return x, y


def tau_edges(
    levels: Sequence[float], bias: Callable[[float, float], float], tau: float
) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """Edges ((x, x), (y, y)) between neighbouring cells of which one is within τ, one is not."""

    def within(start: int, to: int) -> bool | None:
        inside = 0 <= to < start < len(levels)
        return bias(levels[to], levels[start]) <= tau if inside else None

    for to in range(len(levels)):
        for start in range(to + 1, len(levels)):
            here = within(start, to)
            right, above = within(start + 1, to), within(start, to + 1)
            if right is not None and right != here:
                yield (start + 0.5, start + 0.5), (to - 0.5, to + 0.5)
            if above is not None and above != here:
                yield (start - 0.5, start + 0.5), (to + 0.5, to + 0.5)


def _level_ticks(axes: Axes, levels: Sequence[float]) -> None:
    at = evenly(len(levels), min(6, len(levels)))
    names = [f"{levels[i]:.{4 if levels[i] > 0.95 else 2}g}" for i in at]
    axes.set_xticks(at, names)
    axes.set_yticks(at, names)
    axes.tick_params(labelsize=8)
    axes.set_xlabel("from σ′")
    axes.set_ylabel("down to σ")


FIGURES = (thresholds, schedules, landscape, contributions, gradients, ladder)
