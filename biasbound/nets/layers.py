r"""Convolutions on fields of shape (B, *N, C), where N has two or three axes.

Channels come last, so that 1×1 convolutions, attention and the shifts of the embedding are plain
matrix operations, and oneDNN convolves without reordering. A 1-D field has the axes (1, W) and
kernels (1, k), so the same code serves one, two and three dimensions.

Three choices rest on measurements (benchmarks/throughput.py, docs/log.md). A 1-D convolution is one
matrix product over shifted copies. A 2-D or 3-D convolution uses oneDNN, on a field padded in a way
whose derivative is cheap. In a compiled network, 3-point kernels on lines and planes work on tiles
(`winograd`), which is half the work or less.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from biasbound.nets.winograd import fits, winograd

__all__ = [
    "Conv",
    "Field",
    "GroupNorm",
    "TransposedConv",
    "blocks_to_space",
    "channels_first",
    "channels_last",
    "cropped",
    "extended",
    "normed",
    "over_points",
    "space_to_blocks",
    "uniform",
    "whole_blocks",
]

Field = Float[Tensor, "B *_N _C"]
Sizes = tuple[int, ...]
Paddings = tuple[str, ...]


def channels_last(x: Float[Tensor, "B C *N"]) -> Field:
    """(B, C, *N) → (B, *N, C); a single axis gets one of one point before it."""
    x = x.unsqueeze(2) if x.ndim == 3 else x
    return x.movedim(1, -1).contiguous()


def channels_first(x: Field, dims: int) -> Float[Tensor, "B C *N"]:
    """The inverse of `channels_last` for fields of `dims` dimensions."""
    y = x.movedim(-1, 1).contiguous()
    return y.squeeze(2) if dims == 1 else y


def over_points(shift: Float[Tensor, "B C"], x: Field) -> Field:
    """(B, C) → (B, 1, …, 1, C), which is the same at all points of x."""
    return shift.reshape(shift.shape[0], *[1] * (x.ndim - 2), shift.shape[1])


def extended(x: Field, grid: Sizes) -> Field:
    """With zeros after the end of each axis, up to the sizes `grid`; x itself where it has them."""
    missing = [n - m for n, m in zip(grid, x.shape[1:-1], strict=True)]
    return F.pad(x, [0, 0, *(p for n in reversed(missing) for p in (0, n))]) if any(missing) else x


def whole_blocks(x: Field, factors: Sizes) -> Field:
    """With the last cell of each axis repeated until the axis is a multiple of its factor; x itself if it is one.

    A block that the end cuts then looks like any other. On the heat equation between walls (33 and 35 points, three
    seeds) a U-Net learnt better so than with zeros where the field is 0 at the walls, and alike where its slope is.
    """
    for axis, f in enumerate(factors, 1):
        missing = -x.shape[axis] % f
        x = torch.cat([x, *[x.narrow(axis, -1, 1)] * missing], axis) if missing else x
    return x


def cropped(x: Field, grid: Sizes) -> Field:
    """The first points of each axis: undoes `extended` and `whole_blocks`."""
    for axis, n in enumerate(grid, 1):
        x = x if x.shape[axis] == n else x.narrow(axis, 0, n)
    return x


def normed(x: Field) -> Field:
    """Mean 0 and variance 1 over the points and channels of each sample."""
    return F.layer_norm(x, x.shape[1:])


class Conv(nn.Module):
    """A convolution that keeps the grid (stride 1) or halves it (stride 2, kernel 4).

    Kernel, padding ("circular" or "zeros") and dilation have one entry per axis. Along an axis where
    the kernel has extent 1, the others are not used, and the grid is kept.
    """

    def __init__(
        self,
        channels: tuple[int, int],
        kernel: Sizes,
        padding: Paddings,
        *,
        stride: int = 1,
        dilation: Sizes | None = None,
        depthwise: bool = False,
    ) -> None:
        super().__init__()
        inside, outside = channels
        self.weight = nn.Parameter(torch.empty(outside, *kernel, 1 if depthwise else inside))
        self.bias = nn.Parameter(torch.empty(outside))
        self.kernel, self.padding = kernel, padding
        self.stride = tuple(1 if k == 1 else stride for k in kernel)
        self.dilation = dilation or (1,) * len(kernel)
        self.reach = tuple((k - 1) // 2 * d for k, d in zip(kernel, self.dilation, strict=True))
        self.groups = inside if depthwise else 1
        self.row = set(kernel[:-1]) == {1} and self.groups == 1 and set(self.stride) == {1}
        self.tiled = {*self.stride, *self.dilation, self.groups} == {1}
        uniform(self.weight, self.bias, fan_in=self.weight[0].numel())

    def forward(self, x: Field) -> Field:
        if self.tiled and _compiles() and fits(self.weight, x):
            return winograd(x, self.weight, self.bias, self.padding)
        if self.row:
            columns = shifted_copies(x, self.kernel[-1], self.padding[-1], self.dilation[-1])
            return F.linear(columns, self.weight.flatten(1), self.bias)
        x, zeros = wrap(x, self.reach, self.padding)
        weight, convolve = self.weight.movedim(-1, 1), F.conv2d if x.ndim == 4 else F.conv3d
        y = convolve(x.movedim(-1, 1), weight, self.bias, self.stride, zeros, self.dilation, self.groups)
        return y.movedim(1, -1)


class TransposedConv(nn.Module):
    """A transposed convolution (kernel 4, stride 2).

    It doubles the grid along every axis where the kernel has an extent above 1.
    """

    def __init__(self, channels: tuple[int, int], kernel: Sizes, padding: Paddings) -> None:
        super().__init__()
        inside, outside = channels
        self.weight = nn.Parameter(torch.empty(inside, *kernel, outside))
        self.bias = nn.Parameter(torch.empty(outside))
        self.kernel, self.padding = kernel, padding
        uniform(self.weight, self.bias, fan_in=self.weight[0].numel())

    def forward(self, x: Field) -> Field:
        reach = tuple(int(k > 1) for k in self.kernel)
        stride = tuple(1 + r for r in reach)
        x, zeros = wrap(x, reach, self.padding)
        # Each cell of circular padding becomes two cells of the output, which are cropped here.
        cut = tuple(r + 2 * (r - z) for r, z in zip(reach, zeros, strict=True))
        weight, convolve = self.weight.movedim(-1, 1), F.conv_transpose2d if x.ndim == 4 else F.conv_transpose3d
        return convolve(x.movedim(-1, 1), weight, self.bias, stride, cut).movedim(1, -1)


class GroupNorm(nn.Module):
    """Normalise each sample over channels and points, then scale and shift each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Field) -> Field:
        return torch.addcmul(self.bias, normed(x), self.weight)


def uniform(*parameters: Tensor, fan_in: int) -> None:
    """U(−1/√fan_in, 1/√fan_in), PyTorch's default for linear layers and convolutions."""
    for parameter in parameters:
        nn.init.uniform_(parameter, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))


def space_to_blocks(x: Field, factors: Sizes) -> Field:
    """(B, …, N, …, C) → (B, …, N/f, …, ∏f·C): the cells of a block become channels."""
    axes, coarse = len(factors), tuple(n // f for n, f in zip(x.shape[1:-1], factors, strict=True))
    pairs = [size for pair in zip(coarse, factors, strict=True) for size in pair]
    cells = x.reshape(x.shape[0], *pairs, x.shape[-1])
    cells = cells.permute(0, *range(1, 2 * axes, 2), *range(2, 2 * axes + 1, 2), 2 * axes + 1)
    return cells.reshape(x.shape[0], *coarse, math.prod(factors) * x.shape[-1])


def blocks_to_space(x: Field, factors: Sizes) -> Field:
    """The inverse of `space_to_blocks`."""
    axes, channels = len(factors), x.shape[-1] // math.prod(factors)
    cells = x.reshape(*x.shape[:-1], *factors, channels)
    order = [place for i in range(1, axes + 1) for place in (i, axes + i)]
    fine = [n * f for n, f in zip(x.shape[1:-1], factors, strict=True)]
    return cells.permute(0, *order, 2 * axes + 1).reshape(x.shape[0], *fine, channels)


def shifted_copies(x: Field, taps: int, padding: str, dilation: int = 1) -> Field:
    """(B, *N, C) → (B, *N, taps·C): the neighbours of each point along the last axis, left to right."""
    reach = taps // 2
    if taps > 1 and padding == "circular" and _gathers(x):
        near = _neighbours(x.shape[1:-1], tuple(range(-reach * dilation, (taps - reach) * dilation, dilation)))
        return _gathered(x, near).reshape(*x.shape[:-1], taps * x.shape[-1])
    copies = [x if by == 0 else _shifted(x, by * dilation, padding) for by in range(reach, reach - taps, -1)]
    return torch.cat(copies, -1) if taps > 1 else x


def _shifted(x: Field, by: int, padding: str) -> Field:
    if padding == "circular":
        return x.roll(by, -2)
    # Padding by −n crops, so that both cases and both derivatives need one copy only.
    return F.pad(x, (0, 0, by, -by)) if abs(by) < x.shape[-2] else torch.zeros_like(x)


def wrap(x: Field, reach: Sizes, padding: Paddings) -> tuple[Field, Sizes]:
    """Pad the circular axes by `reach` cells; also return the zero padding due on the others."""
    zeros = tuple(r if kind == "zeros" else 0 for r, kind in zip(reach, padding, strict=True))
    beyond = tuple(r - z for r, z in zip(reach, zeros, strict=True))
    if any(beyond) and _gathers(x):
        grid = tuple(n + 2 * r for n, r in zip(x.shape[1:-1], beyond, strict=True))
        return _gathered(x, _wrapped(x.shape[1:-1], beyond)).reshape(x.shape[0], *grid, x.shape[-1]), zeros
    for axis, (r, z) in enumerate(zip(reach, zeros, strict=True), 1):
        x = _continued(x, axis, r) if r > z else x
    return x, zeros


def _continued(x: Field, axis: int, r: int) -> Field:
    n = x.shape[axis]
    if n < r:  # round more than once
        return x.index_select(axis, torch.arange(-r, n + r, device=x.device) % n)
    if n < 2 * r:
        return torch.cat([x.narrow(axis, n - r, r), x, x.narrow(axis, 0, r)], axis)
    # Disjoint pieces make the derivative one copy and two additions at the border. With
    # overlapping slices, as in F.pad, the derivative of each slice fills a whole field with zeros,
    # which costs as much as half a convolution.
    first, middle, last = torch.split_with_sizes(x, [r, n - 2 * r, r], axis)
    return torch.cat([last, first, middle, last, first], axis)


def _compiles() -> bool:
    """Whether this becomes code for this machine, not a program for any."""
    return torch.compiler.is_compiling() and not torch.compiler.is_exporting()


def _gathers(x: Field) -> bool:
    """Whether neighbours are gathered by one index: a third of the work of joining pieces, but only without a gradient,
    since that of an index adds point by point."""
    plain = type(x) is Tensor and x.device.type == "cpu" and not torch.compiler.is_compiling()
    return plain and not (torch.is_grad_enabled() and x.requires_grad)


def _gathered(x: Field, points: Int64[Tensor, " P"]) -> Float[Tensor, "B P C"]:
    return x.flatten(1, -2).index_select(1, points)


@lru_cache(64)
def _neighbours(grid: Sizes, steps: Sizes) -> Int64[Tensor, " P"]:
    """For each point of a grid, the points at these steps along its last axis, which is a circle."""
    place = np.arange(math.prod(grid)).reshape(grid)
    return _index(np.stack([np.roll(place, -step, -1) for step in steps], -1))


@lru_cache(64)
def _wrapped(grid: Sizes, beyond: Sizes) -> Int64[Tensor, " P"]:
    """The points of a grid that is continued by `beyond` cells at both ends of each axis, round and round."""
    return _index(np.pad(np.arange(math.prod(grid)).reshape(grid), [(r, r) for r in beyond], "wrap"))


@torch.inference_mode(False)  # it is kept, and a derivative may ask for it later
def _index(points: Int64[np.ndarray, "*_N"]) -> Int64[Tensor, " P"]:
    return torch.from_numpy(points.ravel())
