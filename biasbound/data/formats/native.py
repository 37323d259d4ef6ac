"""The native file: HDF5 in The Well's layout, so that The Well's own loader reads it.

    dimensions/time, x, y …     boundary_conditions/…     scalars/…  (parameters and series)
    t0_fields/density …         scalar channels (S, K, *N), masks (*N)
    t1_fields/velocity …        vector channels velocity_x, velocity_y → (S, K, *N, D)
    biasbound/                  what the layout has no place for; other readers ignore it:
                                channel order, exact dt and domain, statistics, provenance

Datasets are contiguous and uncompressed: random frames are one positioned read each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from jaxtyping import Float

from biasbound._io import replacing
from biasbound.data.columns import Nothing
from biasbound.data.formats import well
from biasbound.data.formats.files import Format
from biasbound.data.layout import Labels, Layout
from biasbound.data.statistics import Moments, require_finite
from biasbound.data.trajectories import Trajectories

Piece = tuple[int, int, np.ndarray]  # first trajectory, first frame, fields (n, k, C, *N)

Places = list[tuple[Any, list[int]]]  # datasets with the numbers of the channels that they hold


def write(trajectories: Trajectories, path: Path, *, overwrite: bool = False) -> None:
    """Save trajectories as a view shows them, in their own precision."""
    kinds = ("parameters", "series", "static", "provenance", "coordinates", "mask", "labels", "notes")
    facts: dict[str, Any] = {kind: getattr(trajectories, kind) for kind in kinds} | {"dtype": trajectories.dtype.name}
    write_pieces(path, trajectories.layout, trajectories.pieces(), overwrite=overwrite, **facts)


def write_pieces(
    path: Path,
    layout: Layout,
    pieces: Iterable[Piece],
    *,
    dtype: str = "float32",
    origin: str | None = None,
    overwrite: bool = False,
    **facts: Any,
) -> None:
    """Write a file from pieces in order of trajectory, then frame; memory holds one at a time.

    `facts` are those of `Trajectories`: parameters, series, static, provenance, mask … The bytes depend on the
    arguments alone. The file appears when it is complete. `origin` is the fingerprint of the configuration that made
    it.
    """
    empty = Trajectories.open(layout, Nothing(len(layout.channels)), name=str(path), **facts)
    moments = Moments(len(layout.channels), empty.mask)
    with replacing(path, overwrite) as temporary, h5py.File(temporary, "w") as file:
        places = begin(file, empty, dtype, origin)
        for s, k, fields in pieces:
            with np.errstate(over="ignore"):
                fields = fields.astype(dtype, copy=False)
            where = range(s, s + fields.shape[0]), range(k, k + fields.shape[1])
            require_finite(fields, layout.channels, where, f"{path} as {dtype}")
            moments.add(fields, s, k)
            fill(places, s, k, fields)
        own = file["biasbound"].create_group("statistics")
        for name, value in vars(moments.statistics()).items():
            if not name.startswith("condition"):
                own[name] = value


def begin(file: h5py.File, empty: Trajectories, dtype: str, origin: str | None = None) -> Places:
    """Everything but the frames; returns the datasets that `fill` fills."""
    layout, axes, series = empty.layout, Labels().named(len(empty.layout.grid)), empty.series
    for names in [*layout.channels, *empty.static], [*empty.parameters, *series]:
        if len(set(names)) < len(names):
            raise ValueError(f"{empty.name}: one name is used twice among {names}")
    _write_frame(file, empty, axes)
    if origin is not None:
        file["biasbound"].attrs["fingerprint"] = origin
    scalars = file.create_group("scalars")
    scalars.attrs["field_names"] = _texts(*empty.parameters, *series)
    for name, value in {**empty.parameters, **series}.items():
        scalars.create_dataset(name, data=value).attrs.update(time_varying=name in series, sample_varying=True)
    return _write_fields(file, layout, axes, empty.static, dtype)


def fill(places: Places, s: int, k: int, fields: Float[np.ndarray, "n k C *N"]) -> None:
    """Write frames from k of the trajectories from s."""
    part = np.s_[s : s + fields.shape[0], k : k + fields.shape[1]]
    for dataset, channels in places:
        vector = np.moveaxis(fields[:, :, channels], 2, -1)
        dataset[part] = vector if dataset.ndim == vector.ndim else vector[..., 0]


def _write_frame(file: h5py.File, empty: Trajectories, axes: Sequence[str]) -> None:
    """Everything but the fields: attributes, dimensions, boundaries, our own facts."""
    layout, coordinates = empty.layout, empty.coordinates
    fixed = {"sample_varying": False, "time_varying": False}
    file.attrs.update(dataset_name=layout.name, grid_type="cartesian", n_spatial_dims=len(layout.grid))
    file.attrs.update(n_trajectories=layout.trajectories, simulation_parameters=_texts())
    dimensions = file.create_group("dimensions")
    dimensions.attrs["spatial_dims"] = [*axes]
    time = np.arange(layout.frames) * layout.dt
    for name, points in zip(("time", *axes), (time, *coordinates), strict=True):
        dimensions.create_dataset(name, data=points.astype(np.float32)).attrs.update(fixed)
    boundaries = file.create_group("boundary_conditions")
    for axis, kind, n in zip(axes, layout.boundary, layout.grid, strict=True):
        group = boundaries.create_group(f"{axis}_{kind}")
        group.attrs.update(associated_dims=[axis], associated_fields=_texts(), bc_type=kind.upper(), **fixed)
        group["mask"] = np.isin(np.arange(n), [0, n - 1])
    own = file.create_group("biasbound")
    own.attrs["version"] = well.VERSION
    own["layout"] = np.bytes_(json.dumps(asdict(layout)).encode())
    own["provenance"] = np.bytes_(json.dumps(empty.provenance, sort_keys=True).encode())
    for axis, points in zip(axes, coordinates, strict=True):
        own[f"coordinates/{axis}"] = points
    # What is known about the values, where there is something to say: generated files have none of it.
    if empty.mask is not None:
        own["mask"] = empty.mask
    if empty.labels != Labels():
        own["labels"] = np.bytes_(json.dumps(asdict(empty.labels)).encode())
    if empty.notes:
        own["notes"] = np.bytes_(json.dumps(empty.notes).encode())


def _texts(*texts: str) -> np.ndarray:
    """A list of names as HDF5 holds it, also where it is empty."""
    return np.array(texts, dtype=h5py.string_dtype())


def _write_fields(
    file: h5py.File, layout: Layout, axes: Sequence[str], static: Mapping[str, np.ndarray], dtype: str
) -> Places:
    """Create the datasets of the fields; returns each with the numbers of the channels that it holds."""
    lead, everywhere = (layout.trajectories, layout.frames, *layout.grid), [True] * len(axes)
    scalars, vectors, tensors = (file.create_group(f"t{i}_fields") for i in range(3))
    stems = _stems(layout.channels, axes)
    places = []
    for stem, channels in stems.items():
        group, shape = (scalars, lead) if stem in layout.channels else (vectors, (*lead, len(axes)))
        dataset = group.create_dataset(stem, shape, dtype)
        dataset.attrs.update(dim_varying=everywhere, time_varying=True, sample_varying=True)
        places.append((dataset, channels))
    for name, values in static.items():
        sample = values.ndim > len(axes)
        dataset = scalars.create_dataset(name, data=values)
        dataset.attrs.update(dim_varying=everywhere, time_varying=False, sample_varying=sample)
    scalars.attrs["field_names"] = _texts(*(stem for stem in stems if stem in layout.channels), *static)
    vectors.attrs["field_names"] = _texts(*(stem for stem in stems if stem not in layout.channels))
    tensors.attrs["field_names"] = _texts()
    return places


def _stems(channels: Sequence[str], axes: Sequence[str]) -> dict[str, list[int]]:
    """Dataset name → channel numbers: one for a scalar, D for a vector named by a stem and every axis."""
    stems: dict[str, list[int]] = {}
    for i, channel in enumerate(channels):
        stem, _, end = channel.rpartition("_")
        parts = [f"{stem}_{axis}" for axis in axes]
        if stem and end in axes and stem not in channels and {*parts} <= {*channels}:
            stems[stem] = [channels.index(part) for part in parts]
        else:
            stems[channel] = [i]
    return stems


FORMAT = Format("HDF5 in The Well's layout", well.matches, well.read, write, (".h5", ".hdf5"), masks=True)
