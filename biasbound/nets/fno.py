"""A Fourier neural operator whose spectral layers work along one axis at a time (Li et al. 2021, Tran et al. 2023).

A spectral layer multiplies the lowest Fourier modes along an axis by matrices of their own and drops the others. With
one axis it is the layer of the original; with more, the sum over axes has dims·modes matrices instead of modes^dims. The
weights belong to wavenumbers, not to points, so a network works on any grid, a shift by any number of points shifts the
result, and a finer grid gives the same field as far as the nonlinearities between the layers do not alias.

Few modes are taken by matrix products with cosines and sines, which on a CPU is quicker than transforming everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from biasbound.nets.blocks import Shift, modulated
from biasbound.nets.chain import Architecture, Chain, Count, Options, Shape, loud, zero_linear
from biasbound.nets.layers import Field, Paddings, Sizes, cropped, extended, normed, uniform

__all__ = ["FNO", "FNOOptions", "SpectralLayer", "Waves", "fno"]


@dataclass(frozen=True, kw_only=True)
class FNOOptions(Options):
    """A Fourier neural operator."""

    modes: Count  # the highest wavenumber along an axis; never above what its grid resolves

    def fitted(self, grid: Sizes, padding: Paddings) -> FNOOptions:
        most = max(highest(n) for n in padded(grid, padding))
        return replace(self, modes=max(1, min(self.modes, most)))


def padded(grid: Sizes, padding: Paddings) -> Sizes:
    """An axis with ends goes on for a quarter of its length, so that its ends do not meet.

    It goes on in zeros: where they begin the network sees the end. With the last value repeated instead, the error was
    seven times as large or more on the heat equation between walls.
    """
    return tuple(n if kind == "circular" else n + -(-n // 4) for n, kind in zip(grid, padding, strict=True))


def highest(points: int) -> int:
    """The highest wavenumber below the Nyquist one, of which a grid cannot tell the sine."""
    return (points - 1) // 2


class Waves(NamedTuple):
    """Cosines and sines of the wavenumbers 0 … m along one axis."""

    dim: int  # of the axis in a field, counted from the end
    values: Float[Tensor, "n 2m"]
    weights: Float[Tensor, " 2m"]  # a coefficient is this times a sum over the points

    @classmethod
    def along(cls, x: Field, dim: int, modes: int) -> Waves:
        n = x.shape[dim]
        k = torch.arange(min(modes, highest(n)) + 1, device=x.device)
        # Whole numbers modulo n, and double precision, so that a shifted wave is the same wave.
        phase = (torch.arange(n, device=x.device)[:, None] * k % n).double() * (2 * math.pi / n)
        values = torch.cat([phase.cos(), phase.sin()], 1).to(x.dtype)
        weights = (torch.where(k == 0, 1, 2).to(x.dtype) / n).repeat(2)
        return cls(dim, values, weights)


class SpectralLayer(nn.Module):
    """y = Σ over axes of Σ_k W_k x̂_k e^(2πikp/n), with complex W_k, for wavenumbers |k| ≤ modes.

    With x = Σ_k (c_k cos + s_k sin) and W_k = A_k + i B_k, the new coefficients are c' = A c + B s and
    s' = A s − B c.
    """

    def __init__(self, width: int, axes: int, modes: int) -> None:
        super().__init__()
        # Outputs first, as optimisers that treat a kernel as a matrix expect it; then per axis A and B, each
        # (modes + 1, in). B_0 has no effect, as wavenumber 0 has no sine.
        self.weight = nn.Parameter(torch.empty(width, axes, 2, modes + 1, width))
        uniform(self.weight, fan_in=2 * axes * width)

    def forward(self, x: Field, waves: list[Waves]) -> Field:
        y = torch.zeros_like(x)
        for weight, one in zip(self.weight.unbind(1), waves, strict=True):
            a, b = weight[:, :, : one.values.shape[1] // 2].unbind(1)  # each (C, kept, C)
            rows = x.movedim(one.dim, -2)
            found = (one.values * one.weights).T @ rows  # (…, 2·kept, C): cosines, then sines
            pairs = torch.cat(found.tensor_split(2, -2), -1)  # (…, kept, 2C)
            mix = torch.cat([torch.cat([a, b], -1), torch.cat([-b, a], -1)])  # (2C, kept, 2C)
            mixed = torch.einsum("...ki,oki->...ko", pairs, mix)
            made = one.values @ torch.cat(mixed.tensor_split(2, -1), -2)
            y = y + made.movedim(-2, one.dim)
        return y


class FourierBlock(nn.Module):
    """x + linear(SiLU(spectral(h) + local(h))) with h = (1 + scale)·norm(x) + shift; `linear` starts at zero."""

    def __init__(self, width: int, axes: int, modes: int) -> None:
        super().__init__()
        self.shift_channels = 2 * width
        self.spectral = SpectralLayer(width, axes, modes)
        self.local = nn.Linear(width, width)
        self.leave = zero_linear(width, width)

    def forward(self, x: Field, shift: Shift | None, waves: list[Waves]) -> Field:
        h = modulated(normed(x), shift)
        y: Field = x + self.leave(F.silu(self.spectral(h, waves) + self.local(h)))
        return y


class FNO(Chain):
    """Linear layer → Fourier blocks, on a grid padded where it has ends → linear layer."""

    def __init__(self, shape: Shape, options: FNOOptions) -> None:
        axes = len(shape.padding)
        made = (FourierBlock(options.width, axes, options.modes) for _ in range(options.blocks))
        super().__init__(shape, options, made)
        self.modes = options.modes
        self.lift = loud(nn.Linear(shape.inputs, options.width), shape)
        self.output = zero_linear(options.width, shape.outputs)

    def middle(self, x: Field, shifts: Iterator[Shift | None]) -> Field:
        axes = len(self.shape.padding)
        x = extended(x, (*x.shape[1 : -1 - axes], *padded(x.shape[-1 - axes : -1], self.shape.padding)))
        waves = [Waves.along(x, dim, self.modes) for dim in range(-1 - axes, -1)]
        for block in self.blocks:
            x = block(x, next(shifts), waves)
        return x

    def leave(self, x: Field, grid: Sizes) -> Field:
        y: Field = self.output(cropped(x, grid))
        return y


SIZES = {
    (1, "small"): {"width": 24, "blocks": 3, "modes": 12},
    (1, "large"): {"width": 48, "blocks": 4, "modes": 16},
    (2, "small"): {"width": 24, "blocks": 3, "modes": 8},
    (2, "large"): {"width": 32, "blocks": 4, "modes": 12},
    (3, "small"): {"width": 24, "blocks": 3, "modes": 6},
    (3, "large"): {"width": 32, "blocks": 5, "modes": 8},
}
fno = Architecture(
    "A Fourier neural operator: weights for the lowest wavenumbers along each axis, on any grid",
    FNOOptions,
    SIZES,
    FNO,
)
