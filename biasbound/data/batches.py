"""What a batch holds, parts of a set, and a random order of batches that can be resumed anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor


class Batch(NamedTuple):
    """Windows x^k … x^{k+u}, and the extra channels of each condition (Mach)."""

    frames: Float[Tensor, "B W C *N"]
    conditions: Float[Tensor, "B P *N"]

    @property
    def x(self) -> Float[Tensor, "B D *N"]:
        """The condition: x^k followed by the extra channels."""
        first = self.frames[:, 0]
        return torch.cat([first, self.conditions], 1) if self.conditions.shape[1] else first

    @property
    def y(self) -> Float[Tensor, "B C *N"]:
        """The target x^{k+1}."""
        return self.frames[:, 1]


def permutation(length: int, seed: int, epoch: int = 0) -> Int64[np.ndarray, " n"]:
    """A random order of 0 … length − 1 from (seed, epoch).

    Sorts raw Philox words, a stream that NumPy promises never to change, unlike its `permutation`.
    """
    words = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64)).random_raw(length)
    return np.argsort(words, kind="stable")


def parts(length: int, fractions: Mapping[str, float], seed: int | None, name: str) -> dict[str, Int64[np.ndarray, _]]:
    """Disjoint parts of the trajectories 0 … S − 1, in order or, with a seed, in that seed's random order.

    Part i has the places from ⌊S Σ_{j<i} f_j⌋ to ⌊S Σ_{j≤i} f_j⌋; none may be empty.
    """
    if min(fractions.values(), default=0) <= 0 or sum(fractions.values()) > 1 + 1e-9:
        raise ValueError(f"split fractions must be above 0 and sum to at most 1: {dict(fractions)}")
    order = np.arange(length) if seed is None else permutation(length, seed)
    ends = [int(length * f + 1e-9) for f in np.cumsum(list(fractions.values()))]
    found = dict(zip(fractions, np.split(order[: ends[-1]], ends[:-1]), strict=True))
    for part, chosen in found.items():
        if len(chosen) == 0:
            raise ValueError(
                f"{name}: {length} trajectories leave none for the part {part!r}, "
                f"{fractions[part]:g} of them; give more, or a file of its own for each part"
            )
    return found


@dataclass
class Order:
    """Endless batches of item numbers, each epoch in its own random order.

    The whole state is the five integers of `state()`; `Order(**state)` gives the batches that come next. An incomplete
    last batch is left out, so that every batch has `size` items.
    """

    length: int
    size: int
    seed: int = 0
    epoch: int = 0
    position: int = 0  # items of this epoch given so far
    _shuffled: tuple[int, np.ndarray] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.size <= self.length:
            raise ValueError(f"batches of {self.size} cannot be drawn from {self.length} items")

    def state(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("length", "size", "seed", "epoch", "position")}

    def __iter__(self) -> Order:
        return self

    def __next__(self) -> Int64[np.ndarray, " B"]:
        if self.position + self.size > self.length:
            self.epoch, self.position = self.epoch + 1, 0
        if self._shuffled is None or self._shuffled[0] != self.epoch:
            self._shuffled = self.epoch, permutation(self.length, self.seed, self.epoch)
        batch = self._shuffled[1][self.position : self.position + self.size]
        self.position += self.size
        return batch
