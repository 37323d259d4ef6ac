"""Frames on disk or in memory, read by number: frame k of trajectory s is number s·K + k.

A batch costs what it reads: uncompressed contiguous data is fetched with positioned reads. These leave no pages of the
file in the process (a memory map would), share no cursor between threads or forks, and need no HDF5 call.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int64

Frames = Int64[np.ndarray, " F"]
READ_LIMIT = 1 << 30  # bytes; some kernels refuse single reads of 2 GiB


@runtime_checkable
class Reader(Protocol):
    """Some or all channels of every frame."""

    channels: int
    dtype: np.dtype[Any]

    def read(self, frames: Frames) -> Float[np.ndarray, "F c *N"]:
        """The frames of these numbers, in this order."""
        ...


def runs(frames: Frames, length: int | None = None) -> Iterable[tuple[int, int]]:
    """[a, b) of each stretch of consecutive frame numbers, which one read can fetch; with K, none leaves a trajectory."""
    apart = np.diff(frames) != 1
    if length is not None:
        apart |= frames[1:] % length == 0
    edges = [0, *(np.flatnonzero(apart) + 1).tolist(), len(frames)]
    return pairwise(edges) if len(frames) else ()


class Array:
    """Frames of an array (S, K, C, *N) in memory."""

    def __init__(self, fields: Float[np.ndarray, "S K C *N"]) -> None:
        self._fields, self.channels, self.dtype = fields, fields.shape[2], fields.dtype

    def read(self, frames: Frames) -> Float[np.ndarray, "F c *N"]:
        s, k = np.divmod(frames, self._fields.shape[1])
        return self._fields[s, k]


class _Stored:
    """Frames in a file, each of the shape `frame`: (c, *N), or (*N, c) where channels come `last`.

    `shared` is K where the same K frames serve every trajectory.
    """

    def __init__(self, dtype: np.dtype[Any], frame: tuple[int, ...], last: bool, shared: int | None) -> None:
        self._stored, self._frame, self._last, self._shared = dtype, frame, last, shared
        self.channels, self.dtype = frame[-1 if last else 0], dtype.newbyteorder("=")

    def read(self, frames: Frames) -> Float[np.ndarray, "F c *N"]:
        data = self._fetch(frames % self._shared if self._shared else frames)
        return np.moveaxis(data, -1 if self._last else 1, 1).astype(self.dtype, copy=False)

    def _fetch(self, frames: Frames) -> Float[np.ndarray, "F ..."]:
        raise NotImplementedError


class Raw(_Stored):
    """Uncompressed frames one after the other from `offset` in a file, which stays open; copies open it again."""

    def __init__(
        self,
        path: Path,
        offset: int,
        dtype: np.dtype[Any],
        frame: tuple[int, ...],
        last: bool = False,
        shared: int | None = None,
    ) -> None:
        super().__init__(dtype, frame, last, shared)
        self._path, self._offset, self._descriptor = path, offset, os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._descriptor)

    def __reduce__(self) -> tuple[type[Raw], tuple[Any, ...]]:
        return Raw, (self._path, self._offset, self._stored, self._frame, self._last, self._shared)

    def _fetch(self, frames: Frames) -> Float[np.ndarray, "F ..."]:
        data = np.empty((len(frames), *self._frame), self._stored)
        step = data[:1].nbytes
        rows: memoryview = data.reshape(-1).view(np.uint8).data
        for a, b in runs(frames):
            self._fill(rows[a * step : b * step], self._offset + int(frames[a]) * step)
        return data

    def _fill(self, buffer: memoryview, offset: int) -> None:
        done = 0
        while done < len(buffer):
            got = os.preadv(self._descriptor, [buffer[done : done + READ_LIMIT]], offset + done)
            if got == 0:
                raise ValueError(f"{self._path} ends before its last frame; copy it again")
            done += got


class Hdf5(_Stored):
    """Frames of a chunked or compressed HDF5 dataset (S, K, …), or (K, …) where `shared`.

    Reads go in ascending order, so that a chunk is decompressed once while it is in HDF5's cache.
    """

    def __init__(self, path: Path, dataset: Any, frame: tuple[int, ...], last: bool, shared: int | None) -> None:
        super().__init__(dataset.dtype, frame, last, shared)
        self._path, self._name, self._length = path, dataset.name, shared or dataset.shape[1]
        self._open: tuple[int, Any] | None = None  # (process, dataset): HDF5 does not survive a fork

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": None}

    def _fetch(self, frames: Frames) -> Float[np.ndarray, "F ..."]:
        import h5py

        if self._open is None or self._open[0] != os.getpid():
            self._open = os.getpid(), h5py.File(self._path, "r", rdcc_nbytes=1 << 26)[self._name]
        dataset = self._open[1]
        wanted, place = np.unique(frames, return_inverse=True)
        data = np.empty((len(wanted), *self._frame), self._stored)
        for a, b in runs(wanted, self._length):
            s, k = divmod(int(wanted[a]), self._length)
            part = slice(k, k + b - a)
            data[a:b] = (dataset[part] if self._shared else dataset[s, part]).reshape(b - a, *self._frame)
        return data[place]


def hdf5_column(
    path: Path, dataset: Any, frame: tuple[int, ...], last: bool = False, shared: bool = False
) -> Raw | Hdf5:
    """The frames of an HDF5 dataset ([S,] K, …): raw reads where its layout allows them."""
    length = int(dataset.shape[0]) if shared else None
    offset = dataset.id.get_offset()
    plain = dataset.chunks is None and not dataset.is_virtual and dataset.external is None
    if plain and offset is not None:
        return Raw(path, offset, dataset.dtype, frame, last, length)
    return Hdf5(path, dataset, frame, last, length)


class Store:
    """Columns put together on one grid: `places[i]` are the channel numbers that column i fills.

    A column that does not vary along an axis has size 1 there and is repeated.
    """

    def __init__(self, columns: Sequence[Reader], places: Sequence[list[int]], grid: tuple[int, ...]) -> None:
        self._parts, self._grid = tuple(zip(columns, places, strict=True)), grid
        self.channels = sum(map(len, places))
        self.dtype = np.result_type(*(column.dtype for column in columns))

    def read(self, frames: Frames) -> Float[np.ndarray, "F c *N"]:
        out = np.empty((len(frames), self.channels, *self._grid), self.dtype)
        for column, place in self._parts:
            part = column.read(frames)
            if place == list(range(self.channels)) and part.shape == out.shape:
                return part  # one column holds everything: no copy
            out[:, place] = part
        return out
