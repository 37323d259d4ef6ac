"""Where a point is, for networks that cannot tell by themselves.

A network that treats all points of a periodic axis alike does not know where a force stands that the data do not show. It
has to guess the place from the field, and may learn the guesses of its training trajectories by heart. Told the lowest
waves along the axis, it need not guess. (A U-Net on such an axis knows its place up to the coarsest stride.)
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from biasbound.nets.layers import Field, Paddings, Sizes

__all__ = ["Places", "waves"]


def waves(grid: Sizes, padding: Paddings, harmonics: Sizes, like: Tensor) -> Float[Tensor, "*_N F"]:
    """Along each axis cos(2πkp/n) and sin(2πkp/n) where it is periodic, cos(πk(p + ½)/n) where it has ends; k = 1 … K."""
    found = []
    for axis, (n, kind, most) in enumerate(zip(grid, padding, harmonics, strict=True)):
        p, k = (torch.arange(m, device=like.device) for m in (n, most + 1))
        if kind == "circular":  # whole numbers modulo n, so that a shifted wave is the same wave
            phase = (p[:, None] * k[1:] % n).double() * (2 * math.pi / n)
            wave = torch.cat([phase.cos(), phase.sin()], -1)
        else:
            wave = ((p[:, None] + 0.5).double() * k[1:] * (math.pi / n)).cos()
        around = [1] * axis + [n] + [1] * (len(grid) - 1 - axis)
        found.append(wave.reshape(*around, -1).expand(*grid, wave.shape[-1]))
    return torch.cat(found, -1).to(like.dtype)


class Places(nn.Linear):
    """h + W·waves: each point of a latent field is told its place by `harmonics` waves per axis, 0 for none."""

    def __init__(self, padding: Paddings, harmonics: Sizes, width: int) -> None:
        told = sum(k * (1 + (kind == "circular")) for k, kind in zip(harmonics, padding, strict=True))
        with torch.random.fork_rng(devices=[]):  # so that all other weights start as they would without places
            torch.manual_seed(torch.initial_seed() + 1)
            super().__init__(told, width, bias=False)
        self.axes, self.harmonics = padding, harmonics

    def forward(self, h: Field) -> Field:
        y: Field = h + super().forward(waves(h.shape[-1 - len(self.axes) : -1], self.axes, self.harmonics, h))
        return y
