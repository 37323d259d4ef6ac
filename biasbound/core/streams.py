r"""Noise by counters: one stream per row of a batch, drawn where the fields are.

A number is a function of where it is used and of nothing else:

    counter   (position in the field, draw, row, turn)      key   seed

`row` is a trajectory of a rollout or a sample of a training batch, `turn` an update, and `draw` counts the fields that a
row takes within a turn. So rows can be divided among batches, processes and parts of a batch in any way, a training goes
on exactly from any update, and no state is kept on the device or read from it.

The counters pass through Philox 4×32 with 10 rounds (Salmon et al. 2011), in integer operations on whole tensors. Each
block of four words gives four normal numbers by Box and Muller,

    (√(−2 log u) cos θ, √(−2 log u) sin θ),    u = (w + ½)/2³²,   θ = π w′/2³¹,

with w in [0, 2³²) and w′ in [−2³¹, 2³¹). Words are the same on every device, normal numbers up to rounding.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from jaxtyping import Int64
from torch import Tensor

__all__ = ["Streams", "normal", "philox"]

Words = Int64[Tensor, "two *n"]
MASK = 0xFFFFFFFF
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85  # what the two words of the key grow by in each round
ROUNDS = 10
AHEAD = 1 << 16  # numbers that are made at once, because a call costs as much as ten thousand of them
MOST = 64  # fields that are made at once


def philox(first: Words, second: Words, key: int) -> tuple[Words, Words]:
    """Words (0, 2) and (1, 3) of each block, from words (0, 2) and (1, 3) of its counter; both tensors are used up.

    A word is the lower half of an integer; the upper half of the words (1, 3) that are returned says nothing.
    """
    upper, product = first.unbind(), torch.empty_like(second)
    for multiplier, added in zip(*_rounds(key, first.device, first.ndim), strict=True):
        torch.mul(first, multiplier, out=product)
        torch.bitwise_right_shift(product, 32, out=first)
        upper[0].bitwise_xor_(second[1])
        upper[1].bitwise_xor_(second[0])
        first.bitwise_xor_(added).bitwise_and_(MASK)
        second, product = product, second
    return first, second


@lru_cache(maxsize=256)
def _rounds(key: int, device: torch.device, ndim: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Multipliers and keys of all rounds, for both words of a pair, which change places in every round.

    They are kept, because bringing them to a device takes as long as a round.
    """
    low, high = key & MASK, key >> 32 & MASK
    keys = [((high + i * WEYL[1]) & MASK, (low + i * WEYL[0]) & MASK) for i in range(ROUNDS)]
    pairs = torch.tensor([[MULTIPLIERS] * ROUNDS, keys])
    pairs[:, 1::2] = pairs[:, 1::2].flip(2)
    both = pairs.reshape(2, ROUNDS, 2, *[1] * (ndim - 1)).to(device, non_blocking=True)
    return both[0].unbind(), both[1].unbind()


def normal(
    counters: tuple[Int64[Tensor, " k"], Int64[Tensor, " r"], Int64[Tensor, " k"]], size: int, key: int, like: Tensor
) -> Tensor:
    """(K, R, size) numbers of N(0, 1), for K pairs of draws and turns and R rows: counters are (draw, row, turn).

    They have the device of `like`, and its precision where that is float32 or float64; else they are float32.
    """
    draw, row, turn = counters
    shape = len(draw), len(row), -(-size // 4)
    first, second = (torch.empty(2, *shape, dtype=torch.int64, device=like.device) for _ in range(2))
    first[0], first[1] = torch.arange(shape[2], device=like.device), row[:, None]
    second[0], second[1] = draw[:, None, None], turn[:, None, None]
    first, second = philox(first, second, key)
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    radius = first.to(dtype).add_(0.5).mul_(2.0**-32).log_().mul_(-2).sqrt_()
    angle = second.to(torch.int32).to(dtype).mul_(math.pi * 2.0**-31)  # the lower half, with its sign
    made = torch.empty(*shape[:2], 4, shape[2], dtype=dtype, device=like.device)
    torch.mul(radius, angle.cos(), out=made[:, :, :2].permute(2, 0, 1, 3))
    torch.mul(radius, angle.sin_(), out=made[:, :, 2:].permute(2, 0, 1, 3))
    return made.flatten(2)[:, :, :size]


class Streams(torch.Generator):
    """The noise of rows `rows` of a batch of `whole` rows; nobody else's noise depends on which rows these are.

    What a batch draws as one, such as the levels of its samples, comes from the generator itself, on the host: every
    owner of some of its rows draws all of it.
    """

    def __new__(cls, seed: int, rows: range, whole: int | None = None) -> Streams:  # noqa: PYI034 - beartype wants the name
        return super().__new__(cls)

    def __init__(self, seed: int, rows: range, whole: int | None = None) -> None:
        self.key, self.rows, self.whole = seed % 2**64, rows, rows.stop if whole is None else whole
        self._turn, self._draw, self._used = 0, 0, 0
        self._held: dict[tuple[int, int], Tensor] = {}
        self.manual_seed(mixed(self.key, 0))

    def turn(self, number: int) -> Streams:
        """The same rows at update `number`, before its first draw."""
        self._used = self._draw if number == self._turn + 1 else 0
        self._turn, self._draw = number, 0
        self.manual_seed(mixed(self.key, number))
        return self

    def draw(self, like: Tensor) -> Tensor:
        """The next field of every row: ε ~ N(0, I) with the shape, precision and place of `like`."""
        if len(like) != len(self.rows):
            raise ValueError(f"the generator has {len(self.rows)} noise streams for {len(like)} rows: give it as many")
        now = self._turn, self._draw
        found = self._held.pop(now, None)
        if found is None or found.shape != like.shape or found.dtype != like.dtype or found.device != like.device:
            self._make(like)
            found = self._held.pop(now)
        self._draw += 1
        return found

    def own(self, whole: Tensor) -> Tensor:
        """Of something that the whole batch drew, what belongs to these rows."""
        return whole[self.rows.start : self.rows.stop]

    def _make(self, like: Tensor) -> None:
        """The next draws, as many as make up a large call: of this turn, or of turns to come like the one before."""
        count = min(max(1, AHEAD // max(like.numel(), 1)), MOST)
        per = self._used if self._draw < self._used else self._draw + count  # draws of a turn
        number = torch.arange(self._draw, self._draw + count, device=like.device)
        row = torch.arange(self.rows.start, self.rows.stop, device=like.device)
        counters = number % per, row, number // per + self._turn
        fields = normal(counters, like[:1].numel(), self.key, like).to(like.dtype).reshape(count, *like.shape)
        ahead = ((self._turn + i // per, i % per) for i in range(self._draw, self._draw + count))
        self._held = dict(zip(ahead, fields.unbind(), strict=True))


def mixed(seed: int, number: int) -> int:
    """A seed for each number; neighbouring (seed, number) give unrelated streams."""
    value = (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) % 2**64
    value = (value ^ (value >> 31)) * 0x94D049BB133111EB % 2**64
    return (value ^ (value >> 29)) % 2**63
