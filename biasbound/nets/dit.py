"""A small diffusion transformer (Peebles and Xie 2023): attention between patches, told the log-SNR by scales and shifts.

A patch is one token. Queries and keys are rotated by angles that grow with the place of their patch (rotary position
code), so attention depends on how far apart two patches are. Along a periodic axis the angles are whole turns per period,
so a shift by a patch shifts the result. Along an axis with ends the code does not repeat, and each token is also told its
place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field as Limits
from torch import Tensor, nn

from biasbound.nets.blocks import Shift, modulated, with_row
from biasbound.nets.chain import Architecture, Chain, Count, Options, Shape, loud, zero_linear
from biasbound.nets.layers import (
    Field,
    Paddings,
    Sizes,
    blocks_to_space,
    cropped,
    normed,
    space_to_blocks,
    whole_blocks,
)

__all__ = ["DiT", "DiTOptions", "dit", "patches"]

Tokens = Float[Tensor, "B T W"]
HEAD_CHANNELS = 16
PATCH, TOKENS = 2, 512  # a patch has 2 points along an axis, more where there would be more tokens than this


@dataclass(frozen=True, kw_only=True)
class DiTOptions(Options):
    """A diffusion transformer."""

    width: Annotated[int, Limits(gt=0, multiple_of=HEAD_CHANNELS)]  # 16 channels per head
    patch: tuple[Count, ...] = ()  # points per axis; (): chosen for the grid

    def fitted(self, grid: Sizes, padding: Paddings) -> DiTOptions:
        made = self.patch or patches(grid, padding)
        if len(made) != len(grid):
            raise ValueError(f"the network's patch must have {len(grid)} sizes, one per axis, got {list(made)}")
        check_patch(grid, padding, made)
        return replace(self, patch=made)


def patches(grid: Sizes, padding: Paddings) -> Sizes:
    """2 points along each axis, or 4, 8, …, until there are at most 512 patches; along a periodic axis the largest
    divisor up to that, while the last patch of one with ends may be cut."""
    most = PATCH
    while True:
        made = tuple(
            max(p for p in range(1, min(most, n) + 1) if kind == "zeros" or n % p == 0)
            for n, kind in zip(grid, padding, strict=True)
        )
        if math.prod(-(-n // p) for n, p in zip(grid, made, strict=True)) <= TOKENS or most >= max(grid):
            return made
        most *= 2


def check_patch(grid: Sizes, padding: Paddings, patch: Sizes) -> None:
    """Refuse patches that do not fit a periodic axis."""
    if any(n % p for n, kind, p in zip(grid, padding, patch, strict=True) if kind == "circular"):
        raise ValueError(f"patches of {list(patch)} points do not divide the periodic axes of a grid of {list(grid)}")


class Turns(NamedTuple):
    """Cosines and sines of the angles by which the pairs of channels of each token are rotated."""

    cos: Float[Tensor, "T 1 P"]
    sin: Float[Tensor, "T 1 P"]

    @classmethod
    def of(cls, tokens: Sizes, padding: Paddings, like: Tensor) -> Turns:
        """The pairs take turns between the axes; an axis gets wavenumbers from 1 up to what its tokens resolve."""
        pairs, angles = HEAD_CHANNELS // 2, []
        for i, (n, kind) in enumerate(zip(tokens, padding, strict=True)):
            period = n if kind == "circular" else 2 * n
            count = len(range(i, pairs, len(tokens)))
            top = math.log(max(1, period // 2))
            k = torch.linspace(0, top, count, dtype=torch.float64, device=like.device).exp().round().long()
            angle = (torch.arange(n, device=like.device)[:, None] * k % period).double() * (2 * math.pi / period)
            around = [1] * i + [n] + [1] * (len(tokens) - 1 - i)
            angles.append(angle.reshape(*around, count).expand(*tokens, count))
        whole = torch.cat(angles, -1).reshape(-1, 1, pairs)
        return cls(whole.cos().to(like.dtype), whole.sin().to(like.dtype))

    def rotate(self, x: Float[Tensor, "B T H C"]) -> Float[Tensor, "B T H C"]:
        a, b = x.chunk(2, -1)
        return torch.cat([a * self.cos - b * self.sin, a * self.sin + b * self.cos], -1)


class DiTBlock(nn.Module):
    """x ← x + attention(norm(x)), then x ← x + MLP(norm(x)); both start at zero, both norms are told the log-SNR.

    The norms are over all tokens, as in the other networks, so that a strong patch stays stronger than a weak one.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.shift_channels = 4 * width
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = zero_linear(width, width)
        self.wide = nn.Linear(width, 2 * width)
        self.narrow = zero_linear(2 * width, width)

    def forward(self, x: Tokens, shift: Shift | None, turns: Turns) -> Tokens:
        first, second = (None, None) if shift is None else shift.chunk(2, -1)
        x = x + self.out(self._mixed(modulated(normed(x), first), turns))
        h = modulated(normed(x), second)
        y: Tokens = x + self.narrow(F.silu(self.wide(h)))
        return y

    def _mixed(self, h: Tokens, turns: Turns) -> Tokens:
        q, k, v = self.qkv(h).reshape(*h.shape[:2], 3, -1, HEAD_CHANNELS).unbind(2)
        q, k, v = (t.transpose(1, 2) for t in (turns.rotate(q), turns.rotate(k), v))  # (B, heads, T, channels)
        # Written out, because the fused kernels have no forward-mode derivative.
        mixed: Tensor = (q * HEAD_CHANNELS**-0.5 @ k.mT).softmax(-1) @ v
        return mixed.transpose(1, 2).reshape(h.shape)


class DiT(Chain):
    """Patches → linear layer → transformer blocks → linear layer → points."""

    ends = 8

    def __init__(self, shape: Shape, options: DiTOptions) -> None:
        super().__init__(shape, options, (DiTBlock(options.width) for _ in range(options.blocks)))
        self.patch, cells = options.patch, math.prod(options.patch)
        self.lift = loud(nn.Linear(cells * shape.inputs, options.width), shape)
        self.output = zero_linear(options.width, cells * shape.outputs)

    @property
    def strides(self) -> Sizes:
        return self.patch

    def enter(self, x: Field) -> Field:
        grid = x.shape[-1 - len(self.patch) : -1]
        check_patch(grid, self.shape.padding, self.patch)
        factors = with_row(self.patch)
        y: Field = self.lift(space_to_blocks(whole_blocks(x, factors), factors))
        return y

    def middle(self, x: Field, shifts: Iterator[Shift | None]) -> Field:
        turns = Turns.of(x.shape[-1 - len(self.patch) : -1], self.shape.padding, x)
        h = x.flatten(1, -2)
        for block in self.blocks:
            h = block(h, next(shifts), turns)
        return h.reshape(x.shape)

    def leave(self, x: Field, grid: Sizes) -> Field:
        return cropped(blocks_to_space(self.output(x), with_row(self.patch)), grid)


SIZES = {
    (1, "small"): {"width": 32, "blocks": 4},
    (1, "large"): {"width": 80, "blocks": 5},
    (2, "small"): {"width": 48, "blocks": 3},
    (2, "large"): {"width": 64, "blocks": 5},
    (3, "small"): {"width": 48, "blocks": 3},
    (3, "large"): {"width": 64, "blocks": 5},
}
dit = Architecture(
    "A small transformer on patches, told the log-SNR by scales and shifts, after Peebles and Xie",
    DiTOptions,
    SIZES,
    DiT,
)
