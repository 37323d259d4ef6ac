"""Frames on disk or in memory, read by number: frame k of trajectory s is number s·K + k.

A batch costs what it reads: uncompressed contiguous data is fetched with positioned reads. These leave no pages of the
file in the process (a memory map would), share no cursor between threads or forks, and need no HDF5 call.
"""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
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
    """[a, b) of each stretch of consecutive numbers, for one read; with the `length` K, none leaves a trajectory."""
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


class Nothing:
    """The reader of a file that is still being written."""

    def __init__(self, channels: int, dtype: str = "float32") -> None:
        self.channels, self.dtype = channels, np.dtype(dtype)

    def read(self, frames: Frames) -> Float[np.ndarray, "F c *N"]:
        raise ValueError("frames that are still being written cannot be read")


@dataclass(eq=False)
class _Stored(ABC):
    """Frames in a file, each of the shape `frame`: (c, *N), or (*N, c) where channels come `last`.

    `shared` is K where the same K frames serve every trajectory.
    """

    path: Path
    stored: np.dtype[Any]
    frame: tuple[int, ...]
    last: bool = False
    shared: int | None = None
    channels: int = field(init=False)
    dtype: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.channels, self.dtype = self.frame[-1 if self.last else 0], self.stored.newbyteorder("=")

    def read(self, frames: Frames) -> Float[np.ndarray, "F c *N"]:
        data = self._fetch(frames % self.shared if self.shared else frames)
        return np.moveaxis(data, -1 if self.last else 1, 1).astype(self.dtype, copy=False)

    @abstractmethod
    def _fetch(self, frames: Frames) -> Float[np.ndarray, "F ..."]:
        """Frames as they are stored."""


@dataclass(eq=False)
class Raw(_Stored):
    """Uncompressed frames one after the other from `offset` in a file, which stays open; copies open it again."""

    offset: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._descriptor = os.open(self.path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._descriptor)

    def __reduce__(self) -> tuple[type[Raw], tuple[Any, ...]]:
        return Raw, (self.path, self.stored, self.frame, self.last, self.shared, self.offset)

    def _fetch(self, frames: Frames) -> Float[np.ndarray, "F ..."]:
        data = np.empty((len(frames), *self.frame), self.stored)
        step = data[:1].nbytes
        rows: memoryview = data.reshape(-1).view(np.uint8).data
        for a, b in runs(frames):
            self._fill(rows[a * step : b * step], self.offset + int(frames[a]) * step)
        return data

    def _fill(self, buffer: memoryview, offset: int) -> None:
        done = 0
        while done < len(buffer):
            got = os.preadv(self._descriptor, [buffer[done : done + READ_LIMIT]], offset + done)
            if got == 0:
                raise ValueError(f"{self.path} ends before its last frame; copy it again")
            done += got


@dataclass(eq=False)
class Hdf5(_Stored):
    """Frames of a chunked or compressed HDF5 dataset (S, K, …), or (K, …) where `shared`.

    Reads go in ascending order, so that a chunk is decompressed once while it is in HDF5's cache.
    """

    name: str = ""
    length: int = 1  # K
    _open: tuple[int, Any] | None = None  # (process, dataset): HDF5 does not survive a fork

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": None}

    def _fetch(self, frames: Frames) -> Float[np.ndarray, "F ..."]:
        import h5py

        if self._open is None or self._open[0] != os.getpid():
            self._open = os.getpid(), h5py.File(self.path, "r", rdcc_nbytes=1 << 26)[self.name]
        dataset = self._open[1]
        wanted, place = np.unique(frames, return_inverse=True)
        data = np.empty((len(wanted), *self.frame), self.stored)
        for a, b in runs(wanted, self.length):
            s, k = divmod(int(wanted[a]), self.length)
            part = slice(k, k + b - a)
            try:
                found = dataset[part] if self.shared else dataset[s, part]
            except (OSError, RuntimeError, IndexError) as error:
                raise ValueError(
                    f"{self.path}: found damaged frames in {self.name} ({error}); copy it again"
                ) from None
            data[a:b] = found.reshape(b - a, *self.frame)
        return data[place]


def hdf5_column(path: Path, data: Any, frame: tuple[int, ...], last: bool = False, shared: bool = False) -> Reader:
    """The frames of an HDF5 dataset ([S,] K, …): raw reads where its layout allows them."""
    length = int(data.shape[0 if shared else 1])
    facts = (path, data.dtype, frame, last, length if shared else None)
    offset = data.id.get_offset()
    if offset is not None and data.chunks is None and not data.is_virtual and data.external is None:
        return Raw(*facts, offset)
    return Hdf5(*facts, data.name, length)


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
