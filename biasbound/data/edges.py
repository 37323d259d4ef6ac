"""What values tell beyond their numbers: points that are missing everywhere, and ends of an axis that are one point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from biasbound.data.layout import Boundary
from biasbound.data.trajectories import Trajectories

__all__ = ["recognise_mask", "settle"]

Ends = Sequence[tuple[float, float] | None]


def recognise_mask(t: Trajectories) -> Trajectories:
    """Take values that are NaN at the same points in every frame and channel as a mask, with a note.

    The first frame decides whether there may be one. It is compared with frames spread over the data, all of them
    where they are few. Any other NaN stays the error that it is.
    """
    if t.mask is not None or t.known is not None:  # statistics in the file: no NaN when it was written
        return t
    lost = np.isnan(t.read(0, 1, slice(1))[0, 0]).all(axis=0)
    if not lost.any() or lost.all() or (np.isnan(t.samples()) != lost).any():
        return t
    note = (
        f"{Path(t.name).name}: {int(lost.sum())} of {lost.size} points are missing in every frame; they were masked."
    )
    return replace(t, mask=~lost, notes=(*t.notes, note), known=None)


def settle(t: Trajectories, stated: Sequence[Boundary | None], domain: Ends) -> Trajectories:
    """Give every axis its boundary and domain; `t` has the points of the file, from end to end.

    A periodic axis on which the last point repeats the first loses it. Where nothing is stated, an axis is periodic if
    its two ends agree to the last bit in every frame and are not one fixed value, which a boundary condition would
    also set; else it is open.
    """
    for axis, (kind, ends) in enumerate(zip(stated, domain, strict=True)):
        name, points = t.labels.named(len(t.layout.grid))[axis], t.coordinates[axis]
        doubled = kind in (None, "periodic") and len(points) > 3 and _repeats(t, axis, exactly=kind is None)
        low, high = float(points.min()), float(points.max())
        if doubled:
            what = f"the end point of the periodic axis {name} repeats the first one"
            note = f"{Path(t.name).name}: {what}; it was dropped."
            t = replace(_without_last(t, axis), notes=(*t.notes, note))
        elif kind == "periodic":
            high += (high - low) / max(1, len(points) - 1)
        elif kind is None:
            note = f"{Path(t.name).name}: nothing says that the axis {name} is periodic; it was taken as open."
            t = replace(t, notes=(*t.notes, note))
        found: Boundary = "periodic" if doubled else kind or "open"
        t = _with_edge(t, axis, found, ends or (low, high))
    return t


def _with_edge(t: Trajectories, axis: int, kind: Boundary, ends: tuple[float, float]) -> Trajectories:
    boundary, domain = list(t.layout.boundary), list(t.layout.domain)
    boundary[axis], domain[axis] = kind, ends
    layout = replace(t.layout, boundary=tuple(boundary), domain=tuple(domain))
    points = list(t.coordinates)
    low, high = float(points[axis].min()), float(points[axis].max())
    scale = (high - low) if kind != "periodic" else (high - low) * len(points[axis]) / max(1, len(points[axis]) - 1)
    if not np.allclose(ends, (low, low + scale), rtol=1e-6, atol=1e-6 * abs(scale)):  # another domain was given
        points[axis] = layout.coordinates()[axis]
    return replace(t, layout=layout, coordinates=tuple(points))


def _repeats(t: Trajectories, axis: int, exactly: bool) -> bool:
    """Whether the last point along an axis repeats the first one in every frame looked at."""

    def agree(fields: Float[np.ndarray, "F C *N"]) -> bool:
        first, last = (fields.take(place, axis=2 + axis) for place in (0, -1))
        if exactly:
            return bool(np.array_equal(first, last))
        scale = max(float(np.nanstd(fields)), np.finfo(np.float64).tiny)
        return bool(np.allclose(first, last, rtol=0, atol=1e-6 * scale, equal_nan=True))

    if not agree(t.read(0, 1, slice(1))[0]):  # most often one frame is enough
        return False
    fields = t.samples()
    first = fields.take(0, axis=2 + axis)
    return agree(fields) and (not exactly or bool((first != first[:1]).any()))


def _without_last(t: Trajectories, axis: int) -> Trajectories:
    """Without the last point along an axis."""
    cut: list[slice] = [slice(None)] * len(t.layout.grid)
    cut[axis] = slice(None, -1)
    part: Any = (..., *cut)
    grid = tuple(n - (i == axis) for i, n in enumerate(t.layout.grid))
    return replace(
        t,
        layout=replace(t.layout, grid=grid),
        view=replace(t.view, points=tuple(p[c] for p, c in zip(t.view.points, cut, strict=True))),
        coordinates=tuple(p[c] for p, c in zip(t.coordinates, cut, strict=True)),
        static={name: values[part] for name, values in t.static.items()},
        mask=None if t.mask is None else t.mask[part],
        known=None,
    )
