"""Reading HDF5 in The Well's layout, our own native files and The Well's; a folder of files is one set."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import h5py
import numpy as np
from jaxtyping import Float64

from biasbound._io import from_json
from biasbound.data.columns import Reader, Store, hdf5_column
from biasbound.data.formats.files import hdf5_files, holds, opened, split_of
from biasbound.data.join import concatenate
from biasbound.data.layout import Boundary, Labels, Layout
from biasbound.data.statistics import Statistics
from biasbound.data.times import time_step
from biasbound.data.trajectories import Trajectories

VERSION = 1  # of the group `biasbound`


def matches(path: Path) -> bool:
    """A file, or a folder of files that belong together."""
    files = hdf5_files(path) if path.is_dir() else [path]
    return len({split_of(file) for file in files}) == 1 and all(holds(file, _is_well) for file in files)


def _is_well(file: h5py.File) -> bool:
    return "dimensions" in file and any(f"t{i}_fields" in file for i in range(3))


def stored_fingerprint(path: Path) -> str | None:
    """The fingerprint of the configuration that made a native file; None for any other file."""
    try:
        with opened(path) as file:
            return str(file["biasbound"].attrs["fingerprint"])
    except (OSError, KeyError, ValueError):
        return None


def read(path: Path, dt: float | None = None) -> Trajectories:
    """Open a file, or the joined files of a folder; channels are in our stored order, else in The Well's."""
    if path.is_dir():
        return concatenate([read(file, dt) for file in hdf5_files(path)], str(path))
    with opened(path) as file:
        try:
            return _read(file, path, dt)
        except KeyError as error:
            named = re.search(r"'([^']+)'", str(error))
            found = f"HDF5 like The Well's but without {named[1] if named else error}"
            expected = "dimensions (spatial_dims, time), boundary_conditions and the fields listed"
            raise ValueError(f"{path}: found {found}; expected {expected}") from None


def _read(file: h5py.File, path: Path, dt: float | None) -> Trajectories:
    dimensions, own = file["dimensions"], file.get("biasbound")
    axes = _texts(dimensions.attrs["spatial_dims"])
    stored = [np.asarray(dimensions[axis], dtype=np.float64) for axis in axes]
    points = tuple(p.reshape(-1, p.shape[-1])[0] for p in stored)  # of the first trajectory where they differ
    time = np.asarray(dimensions["time"], dtype=np.float64)
    samples, frames, grid = int(file.attrs["n_trajectories"]), time.shape[-1], tuple(map(len, points))
    columns, static = _fields(file, axes, (samples, frames), grid)
    parameters, series = _scalars(file, samples, frames)
    boundary = _boundary(file, axes)
    if own is None:
        name, channels = _texts(file.attrs["dataset_name"])[0], tuple(itertools.chain(*columns))
        step, domain = time_step(time, path) if dt is None else dt, tuple(map(_domain, points, boundary))
        layout = Layout(name, samples, frames, channels, grid, step, domain, boundary, points="ends")
        told = {name: _plain(value) for name, value in file.attrs.items()}
        facts: dict[str, Any] = {"provenance": {"read from": "The Well's layout"} | told, "coordinates": points}
    else:
        if int(own.attrs["version"]) > VERSION:
            raise ValueError(f"{path} was written by a newer biasbound; update this one to read it")
        layout = _told(own, "layout", Layout, path)
        _require_same(layout, (samples, frames, *grid), columns, time, path)
        layout = layout if dt is None else replace(layout, dt=dt)
        facts = {
            "provenance": _told(own, "provenance", dict[str, Any], path),
            "coordinates": tuple(own["coordinates"][axis][:] for axis in axes),
            "known": _statistics(own, layout),
            "mask": own["mask"][:].astype(bool) if "mask" in own else None,
            "notes": _told(own, "notes", tuple[str, ...], path) if "notes" in own else (),
            "labels": _told(own, "labels", Labels, path) if "labels" in own else Labels(),
        }
    places = [[layout.channels.index(name) for name in names] for names in columns]
    facts |= {"parameters": parameters, "series": series, "static": static}
    return Trajectories.open(layout, Store([*columns.values()], places, grid), name=str(path), **facts)


def _told(own: h5py.Group, name: str, kind: Any, path: Path) -> Any:
    """A JSON text of our own group, checked."""
    return from_json(bytes(own[name][()]), kind, f"{path}: biasbound/{name}")


def _require_same(
    layout: Layout, found: tuple[int, ...], columns: Iterable[tuple[str, ...]], time: np.ndarray, path: Path
) -> None:
    """Refuse a layout that is not that of the arrays beside it: frames would be cut in the wrong places."""
    told = (layout.trajectories, layout.frames, *layout.grid)
    if told != found:
        raise ValueError(
            f"{path}: biasbound/layout says {told} (trajectories, frames, grid), but its arrays have {found}"
        )
    names = sorted(itertools.chain(*columns))
    if sorted(layout.channels) != names:
        raise ValueError(f"{path}: biasbound/layout says the channels {layout.channels}, but its fields are {names}")
    steps = np.diff(time.reshape(-1, time.shape[-1])[0])
    if len(steps) and not np.allclose(steps, layout.dt, rtol=1e-3, atol=1e-6 * float(np.abs(time).max())):
        raise ValueError(
            f"{path}: biasbound/layout says a time step of {layout.dt}, but its times are {steps[0]:.6g} apart"
        )


def _statistics(own: h5py.Group, layout: Layout) -> Statistics | None:
    """What the file says of mean and spread; None, so that they are computed, where that cannot be."""
    if "statistics" not in own:
        return None
    names = ("mean", "std", "increment_mean", "increment_std")
    held = {name: np.asarray(own["statistics"][name], dtype=np.float64) for name in names}
    finite = names if layout.frames > 1 else names[:2]
    sound = all(held[name].shape == (len(layout.channels),) for name in names)
    sound = sound and all(np.isfinite(held[name]).all() for name in finite)
    sound = sound and all((held[name] > 0).all() for name in finite if name.endswith("std"))
    return Statistics(**held) if sound else None


def _varies(dataset: h5py.Dataset) -> tuple[bool, bool]:
    """Whether it differs between trajectories, and between frames."""
    return bool(dataset.attrs["sample_varying"]), bool(dataset.attrs["time_varying"])


def _listed(file: h5py.File, group: str) -> list[h5py.Dataset]:
    """The datasets that a group, if it is there, names as its fields."""
    return [file[group][name] for name in _texts(file[group].attrs["field_names"])] if group in file else []


def _fields(
    file: h5py.File, axes: Sequence[str], size: tuple[int, int], grid: tuple[int, ...]
) -> tuple[dict[tuple[str, ...], Reader], dict[str, np.ndarray]]:
    """Readers of the fields that vary in time by their channel names, and the fields that do not."""
    columns: dict[tuple[str, ...], Reader] = {}
    static: dict[str, np.ndarray] = {}
    for order in range(3):
        ends = ["_" * (order > 0) + "".join(end) for end in itertools.product(axes, repeat=order)]
        for dataset in _listed(file, f"t{order}_fields"):
            sample, time = varies = _varies(dataset)
            lead = tuple(itertools.compress(size, varies))
            space = _space(dataset, lead, grid, (len(axes),) * order)
            parts = tuple(dataset.name.rpartition("/")[2] + end for end in ends)
            if time:
                columns[parts] = hdf5_column(Path(file.filename), dataset, (*space, len(parts)), True, not sample)
                continue
            values = dataset[()].reshape(*lead, *space, len(parts))
            for i, part in enumerate(parts):
                static[part] = np.broadcast_to(values[..., i], (*lead, *grid)).astype(np.float32)
    if not columns:
        raise ValueError(f"{file.filename}: found no field that varies in time, expected at least one")
    return columns, static


def _space(
    dataset: h5py.Dataset, lead: tuple[int, ...], grid: tuple[int, ...], components: tuple[int, ...]
) -> tuple[int, ...]:
    """Check that a field has ([S], [K], *N, …); returns its *N, which may be 1 along an axis where it is constant."""
    varying = np.asarray(dataset.attrs["dim_varying"], dtype=bool).tolist()
    expected, found = (*lead, *grid, *components), dataset.shape[len(lead) :][: len(grid)]
    space = tuple(m if m == 1 and not v else n for m, n, v in zip(found, grid, varying, strict=False))
    where = f"{dataset.file.filename}: found {dataset.name[1:]}"
    if dataset.shape != (*lead, *space, *components) or len(space) != len(grid):
        raise ValueError(f"{where} of shape {dataset.shape}, expected {expected} as the dimensions say")
    if dataset.dtype.kind != "f":
        raise ValueError(f"{where} of {dataset.dtype}, expected floats")
    return space


def _scalars(file: h5py.File, samples: int, length: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Parameters (one value per trajectory) and series (one per frame)."""
    parameters: dict[str, np.ndarray] = {}
    series: dict[str, np.ndarray] = {}
    for dataset in _listed(file, "scalars"):
        name, values = dataset.name.rpartition("/")[2], np.asarray(dataset, dtype=np.float64)
        sample, time = _varies(dataset)
        shape = (samples if sample else 1, length if time else 1)
        if values.size != np.prod(shape):
            raise ValueError(f"{file.filename}: scalar {name} has shape {values.shape}")
        whole = np.broadcast_to(values.reshape(shape), (samples, shape[1])).copy()
        if time:
            series[name] = whole
        else:
            parameters[name] = whole[:, 0]
    return parameters, series


def _boundary(file: h5py.File, axes: Sequence[str]) -> tuple[Boundary, ...]:
    """The boundary of each axis by The Well's rule: open unless a mask of one kind reaches both of its ends."""
    kinds: dict[str, list[Any]] = {axis: ["open", "open"] for axis in axes}  # of its two ends
    for group in file["boundary_conditions"].values():
        kind, mask = _texts(group.attrs["bc_type"])[0].lower(), np.asarray(group["mask"], dtype=bool)
        for i, axis in enumerate(_texts(group.attrs["associated_dims"])):
            for end in (0, -1):
                edge = mask.take(end, axis=i)
                if kind in get_args(Boundary) and (edge.all() if kind == "wall" else edge.any()):
                    kinds[axis][end] = kind
    return tuple(low if low == high else "open" for low, high in kinds.values())


def _domain(points: Float64[np.ndarray, " n"], kind: Boundary) -> tuple[float, float]:
    spacing = float(points[-1] - points[0]) / max(1, len(points) - 1)
    return float(points[0]), float(points[-1]) + spacing * (kind == "periodic")


def _plain(value: Any) -> Any:
    """An attribute as a JSON value."""
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value.decode() if isinstance(value, bytes) else value


def _texts(value: Any) -> list[str]:
    """One text or several, as an attribute holds them."""
    return [str(_plain(v)) for v in np.atleast_1d(value).tolist()]
