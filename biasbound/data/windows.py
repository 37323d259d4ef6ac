"""Windows x^k … x^{k+u} inside single trajectories, as float32 batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from biasbound.data.batches import Batch

if TYPE_CHECKING:
    from biasbound.data.trajectories import Trajectories

Index = int | np.integer | slice | Sequence[int] | np.ndarray | Tensor


def float32(array: Float[np.ndarray, ...]) -> Float[Tensor, ...]:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))


class Windows:
    """The S·M windows x^k, x^{k+e}, … x^{k+ue}, M = K − ue; number i is k = i mod M of s = ⌊i/M⌋.

    Points outside `mask` are 0.0.
    """

    def __init__(self, trajectories: Trajectories, steps: int, every: int = 1) -> None:
        frames = trajectories.layout.frames
        if not (steps >= 0 < every and steps * every < frames):
            windows = f"windows of {steps} + 1 frames, {every} apart,"
            raise ValueError(f"{trajectories.name}: {windows} do not fit into trajectories of {frames} frames")
        self.trajectories, self.per_trajectory = trajectories, frames - steps * every
        self._offsets = every * np.arange(steps + 1)
        self._planes = [self._plane(name) for name in trajectories.conditions]

    @property
    def mask(self) -> Bool[np.ndarray, " *N"] | None:
        """True where values are valid; None where all are."""
        return self.trajectories.mask

    def _plane(self, name: str) -> Float[Tensor, ...]:
        """A condition as (S, *N or ones), to be expanded for a batch."""
        of, grid = self.trajectories, self.trajectories.layout.grid
        if name in of.parameters:
            return float32(of.parameters[name]).reshape(-1, *[1] * len(grid))
        static = of.static[name] if of.mask is None else np.where(of.mask, of.static[name], 0)
        return float32(static).expand(len(of), *grid)

    def __len__(self) -> int:
        return len(self.trajectories) * self.per_trajectory

    def __getitem__(self, index: Index) -> Batch:
        """The windows of these numbers, as float32; one number gives a batch of one."""
        if isinstance(index, slice):
            index = range(len(self))[index]
        numbers = np.atleast_1d(np.asarray(index, dtype=np.int64))
        if len(numbers) and not (numbers.min() >= 0 and numbers.max() < len(self)):
            raise IndexError(f"windows are numbered 0 … {len(self) - 1}")
        s, k = np.divmod(numbers, self.per_trajectory)
        frames = float32(self.trajectories.take(s, k[:, None] + self._offsets))
        grid = frames.shape[3:]
        planes = [plane[s].expand(len(s), *grid) for plane in self._planes]
        return Batch(frames, torch.stack(planes, 1) if planes else frames.new_empty(len(s), 0, *grid))
