"""Pictures of trajectories: space–time in one dimension, frames of familiar quantities in two, a middle plane in three.

Signed quantities have a diverging map centred on zero, others a sequential one. Both can be read
without red–green vision. Colour limits are shared by all frames of a row and leave out the
extreme 0.5 %. Points without a value are grey, and named in a legend.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Patch

from biasbound._io import replacing
from biasbound.data.trajectories import Trajectories
from biasbound.report.planes import placed, planes, quantities

WIDTH = 9.0  # inches
COLUMNS = 1200  # frames drawn of a one-dimensional trajectory at most
UNITS = {"transonic": ("x / D", "y / D", "t U / D")}
NOTHING = "0.55"  # the grey of points without a value


def draw(trajectories: Trajectories, trajectory: int = 0) -> Figure:
    """A figure of one trajectory."""
    if not -len(trajectories) <= trajectory < len(trajectories):
        raise ValueError(
            f"{trajectories.name} has no trajectory {trajectory}: choose one of 0 … {len(trajectories) - 1}"
        )
    one = trajectories.select(range(len(trajectories))[trajectory])
    figure = _space_time(one) if len(one.layout.grid) == 1 else _frames(one)
    told = [f"{name} {float(values[0]):g}" for name, values in one.parameters.items()]
    title = ", ".join([f"{one.layout.name}, trajectory {trajectory}", *told[:3]])
    figure.suptitle(title, fontsize=11)
    return figure


def save_picture(figure: Figure, path: Path, overwrite: bool = False) -> None:
    """Write a figure in the format that the path's ending names."""
    kind = path.suffix[1:].lower()
    if kind not in figure.canvas.get_supported_filetypes():
        raise ValueError(f"{path}: a picture's name must end in .png, .pdf or .svg")
    with replacing(path, overwrite) as temporary:
        figure.savefig(temporary, format=kind, dpi=110)


def image(
    axes: Axes, values: Float[np.ndarray, "X Y"], shown: np.ndarray, extent: tuple[float, float, float, float]
) -> AxesImage:
    """Values over (first axis → right, second axis → up), coloured by the limits of `shown`."""
    known = shown[np.isfinite(shown)]
    low, high = np.percentile(known, [0.5, 99.5])
    if low < 0 < high:
        low, high = -max(-low, high), max(-low, high)
    cmap = colormaps["RdBu_r" if low < 0 < high else "cividis"].with_extremes(bad=NOTHING)
    return axes.imshow(
        values.T, origin="lower", extent=extent, aspect="auto", cmap=cmap, vmin=low, vmax=high, interpolation="nearest"
    )


def name_hidden(figure: Figure, of: Trajectories) -> None:
    """A legend for points without a value, where there are any."""
    if name := planes(of)[0].hidden:
        patch = Patch(facecolor=NOTHING, label=name)
        figure.legend(handles=[patch], loc="outside lower right", fontsize=8, frameon=False)


def _axis_names(of: Trajectories) -> tuple[str, ...]:
    """Of the axes that are shown, and of time."""
    return UNITS.get(of.layout.name, (*planes(of)[0].names, "t"))


def _space_time(one: Trajectories) -> Figure:
    """u(x, t) of each channel, time to the right."""
    thin = one.stride(time=-(-one.layout.frames // COLUMNS))
    fields = thin.read(0, 1)[0]
    rows = len(one.channels)
    figure = Figure(figsize=(WIDTH, 1.0 + 2.4 * rows), layout="constrained")
    grid = figure.subplots(rows, 1, squeeze=False, sharex=True)[:, 0]
    x, *_, t = _axis_names(one)
    for axes, (name, values) in zip(grid, quantities(one, fields).items(), strict=True):
        end = thin.dt * max(1, thin.layout.frames - 1)
        drawn = image(axes, values, values, (0.0, end, *one.layout.domain[0]))
        axes.set_ylabel(f"position {x}")
        figure.colorbar(drawn, ax=axes, label=name, pad=0.01)
    grid[-1].set_xlabel(f"time {t}")
    name_hidden(figure, one)
    return figure


def evenly(count: int, wanted: int) -> Int[np.ndarray, " w"]:
    """Up to `wanted` of the numbers 0 … count − 1, evenly spaced, both ends among them."""
    return np.unique(np.linspace(0, count - 1, wanted).round().astype(np.int64))


def _frames(one: Trajectories) -> Figure:
    """Frames evenly spaced in time, one row per quantity."""
    plane = planes(one)[0]
    aspect = plane.ratio
    k = evenly(one.layout.frames, 4 if aspect > 0.7 else 3)
    rows = plane.quantities(one.take(np.array([0]), k[None])[0])
    x, y, t = _axis_names(one)
    height = 0.8 * WIDTH / len(k) * aspect + 0.25  # of a row; the rest is for bars and labels
    figure = Figure(figsize=(WIDTH, 0.85 + height * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), len(k), squeeze=False, sharex=True, sharey=True)
    extent = (*plane.domain[0], *plane.domain[1])
    for line, (name, values) in zip(grid, rows.items(), strict=True):
        for axes, frame in zip(line, values, strict=True):
            drawn = image(axes, frame, values, extent)
            axes.set_aspect("equal")
        figure.colorbar(drawn, ax=list(line), label=placed(name, plane), pad=0.01)
        line[0].set_ylabel(y)
    for axes, number in zip(grid[0], k, strict=True):
        axes.set_title(f"{t} = {number * one.dt:.4g}", fontsize=9)
    for axes in grid[-1]:
        axes.set_xlabel(x)
    name_hidden(figure, one)
    return figure
