"""Figures of ladders that grew inside their training: how they grew, and the exact front."""

import math

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator, NullLocator

from biasbound.report.parts import Level
from biasbound.report.searches import FrontPoint, Growth, Search
from biasbound.report.study import Study
from biasbound.report.style import BIAS_MAP, LADDER, WIDTH, bias_bar, bias_norm, curve, finish, grid_of, needed

GROWN = "03-train, where the ladder grows (search.mode: grow)"
FRONT_AXES = {"error": "inference error (validation)", "crps": "CRPS (validation)"}


def height_of(sigma: float) -> float:
    """σ/√ᾱ: where a level is drawn. At low levels it is σ; near 1 it keeps levels apart."""
    return sigma / math.sqrt(1 - sigma**2)


def growth(study: Study) -> Figure:
    """Levels and their errors against updates: tried, joined and dropped, one row per grown ladder."""
    searches = needed([s for s in study.searches if s.growth], "growth.json", GROWN)
    figure = Figure(figsize=(WIDTH, 0.4 + 3.7 * len(searches)), layout="constrained")
    rows = figure.subplots(len(searches), 2, squeeze=False, width_ratios=(3, 2))
    for (left, right), search in zip(rows, searches, strict=True):
        found = search.growth
        assert found is not None
        _levels(left, search, found)
        finish(left, x="updates", y="noise level σ", title=f"{study.name(search)}, τ = {found.tau:g}", legend=False)
        _named_levels(left, found)
        left.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3)
        drawn = ScalarMappable(bias_norm(), colormaps[BIAS_MAP])
        bias_bar(figure, drawn, left, found.tau, "own (left) and two-step bias (right)")
        for i, (sigma, points) in enumerate(level_errors(found).items()):
            update, error, stderr = (list(column) for column in zip(*points, strict=True))
            curve(right, update, error, f"{sigma:.4g}", i, stderr, markevery=1)
        right.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        finish(right, x="updates", y="clean-input error", title="error of each level", log="y", legend=False)
        right.legend(fontsize=7, frameon=False, title="σ", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def joined_at(found: Growth) -> dict[float, int]:
    """{level of the grown ladder: the update at which it joined}; the top was there from the beginning."""
    first: dict[float, int] = {found.rounds[0].ladder[0]: 0}
    for one in found.rounds:
        for sigma in one.ladder:
            first.setdefault(sigma, one.update)
    return first


def _levels(axes: Axes, search: Search, found: Growth) -> None:
    axes.set_yscale("log")
    axes.axvspan(0, found.warm, color="0.92", linewidth=0, label="warm phase")
    axes.axvline(found.fixed, color="0.4", linestyle="--", linewidth=1, label="ladder fixed")
    used = search.schedule.sigma if search.schedule is not None else found.rounds[-1].ladder
    for i, (sigma, start) in enumerate(joined_at(found).items()):
        y = height_of(sigma)
        axes.plot(
            [start, found.updates], [y, y], color=LADDER, linewidth=1.6, label="in the ladder" if i == 0 else None
        )
        face = LADDER if sigma in used else "white"
        name = "final ladder" if sigma in used else "trained, not used"
        known = axes.get_legend_handles_labels()[1]
        axes.plot(
            [found.updates], [y], "o", color=LADDER, markerfacecolor=face, clip_on=False, markersize=6, zorder=4,
            label=None if name in known else name,
        )  # fmt: skip
    for number, one in enumerate(found.rounds):
        for level in found.tried(number):
            _tried(axes, one.update, level, found.feasible(number, level))


def _tried(axes: Axes, update: int, level: Level, feasible: bool) -> None:
    """A square: own bias left, two-step bias right, ringed if the level could have joined."""
    colours, norm = colormaps[BIAS_MAP], bias_norm()
    own, two = (colours(norm(max(b - 1, 1e-9))) for b in (level.own, level.two_step))
    name = "feasible" if feasible else "tried, not feasible"
    axes.plot(
        [update], [height_of(level.sigma)], marker="s", markersize=7, fillstyle="left", linestyle="none",
        markerfacecolor=own, markerfacecoloralt=two, markeredgecolor="black" if feasible else "0.75",
        markeredgewidth=1.4 if feasible else 0.5, zorder=3,
        label=None if name in axes.get_legend_handles_labels()[1] else name,
    )  # fmt: skip


def _named_levels(axes: Axes, found: Growth) -> None:
    """Ticks at the levels that were measured, as far as they have room."""
    every = {level.sigma for one in found.rounds for level in one.levels} | set(found.rounds[-1].ladder)
    shown: list[float] = []
    low, high = (math.log(height_of(end(every))) for end in (min, max))
    for sigma in sorted(every, reverse=True):
        place = math.log(height_of(sigma))
        if not shown or math.log(height_of(shown[-1])) - place > (high - low) / 16:
            shown.append(sigma)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_yticks([height_of(s) for s in shown], [f"{s:.{4 if s > 0.95 else 2}g}" for s in shown])
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def level_errors(found: Growth) -> dict[float, list[tuple[int, float, float]]]:
    """{level: (update, clean-input error, standard error)} of every round that measured it, from the top down."""
    errors: dict[float, list[tuple[int, float, float]]] = {}
    for one in found.rounds:
        for level in one.levels:
            errors.setdefault(level.sigma, []).append((one.update, level.clean, level.clean_stderr))
    return dict(sorted(errors.items(), reverse=True))


def front(study: Study) -> Figure:
    """Least inference error against the calls of the ladder, with the greedy ladder and the chosen one."""
    searches = needed([s for s in study.searches if s.front], "front.json", GROWN)
    figure, panels = grid_of(len(searches), height=3.2, columns=2, share=False)
    for axes, search in zip(panels, searches, strict=True):
        assert search.front is not None
        points = search.front.front
        finite = [p.stderr if math.isfinite(p.stderr) else 0.0 for p in points]
        axes.errorbar(
            [p.calls for p in points], [p.mean for p in points], finite, fmt="o-", capsize=3, markersize=4.5,
            color="#0072b2", label="exact front",
        )  # fmt: skip
        _marked(axes, search.chosen, "o", LADDER, "the study's ladder")
        _marked(axes, search.greedy, "s", "black", "greedy ladder")
        finish(axes, x="network calls", y=FRONT_AXES[search.front.score], title=study.name(search), legend=False)
        axes.set_xlim(0.5, max(p.calls for p in points) + 0.5)
        axes.xaxis.set_major_locator(MultipleLocator(1))
        axes.legend(fontsize=8, frameon=False, markerscale=0.6)
    return figure


def _marked(axes: Axes, point: FrontPoint | None, marker: str, colour: str, name: str) -> None:
    """A ring around a ladder; a line at its calls if its error is not known."""
    if point is None:
        return
    if not math.isfinite(point.mean):
        axes.axvline(point.calls, color=colour, linestyle=":", label=f"{name} (error not measured)")
        return
    axes.plot(
        [point.calls], [point.mean], marker, markersize=11 if marker == "o" else 15, markerfacecolor="none",
        markeredgecolor=colour, markeredgewidth=1.8, label=name,
    )  # fmt: skip


FIGURES = (growth, front)
