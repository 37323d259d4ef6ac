"""One look for all figures, which can be read without red–green vision and in grey print."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

T = TypeVar("T")
WIDTH = 9.0  # inches
# Okabe and Ito's colours without the yellow, which is too light for a line.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#7f7f7f")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.3)), (0, (6, 2, 1, 2)), (0, (3, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
BIAS_MAP = "cividis_r"  # light is harmless, dark is harmful
LADDER = "#c00000"
LOOK = {"markersize": 4.5, "linewidth": 1.6, "markeredgewidth": 0.8}


class Absent(ValueError):
    """The study does not hold what a figure shows."""


def needed(items: Sequence[T], what: str, stage: str) -> Sequence[T]:
    """The same items, or what to run where there are none."""
    if not items:
        raise Absent(f"this run has no {what}: it comes from the stage {stage}")
    return items


def bias_norm() -> LogNorm:
    """Colours span biases from 1.003 to 4, logarithmically in bias − 1."""
    return LogNorm(0.003, 3.0)


def bias_bar(figure: Figure, drawn: ScalarMappable, axes: Axes, tau: float, name: str) -> None:
    """The colour bar of biases, with a tick at τ."""
    bar = figure.colorbar(drawn, ax=axes, extend="both", label=name)
    ticks = [0.003, 0.01, tau - 1, 0.1, 0.3, 1.0, 3.0]
    bar.set_ticks(ticks, labels=[f"{1 + t:g}" for t in ticks])
    bar.ax.minorticks_off()


def look(index: int) -> dict[str, Any]:
    """Colour, dash and marker of the line with this number."""
    return {
        "color": PALETTE[index % len(PALETTE)],
        "linestyle": DASHES[index % len(DASHES)],
        # A second round of colours has other markers: no two of the first 64 lines look alike.
        "marker": MARKERS[(index + 3 * (index // len(PALETTE))) % len(MARKERS)],
        **LOOK,
    }


def curve(
    axes: Axes,
    x: Sequence[float | int],
    y: Sequence[float | int],
    name: str,
    index: int,
    errors: Sequence[float] | None = None,
    **style: Any,
) -> None:
    """A named line with markers, and a band of one standard error."""
    shown = {**look(index), "markevery": max(1, len(x) // 12), **style}
    axes.plot(x, y, label=name, **shown)
    if errors is not None and np.isfinite(errors).any():
        known = np.where(np.isfinite(errors), errors, np.nan)
        low, high = np.subtract(y, known), np.add(y, known)
        axes.fill_between(x, low, high, color=shown["color"], alpha=0.15, linewidth=0)


def grid_of(count: int, height: float = 2.9, columns: int = 3, share: bool = True) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels, which share their axes if `share`."""
    columns = min(columns, count)
    rows = -(-count // columns)
    width = WIDTH if columns > 1 else 0.72 * WIDTH
    figure = Figure(figsize=(width, 0.5 + height * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=share).ravel()
    for spare in panels[count:]:
        spare.remove()
    for lowest in panels[max(0, count - columns) : count]:  # also above a panel that is not there
        lowest.tick_params(labelbottom=True)
    return figure, list(panels[:count])


def finish(axes: Axes, *, x: str, y: str, title: str = "", log: str = "", legend: bool = True) -> None:
    """Labels, logarithmic axes where the data can have them, light grid, legend."""
    for name in log:
        values = [
            v
            for line in axes.lines
            if line.get_transform() == axes.transData  # not a line across the axes
            for v in np.ravel(line.get_xdata() if name == "x" else line.get_ydata())
        ]
        finite = [v for v in values if np.isfinite(v)]
        if finite and min(finite) > 0:
            (axes.set_xscale if name == "x" else axes.set_yscale)("log")
            span = max(finite) / min(finite)
            axis = axes.xaxis if name == "x" else axes.yaxis
            if span < 30:  # decades alone would label next to nothing
                axis.set_major_locator(MaxNLocator(4) if span < 5 else LogLocator(subs=(1.0, 2.0, 5.0)))
                axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
                axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, which="both")
    if legend and axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False)


def name_ends(axes: Axes, gap: float = 0.055) -> None:
    """Write each line's name beside its end instead of a legend, `gap` of the height apart."""
    named = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    ends = []
    for line in named:
        x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
        known = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        if len(known):
            place = axes.transData.transform((x[known[-1]], y[known[-1]]))
            ends.append((float(axes.transAxes.inverted().transform(place)[1]), line))
    ends.sort(key=lambda end: end[0])
    for height, (_, line) in zip(spread([end[0] for end in ends], gap), ends, strict=True):
        axes.text(
            1.02, height, str(line.get_label()), color=line.get_color(), fontsize=8,
            va="center", transform=axes.transAxes,
        )  # fmt: skip


def spread(heights: list[float], gap: float) -> list[float]:
    """Ascending heights moved until they are `gap` apart, and within 0 … 1 as far as they fit."""
    gap = min(gap, 1 / max(1, len(heights) - 1))
    moved = list(heights)
    for i in range(1, len(moved)):
        moved[i] = max(moved[i], moved[i - 1] + gap)
    top = 1.0
    for i in reversed(range(len(moved))):
        moved[i] = top = min(moved[i], top)
        top -= gap
    return moved
