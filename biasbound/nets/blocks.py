"""The parts of a U-Net: blocks, attention, up- and downsampling, log-SNR embedding."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from biasbound.nets.config import UNetConfig
from biasbound.nets.layers import Conv, Field, GroupNorm, TransposedConv, blocks_to_space, space_to_blocks

__all__ = ["Attention", "ConvNeXtBlock", "Down", "LogSnrEmbedding", "ResidualBlock", "Up", "conv"]

Shift = Float[Tensor, "B C"]
HEADS, HEAD_CHANNELS = 4, 32


def conv(config: UNetConfig, inside: int, outside: int, k: int, *, depthwise: bool = False) -> Conv:
    """A k-point (1-D) or k×k (2-D) convolution with the padding of the config."""
    return Conv((inside, outside), _kernel(config, k), _padding(config), depthwise=depthwise)


def _kernel(config: UNetConfig, k: int) -> tuple[int, int]:
    return (1, k) if config.dims == 1 else (k, k)


def _padding(config: UNetConfig) -> tuple[str, str]:
    return (config.padding[0], config.padding[-1])


class ResidualBlock(nn.Module):
    """x + conv(SiLU(conv((1 + scale)·norm(x) + shift))): a lean block with one normalisation.

    Scale and shift come from the log-SNR. The normalisation has no scale and shift of its own,
    because the convolution that follows it provides both. The second convolution is initialised
    to zero, so a new network is a chain of identities.
    """

    def __init__(self, config: UNetConfig, inside: int, outside: int) -> None:
        super().__init__()
        assert inside == outside, "a residual block adds its input, so it keeps the channels"
        self.shift_channels = 2 * inside
        self.enter = conv(config, inside, outside, 3)
        self.leave = conv(config, outside, outside, 3)
        nn.init.zeros_(self.leave.weight)
        nn.init.zeros_(self.leave.bias)

    def forward(self, x: Field, shift: Shift | None) -> Field:
        h = F.layer_norm(x, x.shape[1:])
        if shift is not None:
            scale, shift = shift[:, None, None].chunk(2, -1)
            h = torch.addcmul(shift, h, 1 + scale)
        y: Field = x + self.leave(F.silu(self.enter(h)))
        return y


class ConvNeXtBlock(nn.Module):
    """skip(x) + conv₃(norm(GELU(conv₃(norm(depthwise₇(x) + shift))))), the paper's block."""

    def __init__(self, config: UNetConfig, inside: int, outside: int) -> None:
        super().__init__()
        self.shift_channels = inside
        self.depthwise = conv(config, inside, inside, 7, depthwise=True)
        self.enter_norm = GroupNorm(inside)
        self.enter = conv(config, inside, outside, 3)
        self.leave_norm = GroupNorm(outside)
        self.leave = conv(config, outside, outside, 3)
        self.skip = nn.Linear(inside, outside) if inside != outside else nn.Identity()

    def forward(self, x: Field, shift: Shift | None) -> Field:
        h = self.depthwise(x)
        if shift is not None:
            h = h + shift[:, None, None]
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
        qkv = self.qkv(self.norm(x)).reshape(len(x), -1, 3, HEADS, HEAD_CHANNELS)
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
    """To the next coarser level, with half the grid points along each axis.

    ConvNeXt networks use a 4-point convolution of stride 2, residual networks merge 2-point
    blocks.
    """

    def __init__(self, config: UNetConfig, inside: int, outside: int) -> None:
        super().__init__()
        self.factors = _kernel(config, 2)
        if config.block == "convnext":
            kernel, padding = _kernel(config, 4), _padding(config)
            self.mix: nn.Module = Conv((inside, outside), kernel, padding, stride=2)
        else:
            self.mix = nn.Linear(math.prod(self.factors) * inside, outside)

    def forward(self, x: Field) -> Field:
        y: Field = self.mix(x if isinstance(self.mix, Conv) else space_to_blocks(x, self.factors))
        return y


class Up(nn.Module):
    """Back to the next finer level, the counterpart of `Down`."""

    def __init__(self, config: UNetConfig, inside: int, outside: int) -> None:
        super().__init__()
        self.factors = _kernel(config, 2)
        if config.block == "convnext":
            kernel, padding = _kernel(config, 4), _padding(config)
            self.mix: nn.Module = TransposedConv((inside, outside), kernel, padding)
        else:
            self.mix = nn.Linear(inside, math.prod(self.factors) * outside)

    def forward(self, x: Field) -> Field:
        y: Field = self.mix(x)
        return y if isinstance(self.mix, TransposedConv) else blocks_to_space(y, self.factors)


class LogSnrEmbedding(nn.Module):
    """Map the log-SNR to the shifts of all blocks at once, (B,) → (B, channels).

    Sines and cosines at log-spaced frequencies from 2π/`PERIOD` up to `frequency`, followed by two
    layers. The longest wave exceeds the range of log-SNR values that occur (about −25 to 30), so
    no two levels share an embedding. The shortest wave is a few units long, so the network can
    interpolate between the levels that it was trained on.
    """

    PERIOD = 128.0

    def __init__(self, config: UNetConfig, channels: int) -> None:
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
