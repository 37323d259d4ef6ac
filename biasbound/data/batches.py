"""What a batch holds, a random order of batches that can be resumed anywhere, and reading ahead of it in a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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

    def pinned(self) -> Batch:
        """The same in page-locked memory, from which a GPU copies while it computes."""
        return Batch(self.frames.pin_memory(), self.conditions.pin_memory())


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


@dataclass(frozen=True)
class Loader:
    """Batches by number in two steps, so that the first can run ahead of the training in a thread.

    `read` touches the disk and nothing else. `place` brings a batch into the network's units and to its device; it stays
    in the thread that trains, whose device and stream it uses. `pin` keeps what was read in page-locked memory between
    the two. A training reads `ahead` batches before it needs them.
    """

    read: Callable[[Any], Batch]
    place: Callable[[Batch], Batch]
    pin: bool = False
    ahead: int = 2

    def __call__(self, index: Any) -> Batch:
        return self.place(self.fetch(index))

    def fetch(self, index: Any) -> Batch:
        found = self.read(index)
        return found.pinned() if self.pin else found


class Ahead:
    """A loader whose next batches are being read in a thread.

    `asked` foretells what will be asked for. The batches are those of the loader whatever is asked: one that was not
    foretold is read at once. An error of reading is raised where the batch is asked for.
    """

    def __init__(self, loader: Loader, asked: Iterator[np.ndarray]) -> None:
        self.loader, self.asked = loader, asked
        self._pool = ThreadPoolExecutor(1, "batches")  # its thread ends with it
        self._coming: deque[tuple[np.ndarray, Future[Batch]]] = deque()

    def __call__(self, index: Any) -> Batch:
        while len(self._coming) <= self.loader.ahead and (numbers := next(self.asked, None)) is not None:
            self._coming.append((numbers, self._pool.submit(self.loader.fetch, numbers)))
        if not self._coming or not np.array_equal(self._coming[0][0], index):
            return self.loader(index)
        return self.loader.place(self._coming.popleft()[1].result())
