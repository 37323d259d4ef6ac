"""The lean U-Net and its training as one writes them first, for benchmarks/throughput.py to compare with."""

from __future__ import annotations

import copy
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from biasbound.core.schedule import Schedule
from biasbound.nets import ConditionalNet, UNetConfig

LADDER = Schedule([0.014, 0.045, 0.209, 0.999])
DECAY, RATE = 0.999, 1e-3


class PlainBlock(nn.Module):
    def __init__(self, conv: type[nn.Module], channels: int, embedding: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, channels, affine=False)
        self.shift = nn.Linear(embedding, 2 * channels)
        self.enter = conv(channels, channels, 3, padding=1, padding_mode="circular")
        self.leave = conv(channels, channels, 3, padding=1, padding_mode="circular")

    def forward(self, x: Tensor, e: Tensor) -> Tensor:
        scale, shift = self.shift(e).reshape(len(x), -1, *[1] * (x.ndim - 2)).chunk(2, 1)
        return x + self.leave(F.silu(self.enter(self.norm(x) * (1 + scale) + shift)))


class PlainUNet(nn.Module):
    """The lean U-Net of one block per level, without any of the measures of biasbound.nets."""

    def __init__(self, config: UNetConfig) -> None:
        super().__init__()
        conv = nn.Conv1d if config.dims == 1 else nn.Conv2d
        transposed = nn.ConvTranspose1d if config.dims == 1 else nn.ConvTranspose2d
        widths = [config.width * m for m in config.multipliers]
        e, waves = config.embedding, config.embedding // 8
        self.register_buffer("frequencies", torch.empty(waves))
        self.first, self.second = nn.Linear(2 * waves, e), nn.Linear(e, e)
        self.stem = conv(config.in_channels, widths[0], 3, padding=1, padding_mode="circular")
        self.down = nn.ModuleList(PlainBlock(conv, w, e) for w in widths)
        self.to_coarse = nn.ModuleList(conv(a, b, 2, stride=2) for a, b in pairwise(widths))
        self.up = nn.ModuleList(PlainBlock(conv, w, e) for w in reversed(widths))
        self.to_fine = nn.ModuleList(transposed(b, a, 2, stride=2) for b, a in pairwise(reversed(widths)))
        self.output = conv(widths[0], config.out_channels, 1)

    def forward(self, z_t: Tensor, x: Tensor, level: Tensor) -> Tensor:
        phase = level[:, None] * self.frequencies
        e = F.silu(self.first(torch.cat([phase.sin(), phase.cos()], 1)))
        e = F.silu(self.second(e))
        h = self.stem(torch.cat([z_t, x], 1))
        skips = []
        for i, block in enumerate(self.down):
            h = block(self.to_coarse[i - 1](h) if i else h, e)
            skips.append(h)
        skips.pop()
        for i, block in enumerate(self.up):
            h = block(self.to_fine[i - 1](h) + skips.pop() if i else h, e)
        return self.output(h)


@torch.no_grad()
def copy_weights(net: ConditionalNet, plain: PlainUNet) -> None:
    """From ours, where channels stand last and cells of a block are channels, to the plain network."""
    ours, embedding = net.unet, net.unet.embedding
    plain.frequencies.copy_(embedding.frequencies)
    stages = [*ours.down, *ours.up, ours.head]
    shifts = (p.split(ours.shift_channels) for p in (embedding.shifts.weight, embedding.shifts.bias))
    pairs = [(plain.first, embedding.first), (plain.second, embedding.second)]
    pairs += [(plain.stem, ours.stem), (plain.output, ours.output)]
    for mine, stage, weight, bias in zip((*plain.down, *plain.up), stages, *shifts, strict=True):
        mine.shift.weight.copy_(weight)
        mine.shift.bias.copy_(bias)
        pairs += [(getattr(mine, k), getattr(stage.blocks[0], k)) for k in ("enter", "leave")]
    pairs += [(mine, theirs.mix) for mine, theirs in zip(plain.to_coarse, ours.to_coarse, strict=True)]
    for mine, theirs in pairs:
        shape = mine.weight.shape  # (O, I, *k), from (O, *k, I)
        mine.weight.copy_(theirs.weight.reshape(shape[0], *shape[2:], shape[1]).movedim(-1, 1))
        mine.bias.copy_(theirs.bias)
    for mine, theirs in zip(plain.to_fine, ours.to_fine, strict=True):
        shape = mine.weight.shape  # (I, O, *k), from (*k, O, I)
        cells = theirs.mix.weight.reshape(*shape[2:], shape[1], shape[0])
        mine.weight.copy_(cells.movedim(-1, 0).movedim(-1, 1))
        bias = theirs.mix.bias.view(-1, shape[1])  # a transposed convolution has one for all cells
        bias.copy_(bias[:1].expand_as(bias))
        mine.bias.copy_(bias[0])


class Plain:
    def __init__(self, net: ConditionalNet, window: Tensor) -> None:
        self.net, self.window = PlainUNet(net.config), window
        copy_weights(net, self.net)
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=RATE)
        self.mean = copy.deepcopy(self.net)
        self.levels = torch.tensor(LADDER.sigma)

    def update(self) -> object:
        x, y = self.window[:, 0], self.window[:, 1]
        sigma, eps = self.levels[torch.randint(len(self.levels), (len(y),))], torch.randn_like(y)
        s = sigma.reshape(-1, *[1] * (y.ndim - 1))
        a = (1 - s**2).sqrt()
        output = self.net(a * y + s * eps, x, ((1 - sigma**2) / sigma**2).log())
        loss = F.mse_loss(output, a * eps - s * y)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        with torch.no_grad():
            for mean, current in zip(self.mean.parameters(), self.net.parameters(), strict=True):
                mean.mul_(DECAY).add_(current, alpha=1 - DECAY)
        return loss.item()

    @torch.no_grad()
    def frame(self) -> object:
        x = self.window[:, 0]
        y_t = torch.randn_like(x)
        for t in range(len(self.levels) - 1, -1, -1):
            s = self.levels[t]
            a = (1 - s**2).sqrt()
            estimate = a * y_t - s * self.net(y_t, x, ((1 - s**2) / s**2).log().expand(len(x)))
            if t:
                s = self.levels[t - 1]
                y_t = (1 - s**2).sqrt() * estimate + s * torch.randn_like(x)
        return estimate
