"""Between physical units and those of the network."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from biasbound.core.noise import beside

__all__ = ["Conditions", "Normalisation"]

Conditions = Float[Tensor, "B P"] | Float[Tensor, "B P *N"] | None


@dataclass(frozen=True)
class Normalisation:
    """Mean and spread of each channel, and of each channel that only informs: networks see (x − mean)/std."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    condition_mean: tuple[float, ...] = ()
    condition_std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("mean", "std", "condition_mean", "condition_std"):
            object.__setattr__(self, name, tuple(float(v) for v in getattr(self, name)))
        every = (*self.mean, *self.std, *self.condition_mean, *self.condition_std)
        if not all(map(math.isfinite, every)) or not all(s > 0 for s in self.std):
            raise ValueError("normalisation needs finite means and positive spreads")
        if len(self.mean) != len(self.std) or len(self.condition_mean) != len(self.condition_std):
            raise ValueError("normalisation needs a mean and a spread for each channel")

    def encode(self, state: Tensor, axis: int = 1) -> Tensor:
        """(x − mean)/std, with the channels along `axis` (1 for states, 2 for windows of frames)."""
        return (state - _along(self.mean, state, axis)) / _along(self.std, state, axis)

    def decode(self, state: Tensor, axis: int = 1) -> Tensor:
        """The inverse of `encode`."""
        return state * _along(self.std, state, axis) + _along(self.mean, state, axis)

    def planes(self, values: Conditions, frames: Float[Tensor, "B W C *N"]) -> Float[Tensor, "B P *N"]:
        """Conditions of shape (B, P) or (B, P, *N), normalised and spread over the grid of `frames`.

        A condition that never varied in the training data has no spread and is only shifted.
        """
        given, wanted = 0 if values is None else values.shape[1], len(self.condition_mean)
        if given != wanted:
            raise ValueError(f"the emulator takes {wanted} conditions, got {given}")
        grid = frames.shape[3:]
        if values is None or given == 0:
            return frames.new_empty(frames.shape[0], 0, *grid)
        planes = values if values.ndim > 2 else values.reshape(*values.shape, *[1] * len(grid))
        spread = tuple(s if s > 0 else 1.0 for s in self.condition_std)
        planes = beside(planes, frames).expand(*planes.shape[:2], *grid)
        return (planes - _along(self.condition_mean, planes, 1)) / _along(spread, planes, 1)


def _along(values: tuple[float, ...], field: Tensor, axis: int) -> Tensor:
    if field.shape[axis] != len(values):
        raise ValueError(f"the emulator has {len(values)} channels, the field has {field.shape[axis]}")
    return beside(torch.tensor(values, dtype=torch.float64), field).reshape(-1, *[1] * (field.ndim - axis - 1))
