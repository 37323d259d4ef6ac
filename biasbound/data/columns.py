"""Frames on disk or in memory, read by number.

A *column* holds some channels of every frame (k of trajectory s is frame s·K + k); a *store* combines
columns into (F, C, *N). A batch costs what it reads: uncompressed contiguous data is fetched with
positioned reads. These leave no pages of the file in the process (a memory map would), share no cursor
between threads or forks, and need no HDF5 call.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int64, Shaped

__all__ = ["Array", "Column", "Frames", "Raw", "Reader", "Spread", "Store", "hdf5_column"]

Frames = Int64[np.ndarray, " F"]
READ_LIMIT = 1 << 30  # bytes; the kernel refuses single reads of 2 GiB


@runtime_checkable
class Column(Protocol):
    """Some channels of every frame."""

    @property
    def channels(self) -> int: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def read(self, frames: Frames) -> Shaped[np.ndarray, "F c *N"]:
        """The frames of these numbers, in this order, in the stored dtype."""
        ...


@runtime_checkable
class Reader(Protocol):
    """All channels of every frame."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def read(self, frames: Frames, points: tuple[slice, ...]) -> Float[np.ndarray, "F C *n"]:
        """These frames at these grid points."""
        ...


def runs(frames: Frames) -> Iterator[tuple[int, int]]:
    """[a, b) of each maximal stretch of consecutive frame numbers: what one read can fetch."""
    cuts = np.flatnonzero(np.diff(frames) != 1) + 1
    edges = [0, *cuts.tolist(), len(frames)]
    yield from pairwise(edges) if len(frames) else ()


def channels_first(data: Shaped[np.ndarray, "F ..."], axis: int | None) -> np.ndarray:
    """(F, *N), (F, c, *N) or (F, *N, c) → (F, c, *N), a view; `axis` is that of c in a frame."""
    return data[:, None] if axis is None else np.moveaxis(data, axis + 1 if axis >= 0 else axis, 1)


@dataclass(frozen=True)
class Array:
    """Frames of an array (S, K, C, *N) in memory."""

    fields: Shaped[np.ndarray, "S K C *N"]

    @property
    def channels(self) -> int:
        return int(self.fields.shape[2])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.fields.dtype

    def read(self, frames: Frames) -> Shaped[np.ndarray, "F C *N"]:
        s, k = np.divmod(frames, self.fields.shape[1])
        return self.fields[s, k]


class _File:
    """A file open for positioned reads; pickles as its path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self.descriptor)

    def __reduce__(self) -> tuple[type[_File], tuple[Path]]:
        return _File, (self.path,)

    def fill(self, buffer: memoryview, offset: int) -> None:
        done = 0
        while done < len(buffer):
            got = os.preadv(self.descriptor, [buffer[done : done + READ_LIMIT]], offset + done)
            if got == 0:
                raise ValueError(f"{self.path} ends before its last frame; copy it again")
            done += got


class Raw:
    """Uncompressed frames one after the other from `offset` in a file, each of shape `frame`.

    `axis` is the channel axis of a frame (None: one channel without an axis); `shared` is K where
    the same K frames serve every trajectory.
    """

    def __init__(
        self,
        path: Path,
        offset: int,
        dtype: np.dtype[Any],
        frame: tuple[int, ...],
        axis: int | None = None,
        shared: int | None = None,
    ) -> None:
        self._file, self._offset, self._frame = _File(path), offset, frame
        self._axis, self._shared, self._dtype = axis, shared, dtype

    @property
    def channels(self) -> int:
        return 1 if self._axis is None else self._frame[self._axis]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    def read(self, frames: Frames) -> Shaped[np.ndarray, "F c *N"]:
        frames = frames % self._shared if self._shared else frames
        data = np.empty((len(frames), *self._frame), self._dtype)
        step = data[:1].nbytes
        rows: memoryview = data.reshape(-1).view(np.uint8).data
        for a, b in runs(frames):
            self._file.fill(rows[a * step : b * step], self._offset + int(frames[a]) * step)
        return channels_first(data, self._axis)


class Hdf5:
    """Frames of a chunked or compressed HDF5 dataset (S, K, …), or (K, …) where `shared`.

    Reads go in ascending order, so that a chunk is decompressed once while it is in HDF5's cache.
    """

    def __init__(
        self, path: Path, name: str, length: int, frame: tuple[int, ...], axis: int | None = None, shared: bool = False
    ) -> None:
        self._path, self._name, self._length = path, name, length
        self._frame, self._axis, self._shared = frame, axis, shared
        self._open: tuple[int, Any] | None = None  # (process, dataset): HDF5 does not survive a fork
        self._dtype: np.dtype[Any] = self._dataset().dtype

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": None}

    def _dataset(self) -> Any:
        import h5py

        if self._open is None or self._open[0] != os.getpid():
            file = h5py.File(self._path, "r", rdcc_nbytes=1 << 26)
            self._open = os.getpid(), file[self._name]
        return self._open[1]

    @property
    def channels(self) -> int:
        return 1 if self._axis is None else self._frame[self._axis]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    def read(self, frames: Frames) -> Shaped[np.ndarray, "F c *N"]:
        dataset = self._dataset()
        frames = frames % self._length if self._shared else frames
        wanted, place = np.unique(frames, return_inverse=True)
        data = np.empty((len(wanted), *self._frame), self._dtype)
        for a, b in runs(wanted):
            while a < b:  # a run may go on into the next trajectory
                s, k = divmod(int(wanted[a]), self._length)
                n = min(b - a, self._length - k)
                part = slice(k, k + n)
                piece = dataset[part] if self._shared else dataset[s, part]
                data[a : a + n] = piece.reshape(n, *self._frame)
                a += n
        return channels_first(data[place], self._axis)


def hdf5_column(path: Path, dataset: Any, grid_rank: int, axis: int | None = None, shared: bool = False) -> Column:
    """The column of an HDF5 dataset ([S,] K, *frame): raw reads where its layout allows them.

    `axis` is 0 or −1 where channels stand before or after the space axes (all axes after them are
    flattened to one, as for a tensor field).
    """
    lead = 1 if shared else 2
    frame = tuple(dataset.shape[lead:])
    if axis == -1:
        frame = (*frame[:grid_rank], int(np.prod(frame[grid_rank:])))
    length = int(dataset.shape[lead - 1])
    offset = dataset.id.get_offset()
    plain = dataset.chunks is None and not dataset.is_virtual and dataset.external is None
    if plain and offset is not None:
        return Raw(path, offset, dataset.dtype, frame, axis, length if shared else None)
    return Hdf5(path, dataset.name, length, frame, axis, shared)


@dataclass(frozen=True)
class Spread:
    """A column that does not vary along some axes (size 1 there), repeated to the whole grid."""

    column: Column
    grid: tuple[int, ...]

    @property
    def channels(self) -> int:
        return self.column.channels

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.column.dtype

    def read(self, frames: Frames) -> Shaped[np.ndarray, "F c *N"]:
        return np.broadcast_to(self.column.read(frames), (len(frames), self.channels, *self.grid))


class Store:
    """Columns put together: `places[i]` are the channel numbers that column i fills."""

    def __init__(self, columns: Sequence[Column], places: Sequence[Sequence[int]] | None = None) -> None:
        if places is None:
            ends = np.cumsum([c.channels for c in columns]).tolist()
            places = [range(e - c.channels, e) for c, e in zip(columns, ends, strict=True)]
        self._parts = tuple(zip(columns, map(list, places), strict=True))
        self._channels = sum(len(place) for _, place in self._parts)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.result_type(*(column.dtype.newbyteorder("=") for column, _ in self._parts))

    def read(self, frames: Frames, points: tuple[slice, ...]) -> Float[np.ndarray, "F C *n"]:
        pick = (slice(None), slice(None), *points)
        if len(self._parts) == 1 and self._parts[0][1] == list(range(self._channels)):
            return self._parts[0][0].read(frames)[pick].astype(self.dtype, copy=False)
        out: np.ndarray | None = None
        for column, place in self._parts:
            part = column.read(frames)[pick]
            if out is None:
                out = np.empty((len(frames), self._channels, *part.shape[2:]), self.dtype)
            out[:, place] = part
        assert out is not None
        return out
