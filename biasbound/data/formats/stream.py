"""Frames written as they come, a rollout of any length in constant memory.

    with FrameWriter.open("rollout.nc", layout, members=8) as writer:
        for frames in steps:                   # (M, S, C, *N)
            writer.append(frames)

The file appears under its name when it is complete: an error, an interrupt or a kill leaves none there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from biasbound._io import replacing
from biasbound.data.columns import Nothing
from biasbound.data.formats import native, netcdf, zarr
from biasbound.data.layout import Labels, Layout
from biasbound.data.sheets import Sheet, sheet_of
from biasbound.data.trajectories import Trajectories

__all__ = ["FrameWriter"]

Put = Callable[[int, np.ndarray], None]  # first frame, frames (M, S, k, C, *N)
BUFFER = 1 << 26  # bytes of frames that wait for a chunk to be full


@dataclass(eq=False)
class FrameWriter:
    """An open file of M × S trajectories of K frames; `append` adds the next frame of all of them."""

    path: Path
    shape: tuple[int, ...]  # (M, S, K, C, *N)
    dtype: np.dtype[Any]
    block: int  # frames written at once
    _put: Put
    _stack: ExitStack = field(repr=False)
    _waiting: list[np.ndarray] = field(default_factory=list, repr=False)
    frames: int = 0  # appended so far

    @classmethod
    def open(
        cls,
        path: str | Path,
        layout: Layout,
        *,
        members: int = 1,
        start: float | None = None,
        labels: Labels | None = None,
        mask: Bool[np.ndarray, " *N"] | None = None,
        provenance: dict[str, Any] | None = None,
        overwrite: bool = False,
    ) -> FrameWriter:
        """Begin a NetCDF file (.nc), a Zarr store (.zarr) or a native file (.h5), by the ending of the path.

        `layout` says S, K, channels and grid. The first frame stands at the time `start`, by default dt: rollouts do
        not hold their initial state. Native files have no members: theirs are M·S trajectories, member by member, with
        the parameters `member` and `start`.
        """
        target = Path(path)
        begin = _TARGETS.get(target.suffix)
        if begin is None:
            raise ValueError(f"{target}: frames are written as they come to {', '.join(_TARGETS)}; choose one of them")
        whole = replace(layout, trajectories=members * layout.trajectories)
        facts: dict[str, Any] = {"labels": labels or Labels(), "mask": mask, "provenance": provenance or {}}
        empty = Trajectories.open(whole, Nothing(len(layout.channels)), name=str(target), **facts)
        rows = {"member": members, "trajectory": layout.trajectories} if members > 1 else None
        sheet = sheet_of(empty, rows, layout.dt if start is None else start)
        shape = (members, layout.trajectories, *layout.shape[1:])
        with ExitStack() as stack:
            temporary = stack.enter_context(replacing(target, overwrite))
            put, block = begin(temporary, sheet, empty, stack)
            return cls(target, shape, sheet.dtype, block, put, stack.pop_all())

    def append(self, frames: Float[np.ndarray, ...] | Float[Tensor, ...]) -> None:
        """Add the next frame (M, S, C, *N) of every trajectory; (S, C, *N) where there is one member."""
        array = frames.detach().cpu().numpy() if isinstance(frames, Tensor) else frames
        m, s, k, *state = self.shape
        if array.shape not in [(m, s, *state), *([(s, *state)] if m == 1 else [])]:
            raise ValueError(f"{self.path}: found frames of shape {array.shape}, expected {(m, s, *state)}")
        if self.frames == k:
            raise ValueError(f"{self.path}: found more than the {k} frames that it was opened for")
        self._waiting.append(array.reshape(m, s, *state).astype(self.dtype))
        self.frames += 1
        if len(self._waiting) == self.block:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._put(self.frames - len(self._waiting), np.stack(self._waiting, axis=2))
            self._waiting.clear()

    def close(self) -> None:
        """Put the file in its place; one that lacks frames is refused and removed."""
        self.__exit__(None, None, None)

    def __enter__(self) -> FrameWriter:  # noqa: PYI034 - beartype wants the name
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:  # where an error raised removes the unfinished file
            if error is not None:
                raise error
            self._flush()
            if self.frames < self.shape[2]:
                raise ValueError(f"{self.path}: found {self.frames} frames, expected {self.shape[2]}; it was not kept")


def _netcdf(temporary: Path, sheet: Sheet, empty: Trajectories, stack: ExitStack) -> tuple[Put, int]:
    file = stack.enter_context(h5py.File(temporary, "w"))
    return _channels(netcdf.create(file, sheet), sheet), 1


def _zarr(temporary: Path, sheet: Sheet, empty: Trajectories, stack: ExitStack) -> tuple[Put, int]:
    frame = int(np.prod(empty.shape)) // empty.layout.frames * sheet.dtype.itemsize
    frames = max(1, min(zarr.frames_per_chunk(sheet), BUFFER // frame))
    return _channels(zarr.create(temporary, sheet, frames), sheet), frames


def _channels(channels: list[Any], sheet: Sheet) -> Put:
    def put(k: int, fields: np.ndarray) -> None:
        part = fields if len(sheet.rows) == 2 else fields[0]
        for i, target in enumerate(channels):
            place = (*[slice(None)] * len(sheet.rows), slice(k, k + fields.shape[2]))
            target[place] = sheet.filled(part.take(i, axis=len(sheet.rows) + 1))

    return put


def _native(temporary: Path, sheet: Sheet, empty: Trajectories, stack: ExitStack) -> tuple[Put, int]:
    file = stack.enter_context(h5py.File(temporary, "w"))
    counts = [size for _, size in sheet.rows]
    parameters: dict[str, np.ndarray] = {}
    if len(counts) == 2:
        member, row = np.divmod(np.arange(len(empty), dtype=np.float64), counts[1])
        parameters = {"member": member, "start": row}
    places = native.begin(file, replace(empty, parameters=parameters), "float32")

    def put(k: int, fields: np.ndarray) -> None:
        native.fill(places, 0, k, fields.reshape(-1, *fields.shape[2:]))

    return put, 1


_TARGETS = {".nc": _netcdf, ".zarr": _zarr, ".h5": _native}
