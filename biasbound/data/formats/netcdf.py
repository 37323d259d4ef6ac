"""NetCDF: version 4 (HDF5) and 3, with named dimensions; read lazily through xarray, written with h5py alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from biasbound._io import replacing
from biasbound.data.columns import Raw, Reader, hdf5_column
from biasbound.data.extras import extra, reading
from biasbound.data.formats.files import HDF5, Format, begins, holds, opened
from biasbound.data.labelled import Labelled, opened_dataset
from biasbound.data.options import ReadOptions
from biasbound.data.sheets import Sheet, sheet_of
from biasbound.data.trajectories import Trajectories

__all__ = ["FORMAT", "create", "open_dataset"]

CLASSIC = b"CDF"
PACKED = ("scale_factor", "add_offset", "missing_value")


def _is_netcdf(file: h5py.File) -> bool:
    scales = (part for part in file.values() if isinstance(part, h5py.Dataset))
    return "_NCProperties" in file.attrs or any(part.attrs.get("CLASS") == b"DIMENSION_SCALE" for part in scales)


def matches(path: Path) -> bool:
    return begins(path, CLASSIC) or holds(path, _is_netcdf)


def open_dataset(path: Path, engine: str, **options: Any) -> Any:
    """An `xarray.Dataset` that reads what it is asked for and keeps none of it; times stay numbers with units."""
    package = extra("xarray", path)
    with reading(path, "contents"):
        return package.open_dataset(path, engine=engine, decode_times=False, cache=False, **options)


def read(path: Path, options: ReadOptions | None = None) -> Trajectories:
    """Open lazily."""
    engine = "h5netcdf" if begins(path, HDF5) else "scipy"
    extra(engine, path)
    if engine == "h5netcdf":
        opened(path).close()  # a truncated file gets its own sentence
    quick = {"quick": partial(_quick, path)} if engine == "h5netcdf" else {}
    # Of arrays without named dimensions h5netcdf warns on the terminal, unless it is told how to name them.
    named = {"phony_dims": "access"} if engine == "h5netcdf" else {}
    made = partial(open_dataset, path, engine, **named)
    return opened_dataset(made, options or ReadOptions(), str(path), **quick)


def _quick(path: Path, column: Labelled) -> Reader:
    """Frames of plain floats in our order are read without xarray, which takes 2 ms for each stretch of them."""
    rows, order = column.axes.rows, (*column.axes.rows, column.axes.time, *column.axes.extra, *column.axes.space)
    with opened(path) as file:
        data = file.get(column.name)
        if column.dims != order or not isinstance(data, h5py.Dataset) or data.dtype.kind != "f":
            return column
        if {*PACKED} & {*data.attrs} or not np.isnan(data.attrs.get("_FillValue", np.nan)).all():
            return column
        frame = (column.channels, *data.shape[len(order) - len(column.axes.space) :])
        found = hdf5_column(path, data, frame, shared=not rows)
        return column if len(rows) > 1 and not isinstance(found, Raw) else found


def create(file: h5py.File, sheet: Sheet) -> list[h5py.Dataset]:
    """Everything but the frames; returns the datasets of the channels, contiguous, to be filled."""
    file.attrs.update({"_NCProperties": "version=2,biasbound=1", **sheet.attributes})
    arrays = sheet.arrays
    for name in sheet.dims:
        file.create_dataset(name, data=arrays[name].values).make_scale(name)
    for name, array in arrays.items():
        if name not in sheet.dims:
            _scaled(file, file.create_dataset(name, data=array.values), array.dims)
        file[name].attrs.update(array.attributes)
    channels = []
    for name in sheet.layout.channels:
        channels.append(_scaled(file, file.create_dataset(name, sheet.shape, sheet.dtype), sheet.dims))
        channels[-1].attrs.update(sheet.units(name))
    return channels


def _scaled(file: h5py.File, dataset: h5py.Dataset, dims: tuple[str, ...]) -> h5py.Dataset:
    for axis, name in enumerate(dims):
        dataset.dims[axis].attach_scale(file[name])
    return dataset


def write(trajectories: Trajectories, path: Path, *, overwrite: bool = False) -> None:
    """Save as NetCDF 4, in the stored precision; masked points become NaN."""
    sheet = sheet_of(trajectories)
    with replacing(path, overwrite) as temporary, h5py.File(temporary, "w") as file:
        channels = create(file, sheet)
        for s, k, fields in trajectories.pieces():
            for i, dataset in enumerate(channels):
                dataset[s : s + len(fields), k : k + fields.shape[1]] = sheet.filled(fields[:, :, i])


FORMAT = Format("NetCDF", matches, read, write, (".nc", ".nc4", ".netcdf"), masks=True)
