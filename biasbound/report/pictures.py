"""Pictures of trajectories: space–time in one dimension, frames of what the eye knows in two.

Signed quantities have a diverging map centred on zero, others a sequential one; both read well without
red–green vision. Colour limits are shared by all frames of a row and leave out the extreme 0.5 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from biasbound._io import replacing
from biasbound.data.trajectories import Trajectories

__all__ = ["draw", "image", "quantities", "save_picture", "vorticity"]

WIDTH = 9.0  # inches
COLUMNS = 1200  # frames drawn of a one-dimensional trajectory at most
UNITS = {"transonic": ("x / D", "y / D", "t U / D"), "": ("x", "y", "t")}
LABELS = {  # all other flows are without units
    "transonic": {"pressure": "pressure p / ρ∞a∞²", "vorticity": "vorticity ω D / a∞"},
    "": {"pressure": "pressure p", "vorticity": "vorticity ω"},
}


def vorticity(
    u: Float[np.ndarray, "... X Y"],
    v: Float[np.ndarray, "... X Y"],
    spacing: Sequence[float],
    periodic: Sequence[bool],
) -> Float[np.ndarray, "... X Y"]:
    """ω = ∂v/∂x − ∂u/∂y by central differences (one-sided at the ends of an open axis)."""

    def slope(f: np.ndarray, axis: int) -> np.ndarray:
        if periodic[axis]:
            return np.asarray((np.roll(f, -1, axis) - np.roll(f, 1, axis)) / (2 * spacing[axis]))
        return np.asarray(np.gradient(f, spacing[axis], axis=axis))

    return np.asarray(slope(v, -2) - slope(u, -1))


def draw(trajectories: Trajectories, trajectory: int = 0) -> Figure:
    """A figure of one trajectory."""
    if not -len(trajectories) <= trajectory < len(trajectories):
        raise ValueError(f"{trajectories.name} has trajectories 0 … {len(trajectories) - 1}")
    one = trajectories.select(range(len(trajectories))[trajectory])
    figure = _space_time(one) if len(one.layout.grid) == 1 else _frames(one)
    told = [f"{name} {float(values[0]):g}" for name, values in one.parameters.items()]
    title = ", ".join([f"{one.layout.name}, trajectory {trajectory}", *told[:3]])
    figure.suptitle(title, fontsize=11)
    return figure


def save_picture(figure: Figure, path: Path, overwrite: bool = False) -> None:
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


def quantities(one: Trajectories, fields: Float[np.ndarray, "K C X Y"]) -> dict[str, Float[np.ndarray, "K X Y"]]:
    """What to show: pressure and vorticity of a gas, vorticity of a flow, else the channels."""
    named = {name: fields[:, c] for c, name in enumerate(one.channels)}
    if {"momentum_x", "momentum_y", "density"} <= {*named}:
        named |= {f"velocity_{a}": named[f"momentum_{a}"] / named["density"] for a in "xy"}
    if {"velocity_x", "velocity_y"} <= {*named}:
        spacing = [float(c[1] - c[0]) if len(c) > 1 else 1.0 for c in one.coordinates[:2]]
        periodic = [kind == "periodic" for kind in one.layout.boundary[:2]]
        omega = vorticity(named["velocity_x"], named["velocity_y"], spacing, periodic)
        label = LABELS.get(one.layout.name, LABELS[""])
        pressure = {label["pressure"]: named["pressure"]} if "pressure" in named else {}
        return pressure | {label["vorticity"]: omega}
    return {name: named[name] for name in one.channels[:3]}


def _frames(one: Trajectories) -> Figure:
    """Frames evenly spaced in time, of each quantity; a third space axis is cut in its middle."""
    (left, right), (bottom, top) = one.layout.domain[:2]
    aspect = min(2.0, max(0.25, (top - bottom) / (right - left)))
    count = 4 if aspect > 0.7 else 3
    k = np.unique(np.linspace(0, one.layout.frames - 1, count).round().astype(np.int64))
    middle: Any = (..., *(n // 2 for n in one.layout.grid[2:]))
    fields = one.take(np.array([0]), k[None])[0][middle]
    rows = quantities(one, fields)
    mask = one.static.get("mask")
    if mask is not None:
        solid = np.broadcast_to(mask[middle], fields[0, 0].shape) < 0.5
        rows = {name: np.where(solid, np.nan, values) for name, values in rows.items()}
    x, y, t = UNITS.get(one.layout.name, UNITS[""])
    height = 0.8 * WIDTH / count * aspect + 0.25  # of a row; the rest is for bars and labels
    figure = Figure(figsize=(WIDTH, 0.85 + height * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), len(k), squeeze=False, sharex=True, sharey=True)
    for line, (name, values) in zip(grid, rows.items(), strict=True):
        for axes, frame in zip(line, values, strict=True):
            drawn = image(axes, frame, values, (left, right, bottom, top))
            axes.set_aspect("equal")
        figure.colorbar(drawn, ax=list(line), label=name, pad=0.01)
        line[0].set_ylabel(y)
    for axes, number in zip(grid[0], k, strict=True):
        axes.set_title(f"{t} = {number * one.dt:.4g}", fontsize=9)
    for axes in grid[-1]:
        axes.set_xlabel(x)
    return figure
