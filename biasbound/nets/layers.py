r"""Convolutions on fields of shape (B, H, W, C).

Channels come last, so that 1×1 convolutions, attention and the shifts of the embedding are plain
matrix operations, and oneDNN convolves without reordering. A 1-D field has H = 1 and kernels (1,
k), so the same code serves 1-D and 2-D.

Two choices rest on measurements (benchmarks/throughput.py, docs/log.md). A 1-D convolution is one
matrix product over shifted copies. A 2-D convolution uses oneDNN, on a field padded in a way whose
derivative is cheap.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["Conv", "Field", "GroupNorm", "TransposedConv", "blocks_to_space", "space_to_blocks"]

Field = Float[Tensor, "B _H _W _C"]
Pair = tuple[int, int]


class Conv(nn.Module):
    """A convolution that keeps the grid (stride 1) or halves it (stride 2, kernel 4).

    `padding` is "circular" or "zeros" for each of the axes H and W. It is not used along an axis
    where the kernel has extent 1.
    """

    def __init__(
        self, channels: Pair, kernel: Pair, padding: tuple[str, str], *, stride: int = 1, depthwise: bool = False
    ) -> None:
        super().__init__()
        inside, outside = channels
        self.weight = nn.Parameter(torch.empty(outside, *kernel, 1 if depthwise else inside))
        self.bias = nn.Parameter(torch.empty(outside))
        self.kernel, self.padding = kernel, padding
        self.stride = (1 if kernel[0] == 1 else stride, stride)
        self.groups = inside if depthwise else 1
        _uniform(self.weight, self.bias, fan_in=self.weight[0].numel())

    def forward(self, x: Field) -> Field:
        if self.kernel[0] == 1 and self.groups == 1 and self.stride == (1, 1):
            columns = shifted_copies(x, self.kernel[1], self.padding[1])
            return F.linear(columns, self.weight.flatten(1), self.bias)
        reach = ((self.kernel[0] - 1) // 2, (self.kernel[1] - 1) // 2)
        x, zeros = wrap(x, reach, self.padding)
        weight = self.weight.permute(0, 3, 1, 2)
        y = F.conv2d(x.permute(0, 3, 1, 2), weight, self.bias, self.stride, zeros, groups=self.groups)
        return y.permute(0, 2, 3, 1)


class TransposedConv(nn.Module):
    """A transposed convolution (kernel 4, stride 2).

    It doubles the grid along every axis where the kernel has an extent above 1.
    """

    def __init__(self, channels: Pair, kernel: Pair, padding: tuple[str, str]) -> None:
        super().__init__()
        inside, outside = channels
        self.weight = nn.Parameter(torch.empty(inside, *kernel, outside))
        self.bias = nn.Parameter(torch.empty(outside))
        self.kernel, self.padding = kernel, padding
        _uniform(self.weight, self.bias, fan_in=self.weight[0].numel())

    def forward(self, x: Field) -> Field:
        reach = (int(self.kernel[0] > 1), int(self.kernel[1] > 1))
        stride = (1 + reach[0], 1 + reach[1])
        x, zeros = wrap(x, reach, self.padding)
        # Each cell of circular padding becomes two cells of the output, which are cropped here.
        cut = tuple(r + 2 * (r - z) for r, z in zip(reach, zeros, strict=True))
        weight = self.weight.permute(0, 3, 1, 2)
        y = F.conv_transpose2d(x.permute(0, 3, 1, 2), weight, self.bias, stride, cut)
        return y.permute(0, 2, 3, 1)


class GroupNorm(nn.Module):
    """Normalise each sample over channels and points, then scale and shift each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Field) -> Field:
        return torch.addcmul(self.bias, F.layer_norm(x, x.shape[1:]), self.weight)


def _uniform(*parameters: Tensor, fan_in: int) -> None:
    """U(−1/√fan_in, 1/√fan_in), PyTorch's default for linear layers and convolutions."""
    for parameter in parameters:
        nn.init.uniform_(parameter, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))


def space_to_blocks(x: Field, factors: Pair) -> Field:
    """(B, H, W, C) → (B, H/f, W/g, f·g·C): the cells of a block become channels."""
    b, h, w, c = x.shape
    f, g = factors
    cells = x.reshape(b, h // f, f, w // g, g, c).transpose(2, 3)
    return cells.reshape(b, h // f, w // g, f * g * c)


def blocks_to_space(x: Field, factors: Pair) -> Field:
    """The inverse of `space_to_blocks`."""
    b, h, w, c = x.shape
    f, g = factors
    cells = x.reshape(b, h, w, f, g, c // (f * g)).transpose(2, 3)
    return cells.reshape(b, h * f, w * g, c // (f * g))


def shifted_copies(x: Field, taps: int, padding: str) -> Field:
    """(B, H, W, C) → (B, H, W, taps·C): the neighbours of each point along W, left to right."""
    reach = taps // 2
    copies = [x if by == 0 else _shifted(x, by, padding) for by in range(reach, reach - taps, -1)]
    return torch.cat(copies, -1) if taps > 1 else x


def _shifted(x: Field, by: int, padding: str) -> Field:
    # Padding by −n crops, so that both cases and both derivatives need one copy only.
    return x.roll(by, 2) if padding == "circular" else F.pad(x, (0, 0, by, -by))


def wrap(x: Field, reach: Pair, padding: tuple[str, str]) -> tuple[Field, Pair]:
    """Pad the circular axes by `reach` cells; also return the zero padding due on the others."""
    zeros = [0, 0]
    for i, (r, kind) in enumerate(zip(reach, padding, strict=True)):
        if kind == "zeros":
            zeros[i] = r
        elif r:
            x = _continued(x, i + 1, r)
    return x, (zeros[0], zeros[1])


def _continued(x: Tensor, axis: int, r: int) -> Tensor:
    n = x.shape[axis]
    if n < 2 * r:
        return torch.cat([x.narrow(axis, n - r, r), x, x.narrow(axis, 0, r)], axis)
    # Disjoint pieces make the derivative one copy and two additions at the border. With
    # overlapping slices, as in F.pad, the derivative of each slice fills a whole field with zeros,
    # which costs as much as half a convolution.
    first, middle, last = torch.split_with_sizes(x, [r, n - 2 * r, r], axis)
    return torch.cat([last, first, middle, last, first], axis)
