"""Reading HDF5 in The Well's layout: our own native files and The Well's."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import h5py
import numpy as np
from jaxtyping import Float64

from biasbound._io import as_kind
from biasbound.data.columns import Column, Spread, Store, hdf5_column
from biasbound.data.layout import Boundary, Layout
from biasbound.data.statistics import Statistics
from biasbound.data.trajectories import Trajectories
from biasbound.data.views import Coordinates

__all__ = ["is_well", "read", "stored_fingerprint"]

VERSION = 1  # of the group `biasbound`


def is_well(file: h5py.File) -> bool:
    return "dimensions" in file and any(f"t{i}_fields" in file for i in range(3))


def stored_fingerprint(path: Path) -> str | None:
    """The fingerprint of the configuration that made a native file; None for any other file."""
    try:
        with h5py.File(path, "r") as file:
            return str(file["biasbound"].attrs["fingerprint"])
    except (OSError, KeyError):
        return None


def read(path: Path, dt: float | None = None) -> Trajectories:
    """Open a file lazily. Channels come in our stored order, else in The Well's (t0, t1, t2)."""
    with h5py.File(path, "r") as file:
        try:
            return _read(file, path, dt)
        except KeyError as error:
            named = re.search(r"'([^']+)'", str(error))
            raise ValueError(
                f"{path}: found HDF5 like The Well's but without {named[1] if named else error}; "
                "expected dimensions (spatial_dims, time), boundary_conditions and the fields listed"
            ) from None


def _read(file: h5py.File, path: Path, dt: float | None) -> Trajectories:
    axes = _texts(file["dimensions"].attrs["spatial_dims"])
    points: Coordinates = tuple(_axis_points(file["dimensions"][axis]) for axis in axes)
    time = np.asarray(file["dimensions"]["time"], dtype=np.float64)
    size = (int(file.attrs["n_trajectories"]), time.shape[-1], tuple(map(len, points)))
    columns, names, static = _fields(file, path, axes, size)
    parameters, series = _scalars(file, size[0], size[1])
    boundary = _boundary(file, axes)
    facts: dict[str, Any] = {
        "provenance": {"read from": "The Well's layout"} | _attributes(file),
        "coordinates": points,
    }
    own = file.get("biasbound")
    if own is not None:
        if int(own.attrs["version"]) > VERSION:
            raise ValueError(f"{path} was written by a newer biasbound; update this one to read it")
        layout = _own_layout(own)
        layout = layout if dt is None else replace(layout, dt=dt)
        facts = {
            "provenance": json.loads(_text(own["provenance"][()])),
            "coordinates": tuple(own["coordinates"][axis][:] for axis in axes),
            "known": Statistics(**{n: d[:] for n, d in own["statistics"].items()}),
        }
    else:
        layout = Layout(
            name=_text(file.attrs["dataset_name"]),
            trajectories=size[0],
            frames=size[1],
            channels=tuple(itertools.chain(*names)),
            grid=size[2],
            dt=_time_step(time, path) if dt is None else dt,
            domain=tuple(map(_domain, points, boundary)),
            boundary=boundary,
            points="ends",
        )
    places = [[layout.channels.index(name) for name in group] for group in names]
    return Trajectories.open(
        layout, Store(columns, places), name=str(path), parameters=parameters, series=series, static=static, **facts
    )


def _own_layout(own: h5py.Group) -> Layout:
    where = f"{own.file.filename}: biasbound/layout"
    return as_kind(Layout, json.loads(_text(own["layout"][()])), where)


def _fields(
    file: h5py.File, path: Path, axes: Sequence[str], size: tuple[int, int, tuple[int, ...]]
) -> tuple[list[Column], list[list[str]], dict[str, np.ndarray]]:
    """Columns of the fields that vary in time, their channel names, and the fields that do not."""
    samples, length, grid = size
    columns: list[Column] = []
    names: list[list[str]] = []
    static: dict[str, np.ndarray] = {}
    for order in range(3):
        group = file.get(f"t{order}_fields")
        for name in () if group is None else _texts(group.attrs["field_names"]):
            dataset = group[name]
            sample, time = (bool(dataset.attrs[f"{k}_varying"]) for k in ("sample", "time"))
            lead = (samples,) * sample + (length,) * time
            _check_shape(dataset, path, lead, grid, (len(axes),) * order)
            ends = ["".join(p) for p in itertools.product(axes, repeat=order)]
            parts = [f"{name}_{end}" if end else name for end in ends]
            if time:
                column = hdf5_column(path, dataset, len(grid), -1 if order else None, not sample)
                whole = dataset.shape[len(lead) :][: len(grid)] == grid
                columns.append(column if whole else Spread(column, grid))
                names.append(parts)
                continue
            values = dataset[()].reshape(*dataset.shape[: sample + len(grid)], -1)
            for i, part in enumerate(parts):
                static[part] = np.broadcast_to(values[..., i], (*lead, *grid)).astype(np.float32)
    if not columns:
        raise ValueError(f"{path}: found no field that varies in time, expected at least one")
    return columns, names, static


def _check_shape(
    dataset: h5py.Dataset, path: Path, lead: tuple[int, ...], grid: tuple[int, ...], components: tuple[int, ...]
) -> None:
    """A field has ([S], [K], *N, …); an axis along which it does not vary may have size 1."""
    varying = np.asarray(dataset.attrs["dim_varying"], dtype=bool).tolist()
    allowed = itertools.product(*((n,) if v else (1, n) for n, v in zip(grid, varying, strict=True)))
    if dataset.shape not in {(*lead, *space, *components) for space in allowed}:
        raise ValueError(
            f"{path}: found {dataset.name[1:]} of shape {dataset.shape}, expected "
            f"{(*lead, *grid, *components)} as the dimensions say"
        )
    if dataset.dtype.kind != "f":
        raise ValueError(f"{path}: found {dataset.name[1:]} of {dataset.dtype}, expected floats")


def _scalars(file: h5py.File, samples: int, length: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Parameters (one value per trajectory) and series (one per frame)."""
    parameters: dict[str, np.ndarray] = {}
    series: dict[str, np.ndarray] = {}
    group = file.get("scalars")
    for name in () if group is None else _texts(group.attrs["field_names"]):
        values = np.asarray(group[name], dtype=np.float64)
        sample, time = (bool(group[name].attrs[f"{k}_varying"]) for k in ("sample", "time"))
        shape = (samples if sample else 1, length if time else 1)
        if values.size != np.prod(shape):
            raise ValueError(f"{file.filename}: scalar {name} has shape {values.shape}")
        values = values.reshape(shape)
        if time:
            series[name] = np.broadcast_to(values, (samples, length)).copy()
        else:
            parameters[name] = np.broadcast_to(values[:, 0], (samples,)).copy()
    return parameters, series


def _boundary(file: h5py.File, axes: Sequence[str]) -> tuple[Boundary, ...]:
    """The boundary of each axis by The Well's rule: open unless a mask reaches both ends of the axis.

    An axis with two different ends is called open.
    """
    ends: dict[tuple[str, int], Boundary] = {}
    known: dict[str, Boundary] = {kind: kind for kind in get_args(Boundary)}
    for group in file["boundary_conditions"].values():
        kind = _text(group.attrs["bc_type"]).lower()
        dims = _texts(group.attrs["associated_dims"])
        mask = np.asarray(group["mask"], dtype=bool)
        for i, axis in enumerate(dims):
            for end in (0, -1):
                edge = mask.take(end, axis=i)
                if kind in known and (edge.all() if kind == "wall" else edge.any()):
                    ends[axis, end] = known[kind]
    kinds = [(ends.get((axis, 0), "open"), ends.get((axis, -1), "open")) for axis in axes]
    return tuple(low if low == high else "open" for low, high in kinds)


def _axis_points(dataset: h5py.Dataset) -> Float64[np.ndarray, " n"]:
    """Grid points of one axis (of the first trajectory where they differ)."""
    points = np.asarray(dataset, dtype=np.float64)
    first: np.ndarray = points.reshape(-1, points.shape[-1])[0]
    return first


def _domain(points: Float64[np.ndarray, " n"], kind: Boundary) -> tuple[float, float]:
    spacing = float(points[-1] - points[0]) / max(1, len(points) - 1)
    return float(points[0]), float(points[-1]) + spacing * (kind == "periodic")


def _time_step(time: Float64[np.ndarray, "... K"], path: Path) -> float:
    """dt from times that are often float32: the shortest decimal that agrees with them."""
    steps = np.diff(time, axis=-1)
    if steps.size == 0:
        return 1.0
    mean = float(steps.mean())
    if np.ptp(steps) > 0.01 * abs(mean):
        raise ValueError(f"{path}: found time steps from {steps.min():g} to {steps.max():g}, expected equal ones")
    short = float(f"{mean:.5g}")
    return short if abs(short - mean) < 1e-6 * abs(mean) else mean


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _texts(value: Any) -> list[str]:
    return [_text(v) for v in np.atleast_1d(value).tolist()]


def _attributes(file: h5py.File) -> dict[str, Any]:
    """The root's attributes as JSON values."""
    found = {}
    for name, value in file.attrs.items():
        plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        found[name] = (
            _texts(plain) if isinstance(plain, list) and plain and isinstance(plain[0], str | bytes) else plain
        )
    return found
