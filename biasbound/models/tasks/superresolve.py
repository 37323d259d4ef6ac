"""Super-resolution: the fine field from a coarse one.

Along each axis of N points the coarse field is c = A u with n = N/factor rows: the mean of each block, or its first
point. The first guess is P c with A P = 1, so it has the coarse values that it was made of:

    P = P₀ (A P₀)⁻¹,   P₀: trigonometric interpolation along a periodic axis, linear interpolation along any other
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from biasbound.core.noise import Condition
from biasbound.models.tasks.observed import Observed, along

__all__ = ["Superresolve"]

By = Literal["mean", "subsample"]


@dataclass(frozen=True)
class Superresolve(Observed):
    """A fine field from its block means, or from every `factor`-th point along each axis; `grid` is the fine one.

    `given` takes fine fields, which it makes coarse, as in training, or fields that are coarse already. The mark in x is
    1 at the first point of each block.
    """

    factor: int = 4
    by: By = "mean"
    grid: tuple[int, ...] = ()  # of the data; empty: fields are always fine
    periodic: tuple[bool, ...] = ()  # along each axis; empty: every axis

    def __post_init__(self) -> None:
        if self.factor < 1:
            raise ValueError(f"task.options.factor is how much finer the answer is: at least 1, not {self.factor}")
        self._divided(self.grid)

    def _divided(self, grid: tuple[int, ...]) -> tuple[int, ...]:
        if any(n % self.factor for n in grid):
            fine = " × ".join(map(str, grid))
            raise ValueError(
                f"a grid of {fine} points has no blocks of {self.factor}: task.options.factor must divide it"
            )
        return tuple(n // self.factor for n in grid)

    def given(self, frames: Float[Tensor, "B W C *n"], planes: Float[Tensor, "B P *n"]) -> Condition:
        fields, shape = frames[:, 0], tuple(frames.shape[3:])
        fine = self.grid or shape
        if shape == fine:
            fields = self.coarse(fields)
        elif shape == self._divided(fine):
            for axis in range(2, 2 + len(fine)):
                planes = planes.repeat_interleave(self.factor, axis)
        else:
            raise ValueError(
                f"a field of {' × '.join(map(str, shape))} points is neither the fine grid {fine} nor the coarse one "
                f"{self._divided(fine)}"
            )
        for axis, (_, fill) in enumerate(self._operators(fine), 2):
            fields = along(fields, fill, axis)
        return torch.cat([fields, self._mark(fields), planes], 1)

    def coarse(self, fields: Tensor) -> Tensor:
        """What is seen of fine fields (B, C, *N)."""
        for axis, (see, _) in enumerate(self._operators(tuple(fields.shape[2:])), 2):
            fields = along(fields, see, axis)
        return fields

    def _operators(self, fine: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
        self._divided(fine)
        around = self.periodic or (True,) * len(fine)
        return [operators(n, self.factor, self.by, wraps) for n, wraps in zip(fine, around, strict=True)]

    def _mark(self, fields: Tensor) -> Tensor:
        mark = torch.ones_like(fields[:, :1])
        for axis in range(2, fields.ndim):
            first = torch.arange(fields.shape[axis], device=fields.device) % self.factor == 0
            mark = mark * first.reshape([-1 if a == axis else 1 for a in range(fields.ndim)])
        return mark


@lru_cache(maxsize=64)
def operators(
    points: int, factor: int, by: By, periodic: bool
) -> tuple[Float64[Tensor, "n N"], Float64[Tensor, "N n"]]:
    """(A, P) of one axis: what is seen of `points` values, and the first guess of them, A P = 1."""
    count = points // factor
    seen, first = {
        "mean": (
            np.repeat(np.eye(count), factor, 1) / factor,
            (factor - 1) / 2,
        ),  # which stands for the middle of a block
        "subsample": (np.eye(points)[::factor], 0.0),
    }[by]
    where = np.arange(count) * factor + first
    smooth = (trigonometric if periodic else linear)(points, factor, where)
    fill = smooth @ np.linalg.inv(seen @ smooth)
    return torch.from_numpy(seen), torch.from_numpy(fill)


def trigonometric(points: int, factor: int, where: np.ndarray) -> np.ndarray:
    """(N, n) the interpolation by the n lowest waves, through values at `where`."""
    count = len(where)
    turns = 2 * np.pi * (np.arange(points)[:, None] - where) / (factor * count)
    waves = [np.cos(k * turns) * (1 if 2 * k == count else 2) for k in range(1, count // 2 + 1)]
    made: np.ndarray = (1 + sum(waves, np.zeros_like(turns))) / count
    return made


def linear(points: int, factor: int, where: np.ndarray) -> np.ndarray:
    """(N, n) linear interpolation between values at `where`, constant beyond the first and the last."""
    return np.stack([np.interp(np.arange(points), where, one) for one in np.eye(len(where))], 1)
