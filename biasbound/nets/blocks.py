"""The parts of a U-Net: blocks, attention, up- and downsampling, log-SNR embedding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from biasbound.nets.layers import (
    Conv,
    Field,
    GroupNorm,
    Paddings,
    Sizes,
    TransposedConv,
    blocks_to_space,
    cropped,
    normed,
    over_points,
    space_to_blocks,
    whole_blocks,
)

__all__ = ["Attention", "Axes", "ConvNeXtBlock", "Down", "Embedded", "LogSnrEmbedding", "ResidualBlock", "Up"]

Shift = Float[Tensor, "B C"]
HEADS, HEAD_CHANNELS = 4, 32


@dataclass(frozen=True)
class Axes:
    """The axes of a field as its convolutions see them, with one entry per dimension."""

    padding: Paddings  # beyond the ends: "circular" or "zeros"
    dilation: Sizes  # distance of the points that a kernel joins

    def conv(self, inside: int, outside: int, k: int, *, depthwise: bool = False) -> Conv:
        """A k-point (1-D), k×k (2-D) or k×k×k (3-D) convolution."""
        kernel, dilation = with_row((k,) * len(self.padding)), with_row(self.dilation)
        return Conv((inside, outside), kernel, self.paddings, dilation=dilation, depthwise=depthwise)

    @property
    def paddings(self) -> Paddings:
        return ("zeros", *self.padding) if len(self.padding) == 1 else self.padding


def with_row(sizes: Sizes) -> Sizes:
    """One number per axis of a field: a 1-D field has a first axis of one point."""
    return (1, *sizes) if len(sizes) == 1 else sizes


def modulated(h: Field, told: Shift | None) -> Field:
    """(1 + scale)·h + shift, where the log-SNR told scale and shift."""
    if told is None:
        return h
    scale, shift = over_points(told, h).chunk(2, -1)
    return torch.addcmul(shift, h, 1 + scale)


class ResidualBlock(nn.Module):
    """x + conv(SiLU(conv((1 + scale)·norm(x) + shift))): a lean block with one normalisation.

    Scale and shift come from the log-SNR. The normalisation has no scale and shift of its own,
    because the convolution that follows it provides both. The second convolution is initialised
    to zero, so a new network is a chain of identities.
    """

    def __init__(self, axes: Axes, inside: int, outside: int) -> None:
        super().__init__()
        assert inside == outside, "a residual block adds its input, so it keeps the channels"
        self.shift_channels = 2 * inside
        self.enter = axes.conv(inside, outside, 3)
        self.leave = axes.conv(outside, outside, 3)
        nn.init.zeros_(self.leave.weight)
        nn.init.zeros_(self.leave.bias)

    def forward(self, x: Field, shift: Shift | None) -> Field:
        h = modulated(normed(x), shift)
        y: Field = x + self.leave(F.silu(self.enter(h)))
        return y


class ConvNeXtBlock(nn.Module):
    """skip(x) + conv₃(norm(GELU(conv₃(norm(depthwise₇(x) + shift))))), the paper's block."""

    def __init__(self, axes: Axes, inside: int, outside: int) -> None:
        super().__init__()
        self.shift_channels = inside
        self.depthwise = axes.conv(inside, inside, 7, depthwise=True)
        self.enter_norm = GroupNorm(inside)
        self.enter = axes.conv(inside, outside, 3)
        self.leave_norm = GroupNorm(outside)
        self.leave = axes.conv(outside, outside, 3)
        self.skip = nn.Linear(inside, outside) if inside != outside else nn.Identity()

    def forward(self, x: Field, shift: Shift | None) -> Field:
        h = self.depthwise(x)
        if shift is not None:
            h = h + over_points(shift, h)
        h = F.gelu(self.enter(self.enter_norm(h)))
        out: Field = self.skip(x) + self.leave(self.leave_norm(h))
        return out


class Attention(nn.Module):
    """x + attention(norm(x)) over all grid points.

    There is no positional encoding, so shifting the input shifts the output. For n points,
    softmax(q kᵀ) v costs O(n²); `linear` replaces it by softmax(q) (softmax(k)ᵀ v), which is O(n).
    """

    def __init__(self, channels: int, *, linear: bool) -> None:
        super().__init__()
        inner = HEADS * HEAD_CHANNELS
        self.linear = linear
        self.norm = GroupNorm(channels)
        self.qkv = nn.Linear(channels, 3 * inner, bias=False)
        self.out = nn.Linear(inner, channels)
        self.out_norm = GroupNorm(channels) if linear else nn.Identity()

    def forward(self, x: Field) -> Field:
        qkv = self.qkv(self.norm(x)).reshape(x.shape[0], -1, 3, HEADS, HEAD_CHANNELS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, heads, points, channels)
        scale = HEAD_CHANNELS**-0.5
        if self.linear:  # noqa: SIM108 - one line would hide the two formulas
            mixed = (q.softmax(-1) * scale) @ (k.softmax(-2).mT @ v)
        else:  # written out, because the fused kernels have no forward-mode derivative
            mixed = (q * scale @ k.mT).softmax(-1) @ v
        mixed = mixed.transpose(1, 2).reshape(*x.shape[:-1], HEADS * HEAD_CHANNELS)
        out: Field = x + self.out_norm(self.out(mixed))
        return out


class Down(nn.Module):
    """To the next coarser level, with half the grid points along each axis whose factor is 2.

    ConvNeXt networks use a 4-point convolution of stride 2, residual networks merge 2-point
    blocks. An odd number of points is made even by repeating the last one, and only here: at both
    levels all points belong to the grid, and the convolutions see its end where it is.
    """

    def __init__(self, axes: Axes, factors: Sizes, channels: tuple[int, int], *, overlap: bool) -> None:
        super().__init__()
        self.factors, (inside, outside) = with_row(factors), channels
        if overlap:
            kernel = tuple(4 if f == 2 else 1 for f in self.factors)
            self.mix: nn.Module = Conv(channels, kernel, axes.paddings, stride=2)
        else:
            self.mix = nn.Linear(math.prod(self.factors) * inside, outside)

    def forward(self, x: Field) -> Field:
        x = whole_blocks(x, self.factors)
        y: Field = self.mix(x if isinstance(self.mix, Conv) else space_to_blocks(x, self.factors))
        return y


class Up(nn.Module):
    """Back to the grid of the next finer level, the counterpart of `Down`."""

    def __init__(self, axes: Axes, factors: Sizes, channels: tuple[int, int], *, overlap: bool) -> None:
        super().__init__()
        self.factors, (inside, outside) = with_row(factors), channels
        if overlap:
            kernel = tuple(4 if f == 2 else 1 for f in self.factors)
            self.mix: nn.Module = TransposedConv(channels, kernel, axes.paddings)
        else:
            self.mix = nn.Linear(inside, math.prod(self.factors) * outside)

    def forward(self, x: Field, grid: Sizes) -> Field:
        y: Field = self.mix(x)
        return cropped(y if isinstance(self.mix, TransposedConv) else blocks_to_space(y, self.factors), grid)


@runtime_checkable
class Embedded(Protocol):
    """What the options of every network say about the log-SNR."""

    @property
    def embedding(self) -> int: ...  # channels
    @property
    def frequency(self) -> float: ...  # the highest angular one, in radians per unit of log-SNR


class LogSnrEmbedding(nn.Module):
    """Map the log-SNR to the shifts of all blocks at once, (B,) → (B, channels).

    Sines and cosines at log-spaced frequencies from 2π/`PERIOD` up to `frequency`, followed by two
    layers. The longest wave exceeds the range of log-SNR values that occur (about −25 to 30), so
    no two levels share an embedding. The shortest wave is a few units long, so the network can
    interpolate between the levels that it was trained on.
    """

    PERIOD = 128.0

    def __init__(self, config: Embedded, channels: int) -> None:
        super().__init__()
        waves = config.embedding // 8
        low, high = math.log(2 * math.pi / self.PERIOD), math.log(config.frequency)
        frequencies = torch.linspace(low, high, waves, dtype=torch.float64).exp().float()
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.first = nn.Linear(2 * waves, config.embedding)
        self.second = nn.Linear(config.embedding, config.embedding)
        self.shifts = nn.Linear(config.embedding, channels)

    def features(self, log_snr: Float[Tensor, " B"]) -> Float[Tensor, "B F"]:
        assert isinstance(self.frequencies, Tensor)
        phase = log_snr[:, None] * self.frequencies
        return torch.cat([phase.sin(), phase.cos()], -1)

    def forward(self, log_snr: Float[Tensor, " B"]) -> Shift:
        h = F.silu(self.first(self.features(log_snr)))
        shifts: Shift = self.shifts(F.silu(self.second(h)))
        return shifts
