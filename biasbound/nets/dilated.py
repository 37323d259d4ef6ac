"""A dilated residual network, after Stachenfeld et al. (2022), "Learned coarse models for efficient turbulence simulation".

Each block passes the field through convolutions whose points are 1, 2, 4, 8, 4, 2 and 1 apart and adds the result. The
grid is never coarsened, so a shift by one point shifts the result, and any grid size will do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch.nn.functional as F
from pydantic import Field as Limits
from torch import nn

from biasbound.nets.blocks import Axes, Shift, modulated
from biasbound.nets.chain import Architecture, Chain, Count, Options, Shape, loud, zero_linear
from biasbound.nets.layers import Field, Paddings, Sizes, normed

__all__ = ["Dilated", "DilatedOptions", "dilated"]


@dataclass(frozen=True, kw_only=True)
class DilatedOptions(Options):
    """A dilated residual network."""

    dilations: Annotated[tuple[Count, ...], Limits(min_length=1)] = (1, 2, 4, 8, 4, 2, 1)  # of a block's convolutions


class DilatedBlock(nn.Module):
    """h = (1 + scale)·norm(x) + shift, then h ← norm(h + conv(SiLU(h))) for all convolutions but the last, which makes
    x + conv(SiLU(h)) and starts at zero.

    The sums and norms inside a block are ours: without them seven layers in a row need small learning rates.
    """

    def __init__(self, padding: Paddings, width: int, dilations: Sizes) -> None:
        super().__init__()
        self.shift_channels = 2 * width
        made = [Axes(padding, (d,) * len(padding)).conv(width, width, 3) for d in dilations]
        nn.init.zeros_(made[-1].weight)
        nn.init.zeros_(made[-1].bias)
        self.convs = nn.ModuleList(made)

    def forward(self, x: Field, shift: Shift | None) -> Field:
        h = modulated(normed(x), shift)
        *inner, last = self.convs
        for conv in inner:
            h = normed(h + conv(F.silu(h)))
        y: Field = x + last(F.silu(h))
        return y


class Dilated(Chain):
    """Convolution → dilated blocks → linear layer."""

    def __init__(self, shape: Shape, options: DilatedOptions) -> None:
        made = (DilatedBlock(shape.padding, options.width, options.dilations) for _ in range(options.blocks))
        super().__init__(shape, options, made)
        self.lift = loud(Axes(shape.padding, (1,) * len(shape.padding)).conv(shape.inputs, options.width, 3), shape)
        self.output = zero_linear(options.width, shape.outputs)

    def leave(self, x: Field, grid: Sizes) -> Field:
        y: Field = self.output(x)
        return y


SIZES = {
    (1, "small"): {"width": 32, "blocks": 2},
    (1, "large"): {"width": 64, "blocks": 4},
    (2, "small"): {"width": 24, "blocks": 2},
    (2, "large"): {"width": 32, "blocks": 4},
    (3, "small"): {"width": 16, "blocks": 2},
    (3, "large"): {"width": 16, "blocks": 6},
}
dilated = Architecture(
    "A dilated residual network: convolutions that reach far on the full grid, after Stachenfeld et al.",
    DilatedOptions,
    SIZES,
    Dilated,
)
