"""Pictures of trajectories: space–time in one dimension, frames of familiar quantities in two.

Signed quantities have a diverging map centred on zero, others a sequential one. Both can be read
without red–green vision. Colour limits are shared by all frames of a row and leave out the
extreme 0.5 %.
"""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from biasbound._io import replacing
from biasbound.data.trajectories import Trajectories
from biasbound.metrics import vorticity

WIDTH = 9.0  # inches
COLUMNS = 1200  # frames drawn of a one-dimensional trajectory at most
UNITS = {"transonic": ("x / D", "y / D", "t U / D"), "": ("x", "y", "t")}
LABELS = {  # all other flows are without units
    "transonic": {"pressure": "pressure p / ρ∞a∞²", "vorticity": "vorticity ω D / a∞"},
    "": {"pressure": "pressure p", "vorticity": "vorticity ω"},
}


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
    cmap = colormaps["RdBu_r" if low < 0 < high else "cividis"].with_extremes(bad="0.55")
    return axes.imshow(
        values.T, origin="lower", extent=extent, aspect="auto", cmap=cmap, vmin=low, vmax=high, interpolation="nearest"
    )


def _space_time(one: Trajectories) -> Figure:
    """u(x, t) of each channel, time to the right."""
    thin = one.stride(time=-(-one.layout.frames // COLUMNS))
    fields = thin.read(0, 1)[0]
    rows = len(one.channels)
    figure = Figure(figsize=(WIDTH, 1.0 + 2.4 * rows), layout="constrained")
    grid = figure.subplots(rows, 1, squeeze=False, sharex=True)[:, 0]
    x, _, t = UNITS.get(one.layout.name, UNITS[""])
    for axes, name, values in zip(grid, one.channels, np.moveaxis(fields, 1, 0), strict=True):
        end = thin.dt * max(1, thin.layout.frames - 1)
        drawn = image(axes, values, values, (0.0, end, *one.layout.domain[0]))
        axes.set_ylabel(f"position {x}")
        figure.colorbar(drawn, ax=axes, label=name, pad=0.01)
    grid[-1].set_xlabel(f"time {t}")
    return figure


def quantities(of: Trajectories, fields: Float[np.ndarray, "K C *N"]) -> dict[str, Float[np.ndarray, "K ..."]]:
    """What to show of some frames, by name; the most familiar quantity is the first.

    Pressure and vorticity of a gas, vorticity of a flow, else the channels. A third space axis is
    cut in its middle; values inside a body and at masked points are NaN.
    """
    valid, flat = getattr(of, "mask", None), len(of.layout.grid) == 1
    fields = fields if valid is None else np.where(valid, fields, 0)  # NaN would spread in a derivative
    middle: Any = (..., *(n // 2 for n in of.layout.grid[2:]))
    channels = {name: fields[:, c] for c, name in enumerate(of.channels)}
    found = channels if flat else _plane_quantities(of, np.asarray(fields[middle]))
    mask = valid if valid is not None or flat else of.static.get("mask")
    if mask is None:
        return found
    shape = next(iter(found.values())).shape[1:]
    solid = np.broadcast_to(np.asarray(mask)[middle], shape) < 0.5
    return {name: np.where(solid, np.nan, values) for name, values in found.items()}


def _plane_quantities(of: Trajectories, fields: Float[np.ndarray, "K C X Y"]) -> dict[str, Float[np.ndarray, "K X Y"]]:
    named = {name: fields[:, c] for c, name in enumerate(of.channels)}
    if {"momentum_x", "momentum_y", "density"} <= {*named}:
        named |= {f"velocity_{a}": named[f"momentum_{a}"] / named["density"] for a in "xy"}
    if {"velocity_x", "velocity_y"} <= {*named} and min(fields.shape[2:]) > 2:
        spacing = [float(c[1] - c[0]) for c in of.coordinates[:2]]
        periodic = [kind == "periodic" for kind in of.layout.boundary[:2]]
        velocity = np.stack([named["velocity_x"], named["velocity_y"]], 1)
        omega = vorticity(velocity, periodic=periodic, spacing=spacing)[:, 0].numpy()
        label = LABELS.get(of.layout.name, LABELS[""])
        pressure = {label["pressure"]: named["pressure"]} if "pressure" in named else {}
        return {label["vorticity"]: omega} | pressure
    return {name: named[name] for name in of.channels[:3]}


def evenly(count: int, wanted: int) -> Int[np.ndarray, " w"]:
    """Up to `wanted` of the numbers 0 … count − 1, evenly spaced, both ends among them."""
    return np.unique(np.linspace(0, count - 1, wanted).round().astype(np.int64))


def shape_of(of: Trajectories) -> float:
    """Height over width of a picture of a plane flow, within what fits on paper."""
    (left, right), (bottom, top) = of.layout.domain[:2]
    return min(2.0, max(0.25, (top - bottom) / (right - left)))


def _frames(one: Trajectories) -> Figure:
    """Frames evenly spaced in time, one row per quantity."""
    aspect = shape_of(one)
    k = evenly(one.layout.frames, 4 if aspect > 0.7 else 3)
    rows = quantities(one, one.take(np.array([0]), k[None])[0])
    x, y, t = UNITS.get(one.layout.name, UNITS[""])
    height = 0.8 * WIDTH / len(k) * aspect + 0.25  # of a row; the rest is for bars and labels
    figure = Figure(figsize=(WIDTH, 0.85 + height * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), len(k), squeeze=False, sharex=True, sharey=True)
    extent = (*one.layout.domain[0], *one.layout.domain[1])
    for line, (name, values) in zip(grid, rows.items(), strict=True):
        for axes, frame in zip(line, values, strict=True):
            drawn = image(axes, frame, values, extent)
            axes.set_aspect("equal")
        figure.colorbar(drawn, ax=list(line), label=name, pad=0.01)
        line[0].set_ylabel(y)
    for axes, number in zip(grid[0], k, strict=True):
        axes.set_title(f"{t} = {number * one.dt:.4g}", fontsize=9)
    for axes in grid[-1]:
        axes.set_xlabel(x)
    return figure
