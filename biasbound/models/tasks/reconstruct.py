"""Reconstruction: the whole field from what is known at some of its points."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from biasbound.core.noise import Condition
from biasbound.models.task import Planes, Window
from biasbound.models.tasks.interpolate import interpolated
from biasbound.models.tasks.observed import Observed

__all__ = ["Reconstruct"]

Placed = Literal["regular", "random", "drawn", "gap"]


@dataclass(frozen=True)
class Reconstruct(Observed):
    """A field from `sensors` of its points.

    They are evenly spaced (regular, as many along each axis), drawn once from the seed (random), drawn anew for every
    frame (drawn), or all but one block, whose place is drawn for every frame (gap). What is drawn for a frame is a
    function of the seed and of the frame's values, so that the same frame is always seen in the same way. A frame that
    holds NaN says itself what is known: nothing is drawn, and the NaN are reconstructed.

    The mark in x is 1 at the sensors. `noise` is the standard deviation of what is added there, in standard deviations
    of the data.
    """

    sensors: int = 8
    placed: Placed = "regular"
    noise: float = 0.0
    seed: int = 0
    grid: tuple[int, ...] = ()  # of the data, for checks before anything is computed
    periodic: tuple[bool, ...] = ()  # along each axis; empty: every axis

    def __post_init__(self) -> None:
        if self.sensors < 1:
            raise ValueError(f"task.options.sensors counts known points: at least 1, not {self.sensors}")
        if not 0 <= self.noise < math.inf:
            raise ValueError(f"task.options.noise is a standard deviation: 0 or more, not {self.noise}")
        if self.seed < 0:
            raise ValueError(f"task.options.seed must be at least 0, not {self.seed}")
        if self.grid and self.placed == "regular":
            _regular(self.grid, self.sensors)
        if self.grid and self.sensors > math.prod(self.grid):
            raise ValueError(f"a grid of {math.prod(self.grid)} points has no {self.sensors} sensors: give fewer")

    @property
    def fixed(self) -> bool:
        """Whether all frames are seen alike, so that nothing is drawn from their values."""
        return self.placed in ("regular", "random") and not self.noise

    def given(self, frames: Window, planes: Planes) -> Condition:
        fields, seen = self.seen(frames[:, 0])
        made = interpolated(fields, seen, self.periodic or (True,) * (fields.ndim - 2))
        return torch.cat([made, seen.to(made), planes], 1)

    def seen(self, fields: Float[Tensor, "B C *N"]) -> tuple[Float[Tensor, "B C *N"], Bool[Tensor, "B 1 *N"]]:
        """What is observed, 0 elsewhere, and where."""
        own = fields.isfinite().all(1, keepdim=True)
        gappy = ~own.flatten(1).all(1).reshape(-1, *[1] * (fields.ndim - 1))
        sensors, errors = self._looked(fields)
        where = own & (gappy | sensors)
        if not torch.compiler.is_exporting() and not bool(where.flatten(1).any(1).all()):
            raise ValueError("a field is NaN at every point: there is nothing to reconstruct it from")
        return torch.where(where, fields + torch.where(gappy, 0.0, errors), 0.0), where

    def _looked(self, fields: Float[Tensor, "B C *N"]) -> tuple[Bool[Tensor, "#B 1 *N"], Float[Tensor, ...]]:
        """Where the sensors of frames without gaps stand, and the errors there.

        An exported program cannot draw from a frame's values: what is finite is known to it, unless sensors are fixed.
        """
        grid = tuple(fields.shape[2:])
        if self.fixed:
            fixed = torch.from_numpy(self._places(grid, np.random.default_rng(self.seed)))
            return fixed[None, None].to(fields.device), fields.new_zeros(())
        if torch.compiler.is_exporting():
            return torch.ones_like(fields[:1, :1], dtype=torch.bool), fields.new_zeros(())
        drawn = np.empty((len(fields), 1, *grid), dtype=bool)
        errors = np.zeros(fields.shape if self.noise else 1)
        for i, field in enumerate(fields.detach().cpu().to(torch.float32).numpy()):
            # A stored frame has no number of its own here; its bytes tell it from all others.
            rng = np.random.default_rng([self.seed, zlib.crc32(np.ascontiguousarray(field).tobytes())])
            drawn[i, 0] = self._places(grid, rng)
            if self.noise:
                errors[i] = self.noise * rng.standard_normal(field.shape)
        return torch.from_numpy(drawn).to(fields.device), torch.from_numpy(errors).to(fields)

    def _places(self, grid: tuple[int, ...], rng: np.random.Generator) -> Bool[np.ndarray, " *N"]:
        if self.placed == "regular":
            return _regular(grid, self.sensors)
        if self.placed == "random":
            return _random(grid, self.sensors, self.seed)
        if self.placed == "drawn":
            return _scattered(grid, self.sensors, rng)
        return _gap(grid, self.sensors, self.periodic or (True,) * len(grid), rng)


@lru_cache(maxsize=32)
def _regular(grid: tuple[int, ...], sensors: int) -> Bool[np.ndarray, " *N"]:
    """Evenly spaced points, as many along each axis."""
    each = round(sensors ** (1 / len(grid)))
    if each ** len(grid) != sensors or each > min(grid):
        raise ValueError(
            f"{sensors} sensors cannot stand evenly on a grid of {' × '.join(map(str, grid))} points, as many along each "
            "axis: change task.options.sensors, or take placed: random"
        )
    places = np.zeros(grid, dtype=bool)
    places[np.ix_(*(np.arange(each) * n // each for n in grid))] = True
    return places


@lru_cache(maxsize=32)
def _random(grid: tuple[int, ...], sensors: int, seed: int) -> Bool[np.ndarray, " *N"]:
    """Points drawn once."""
    return _scattered(grid, sensors, np.random.default_rng(seed))


def _scattered(grid: tuple[int, ...], sensors: int, rng: np.random.Generator) -> Bool[np.ndarray, " *N"]:
    places = np.zeros(math.prod(grid), dtype=bool)
    places[rng.choice(len(places), sensors, replace=False)] = True
    return places.reshape(grid)


def _gap(
    grid: tuple[int, ...], sensors: int, periodic: Sequence[bool], rng: np.random.Generator
) -> Bool[np.ndarray, " *N"]:
    """All but a block with the shape of the grid, such that about `sensors` points are left; it goes round periodic axes."""
    side = max(0.0, 1 - sensors / math.prod(grid)) ** (1 / len(grid))
    missing = []
    for n, wraps in zip(grid, periodic, strict=True):
        size = min(round(side * n), n - 1)
        start = int(rng.integers(n if wraps else n - size + 1))
        missing.append((start + np.arange(size)) % n)
    places = np.ones(grid, dtype=bool)
    places[np.ix_(*missing)] = False
    return places
