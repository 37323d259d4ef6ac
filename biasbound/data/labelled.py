"""Datasets with named dimensions (xarray, and through it NetCDF, Zarr and GRIB) as trajectories, and back.

A variable has a time dimension, space dimensions, and perhaps dimensions that count trajectories. Each is recognised
by its name or its units. Frames are read when they are asked for, and only those.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from biasbound._io import backed
from biasbound.data.columns import Frames, Reader, Store, runs
from biasbound.data.dimensions import (
    Axes,
    around,
    axes_of,
    facts_of,
    mask_of,
    points_of,
    step_of,
    units_of,
    variables_of,
)
from biasbound.data.edges import recognise_mask, settle
from biasbound.data.extras import extra, reading
from biasbound.data.layout import Boundary, Labels, Layout
from biasbound.data.options import ReadOptions, applied
from biasbound.data.sheets import OWN, Own, own_facts, sheet_of
from biasbound.data.trajectories import Trajectories

__all__ = ["Labelled", "from_xarray", "opened_dataset", "to_xarray"]

OPEN: tuple[Boundary, ...] = ("open",)


@dataclass(eq=False)
class Labelled:
    """The frames of one variable; `opened()` gives its dataset, anew in every process."""

    opened: Callable[[], Any]
    where: str  # the file
    name: str
    dims: tuple[str, ...]  # in stored order
    axes: Axes
    sizes: dict[str, int]
    dtype: np.dtype[Any]
    channels: int = 1
    _held: tuple[int, Any] | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_held": None}

    def read(self, frames: Frames) -> Float[np.ndarray, "F c *N"]:
        if self._held is None or self._held[0] != os.getpid():
            self._held = os.getpid(), self.opened()[self.name].variable
        variable, axes, length = self._held[1], self.axes, self.sizes[self.axes.time]
        order = [d for d in (axes.time, *axes.extra, *axes.space) if d in variable.dims]
        wanted, place = np.unique(frames, return_inverse=True)
        grid = tuple(self.sizes[d] if d in variable.dims else 1 for d in axes.space)
        data = np.empty((len(wanted), self.channels, *grid), self.dtype)
        for a, b in runs(wanted, length):
            s, k = divmod(int(wanted[a]), length)
            rows = np.unravel_index(s, [self.sizes[d] for d in axes.rows]) if axes.rows else ()
            part = {d: int(i) for d, i in zip(axes.rows, rows, strict=True) if d in variable.dims}
            with reading(self.where, f"frames of {self.name}"):
                found = variable.isel({**part, axes.time: slice(k, k + b - a)}).transpose(*order).values
            data[a:b] = np.asarray(found).reshape(b - a, self.channels, *grid)
        return data[place]


@dataclass(frozen=True, eq=False)
class _Given:
    """A dataset that is open already; unlike a function, it can be pickled."""

    dataset: Any

    def __call__(self) -> Any:
        return self.dataset


def from_xarray(
    dataset: Any, options: ReadOptions | None = None, *, name: str = "dataset", **more: Any
) -> Trajectories:
    """Trajectories of an `xarray.Dataset` or `DataArray`, which is read frame by frame.

    Dimensions called trajectory, member, number, … count trajectories; time is found by its name or its kind; all
    others are space axes, unless `dims` says how many of them (the last ones) are, and the one before counts channels.
    Longitude is periodic where it closes the circle, latitude is open. `options` or keywords are those of
    `ReadOptions`.

    >>> import xarray
    >>> times = {"time": 0.1 * np.arange(10)}
    >>> from_xarray(xarray.DataArray(np.zeros((3, 10, 16)), times, ("member", "time", "x"), "u"))
    Trajectories(dataset: 3 × 10 × 1 × 16, dt 0.1, u)
    """
    told = ReadOptions.of((options.given() if options else {}) | more, name)
    whole = dataset.to_dataset(name=dataset.name or "u") if hasattr(dataset, "to_dataset") else dataset
    return recognise_mask(opened_dataset(_Given(whole), told, name))


def opened_dataset(
    opened: Callable[[], Any],
    options: ReadOptions,
    name: str,
    quick: Callable[[Labelled], Reader] = lambda column: column,
) -> Trajectories:
    """The same for a dataset that every process opens for itself; `quick` may know a quicker reader of a variable."""
    dataset = opened()
    own = own_facts(dataset.attrs, name)
    chosen, notes = variables_of(dataset, options, name)
    if own is not None and options.variable is None and {*own.layout.channels} == {*chosen}:
        chosen = list(own.layout.channels)
    axes = axes_of(dataset, chosen, options, name)
    if os.path.exists(name):
        for n in chosen:
            backed(f"{name}, {n}", dataset[n].shape, dataset[n].dtype.itemsize, Path(name))
    sizes = {d: int(dataset.sizes[d]) for d in (*axes.rows, axes.time, *axes.extra, *axes.space)}
    columns, names = _columns(opened, name, dataset, chosen, axes, sizes)
    samples, frames = int(np.prod([sizes[d] for d in axes.rows])), sizes[axes.time]
    grid = tuple(sizes[d] for d in axes.space)
    if options.channels is not None and len(options.channels) != len(names):
        raise ValueError(f"{name}: found {len(options.channels)} names for the channels {', '.join(names)}")
    places = np.split(np.arange(len(names)), np.cumsum([c.channels for c in columns])[:-1])
    reader = Store([*map(quick, columns)], [p.tolist() for p in places], grid)
    points = tuple(points_of(dataset, d) for d in axes.space)
    layout = Layout(
        str(dataset.attrs.get("title") or _stem(name)), samples, frames, options.channels or names, grid,
        step_of(dataset, axes.time, options, name), tuple((float(p.min()), float(p.max())) for p in points),
        OPEN * len(grid), points="ends",
    )  # fmt: skip
    facts = facts_of(dataset, chosen, axes, sizes)
    wanted = options.mask or ("mask" if own is None else own.mask)
    facts["mask"] = None if wanted is None else mask_of(facts, wanted, len(grid))
    if options.mask is not None and facts["mask"] is None:
        have = ", ".join(facts["static"]) or "none"
        raise ValueError(
            f"{name}: found no field {wanted!r} of zeros and ones for the mask; fields without time: {have}"
        )
    sources = [column.name for column in columns for _ in range(column.channels)]
    units = units_of(dataset, [*zip(sources, layout.channels, strict=True)], axes, options)
    facts |= {"labels": Labels(axes.space, units), "coordinates": points, "notes": notes}
    found = Trajectories.open(layout, reader, name=name, provenance=_provenance(dataset), **facts)
    return _finished(found, dataset, own, options)


def _stem(name: str) -> str:
    return os.path.basename(name.rstrip("/")).partition(".")[0] or name


def _columns(
    opened: Callable[[], Any], where: str, dataset: Any, chosen: list[str], axes: Axes, sizes: dict[str, int]
) -> tuple[list[Labelled], tuple[str, ...]]:
    """A reader per variable, and the names of all channels."""
    columns: list[Labelled] = []
    names: list[str] = []
    for n in chosen:
        variable = dataset[n]
        extra = [d for d in axes.extra if d in variable.dims]
        ends = [f"_{v:g}" for v in points_of(dataset, extra[0])] if extra else [""]
        floats = variable.dtype.kind == "f"
        kind = np.dtype(variable.dtype if floats else "f8" if variable.dtype.itemsize > 2 else "f4")
        dims = tuple(map(str, variable.dims))
        columns.append(Labelled(opened, where, n, dims, axes, sizes, kind.newbyteorder("="), len(ends)))
        names += [n + end for end in ends]
    return columns, tuple(names)


def _provenance(dataset: Any) -> dict[str, Any]:
    plain = {str(k): v.item() if isinstance(v, np.generic) else v for k, v in dataset.attrs.items() if k != OWN}
    return {"read from": "labelled data"} | {k: v for k, v in plain.items() if isinstance(v, str | int | float)}


def _finished(t: Trajectories, dataset: Any, own: Own | None, options: ReadOptions) -> Trajectories:
    """Boundaries and domain: what we wrote ourselves, what is said, or what the coordinates and values tell."""
    rank = len(t.layout.grid)
    stated, ends = list(options.edges(rank, t.name)), options.ends(rank, t.name)
    if own is not None and _still(own.layout, t, options):
        layout = replace(own.layout, **{n: getattr(t.layout, n) for n in ("trajectories", "frames", "channels")})
        found = replace(t, layout=layout, provenance=own.provenance, notes=own.notes)
        return applied(found, ReadOptions(domain=options.domain, boundary=options.boundary, dt=options.dt))
    for i, d in enumerate(t.labels.axes):
        stated[i] = stated[i] or around(dataset, d, t.coordinates[i])
    return settle(t, stated, ends or (None,) * rank)


def _still(layout: Layout, t: Trajectories, options: ReadOptions) -> bool:
    """Whether times and points are those of our layout: someone may have changed the dataset since it was written."""
    if layout.grid != t.layout.grid:
        return False
    same_time = options.dt is not None or t.layout.frames == 1 or np.isclose(layout.dt, t.dt, rtol=1e-5)
    reach = [float(np.ptp(points)) for points in t.coordinates]
    meant = [h * (n - 1) for h, n in zip(layout.spacing, layout.grid, strict=True)]
    inside = [
        low - 1e-6 * (high - low) <= p.min() for (low, high), p in zip(layout.domain, t.coordinates, strict=True)
    ]
    return bool(same_time and np.allclose(reach, meant, rtol=1e-5) and all(inside))


def to_xarray(t: Trajectories) -> Any:
    """Everything in memory: channels (trajectory, time, *axes), parameters, series, static fields, mask, units."""
    package, sheet, fields = extra("xarray", t.name), sheet_of(t), t.read(0, len(t))
    held: dict[str, Any] = {
        name: (sheet.dims, sheet.filled(fields[:, :, i]), sheet.units(name)) for i, name in enumerate(t.channels)
    }
    parts = {name: (array.dims, array.values, array.attributes) for name, array in sheet.arrays.items()}
    coordinates = {name: part for name, part in parts.items() if name in sheet.dims}
    held |= {name: part for name, part in parts.items() if name not in sheet.dims}
    return package.Dataset(held, coordinates, sheet.attributes)
