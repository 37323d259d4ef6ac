"""Derivatives on grids: spectral along periodic axes, second-order differences along others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from biasbound.metrics.arrays import Array, double

__all__ = ["derivative", "vorticity"]

T = TypeVar("T", bool, float)


def each_axis(value: T | Sequence[T], rank: int, what: str) -> tuple[T, ...]:
    """One entry per space axis, from one for all axes or one for each."""
    every = tuple(value) if isinstance(value, Sequence) else (value,) * rank
    if len(every) != rank:
        raise ValueError(f"{what} needs one entry for each of {rank} axes, got {len(every)}")
    return every


def derivative(field: Float[Tensor, " *N"], axis: int, *, periodic: bool, spacing: float) -> Float64[Tensor, " *N"]:
    """∂/∂x along one axis with points `spacing` apart.

    Periodic: exact for every resolved wave. The Nyquist wave of an even grid gives 0, since its
    derivative cannot be told on the grid.
    Otherwise: central differences, one-sided at the ends, both of second order.
    """
    field, n = field.double(), field.shape[axis]
    if not periodic:
        if n < 3:
            raise ValueError(f"a derivative along an axis that is not periodic needs 3 points there, got {n}")
        return torch.gradient(field, spacing=spacing, dim=axis, edge_order=2)[0]
    waves = 2 * math.pi / (n * spacing) * torch.fft.rfftfreq(n, 1 / n, dtype=torch.float64)
    if n % 2 == 0:
        waves[-1] = 0.0  # not every inverse transform drops the imaginary part here
    shape = [1] * field.ndim
    shape[axis] = len(waves)
    slopes = 1j * waves.reshape(shape) * torch.fft.rfft(field, dim=axis)
    found: Tensor = torch.fft.irfft(slopes, n, dim=axis)
    return found


def vorticity(
    field: Array, *, periodic: bool | Sequence[bool] = True, spacing: float | Sequence[float] = 1.0
) -> Float64[Tensor, "... 1 H W"]:
    """ω = ∂_x v − ∂_y u of a velocity (…, 2, H, W); axis −2 is x, axis −1 is y.

    `periodic` and `spacing` are one value, or one for x and one for y. A non-finite frame gives a
    non-finite vorticity.
    """
    if field.ndim < 3 or field.shape[-3] != 2:
        raise ValueError(f"vorticity needs a velocity (…, 2, H, W), but this field is {tuple(field.shape)}")
    (px, py), (dx, dy) = each_axis(periodic, 2, "periodic"), each_axis(spacing, 2, "spacing")
    u, v = double(field).unbind(-3)
    turning = derivative(v, -2, periodic=px, spacing=dx) - derivative(u, -1, periodic=py, spacing=dy)
    return turning.unsqueeze(-3)
