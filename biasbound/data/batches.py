"""What a batch holds, and a random order of batches that can be resumed anywhere."""

from __future__ import annotations

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
    """A random order of 0 … length − 1 from (seed, epoch)."""
    # Raw Philox words are a stream that NumPy promises never to change, unlike its `permutation`.
    words = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64)).random_raw(length)
    return np.argsort(words, kind="stable")


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
