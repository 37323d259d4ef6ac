"""Configurations that the tests of networks share."""

from dataclasses import replace

import torch

from biasbound.nets import UNetConfig

LEAN = UNetConfig(2, 1, width=8, embedding=16)


PAPER_LIKE = UNetConfig(2, 1, width=12, block="convnext", blocks=2, middle=True, attention=True, embedding=16)


ROUND = ("circular", "circular")


CONFIGS = {
    "lean 1-D": LEAN,
    "lean 2-D": replace(LEAN, dims=2, padding=ROUND),
    "lean 1-D with attention": replace(LEAN, attention=True, multipliers=(1, 2)),
    "lean 2-D with middle": replace(LEAN, dims=2, padding=ROUND, middle=True, blocks=2),
    "paper 1-D": PAPER_LIKE,
    "paper 2-D": replace(PAPER_LIKE, dims=2, padding=ROUND),
    "lean 3-D": replace(LEAN, dims=3, padding=ROUND[:1] * 3, multipliers=(1, 2)),
    "paper 3-D": replace(PAPER_LIKE, dims=3, padding=ROUND[:1] * 3, multipliers=(1, 1), blocks=1),
    "lean 1-D, halved once": replace(LEAN, halvings=(1,)),
    "lean 2-D, one axis kept": replace(LEAN, dims=2, padding=ROUND, halvings=(0, 2)),
    "paper 2-D, one axis kept": replace(PAPER_LIKE, dims=2, padding=ROUND, halvings=(2, 0)),
    "paper 2-D without attention": replace(PAPER_LIKE, dims=2, padding=ROUND, attention=False, multipliers=(1, 2, 1)),
}


def fields_for(config, batch=3, times=(4, 5, 3), seed=0):
    """Random inputs on a grid of a few times the network's stride along each axis, and log-SNRs."""
    rng = torch.Generator().manual_seed(seed)
    grid = [n * stride for n, stride in zip(times, config.strides, strict=False)]
    inputs = torch.randn(batch, config.in_channels, *grid, generator=rng)
    return inputs, torch.linspace(-8, 12, batch)
