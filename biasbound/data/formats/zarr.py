"""Zarr stores (folders) with named dimensions, chunked along time; read lazily through xarray, written as Zarr 3."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from biasbound._io import backed, replacing
from biasbound.data.extras import extra, reading
from biasbound.data.formats.files import Format
from biasbound.data.formats.netcdf import open_dataset
from biasbound.data.labelled import opened_dataset
from biasbound.data.options import ReadOptions
from biasbound.data.sheets import Sheet, sheet_of
from biasbound.data.trajectories import Trajectories

__all__ = ["FORMAT", "create", "frames_per_chunk"]

CHUNK = 1 << 19  # bytes: a random pair decodes one chunk, or two


def matches(path: Path) -> bool:
    return any((path / name).is_file() for name in ("zarr.json", ".zgroup"))


def _opened(path: Path) -> Any:
    package = extra("zarr", path)
    with reading(path, "contents"):
        group = package.open_group(path, mode="r")
        # One by one: of several that are damaged, opened at once, zarr prints the others' tracebacks.
        for name in sorted(
            {found.parent.name for sign in ("zarr.json", ".zarray") for found in path.glob(f"*/{sign}")}
        ):
            if isinstance(array := group[name], package.Array):  # xarray reads coordinates at once
                backed(f"{path}, {name}", array.shape, array.dtype.itemsize, path)
    found = open_dataset(path, "zarr", consolidated=False)
    return found[sorted(found.data_vars)]  # a folder lists them in any order


def read(path: Path, options: ReadOptions | None = None) -> Trajectories:
    """Open lazily; a frame costs the chunks that hold it."""
    extra("zarr", path)
    return opened_dataset(partial(_opened, path), options or ReadOptions(), str(path))


def frames_per_chunk(sheet: Sheet) -> int:
    """How many frames of one channel of one trajectory stand in one chunk."""
    frame = int(np.prod(sheet.layout.grid)) * sheet.dtype.itemsize
    return max(1, min(CHUNK // frame, sheet.layout.frames))


def create(path: Path, sheet: Sheet, frames: int) -> list[Any]:
    """Everything but the frames, which stand so many in a chunk; returns the arrays of the channels."""
    package = extra("zarr", path)
    group = package.create_group(path, zarr_format=3, attributes=sheet.attributes)
    for name, array in sheet.arrays.items():
        group.create_array(name, data=array.values, dimension_names=array.dims, attributes=array.attributes)
    whole = frames * int(np.prod(sheet.layout.grid)) * sheet.dtype.itemsize
    rows = max(1, min(CHUNK // whole, sheet.rows[-1][1]))  # short trajectories share a chunk: fewer files
    chunks = (*[1] * (len(sheet.rows) - 1), rows, frames, *sheet.layout.grid)
    return [
        group.create_array(
            name,
            shape=sheet.shape,
            chunks=chunks,
            dtype=sheet.dtype,
            fill_value=np.nan,
            dimension_names=sheet.dims,
            attributes=sheet.units(name),
        )
        for name in sheet.layout.channels
    ]


def write(trajectories: Trajectories, path: Path, *, overwrite: bool = False) -> None:
    """Save as Zarr 3, in the stored precision; masked points become NaN."""
    sheet = sheet_of(trajectories)
    with replacing(path, overwrite) as temporary:
        channels = create(temporary, sheet, frames_per_chunk(sheet))
        for s, k, fields in trajectories.pieces():
            for i, array in enumerate(channels):
                array[s : s + len(fields), k : k + fields.shape[1]] = sheet.filled(fields[:, :, i])


FORMAT = Format("a Zarr store", matches, read, write, (".zarr",), masks=True)
