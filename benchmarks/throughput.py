"""Training and rollout speed of the mini networks on this CPU: python benchmarks/throughput.py [--threads 1] [--rounds 9]

Three things are run in turn, round after round, so that a noisy neighbour meets all of them; each number is a median.

- *ours*: `biasbound.nets`, fused Adam, the average of weights by torch.optim.swa_utils;
- *plain*: the same network as one writes it first: nn.Conv with padding_mode="circular", nn.GroupNorm, one nn.Linear a
  block, default Adam (on a CPU: one tensor after the other), the average of weights by a loop over parameters, and
  loss.item() in every step. That it is the same function is checked before anything is timed;
- the machine's matrix product, which is what "peak" means here.

Times are CPU time over all threads, and wall time where threads are compared.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from biasbound.nets import ConditionalNet, UNetConfig
from biasbound.noise import Schedule

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
    """The lean U-Net of one block a level, without any of the measures of biasbound.nets."""

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
        pairs = list(zip(widths, widths[1:], strict=False))
        self.to_coarse = nn.ModuleList(conv(a, b, 2, stride=2) for a, b in pairs)
        self.up = nn.ModuleList(PlainBlock(conv, w, e) for w in reversed(widths))
        self.to_fine = nn.ModuleList(transposed(b, a, 2, stride=2) for a, b in reversed(pairs))
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

    def take_weights(self, net: ConditionalNet) -> None:
        """Those of `net`, so that both are the same function."""
        ours, dims = net.unet, net.config.dims

        def take(mine: nn.Module, weight: Tensor, bias: Tensor) -> None:
            if isinstance(mine, nn.Linear):
                mine.weight.copy_(weight)
            elif mine.kernel_size[0] == 3:  # (O, H, W, I); a 1-D network has H = 1
                mine.weight.copy_(weight.permute(0, 3, 1, 2).reshape(mine.weight.shape))
            elif isinstance(mine, (nn.ConvTranspose1d, nn.ConvTranspose2d)):
                cells = weight.reshape(*[2] * dims, -1, mine.in_channels)
                mine.weight.copy_(cells.permute(dims + 1, dims, *range(dims)))
                bias = bias.reshape(*[2] * dims, -1)[(0,) * dims]
            else:
                n = mine.kernel_size[0]
                cells = weight.reshape(mine.out_channels, *[n] * dims, -1)
                mine.weight.copy_(cells.movedim(-1, 1))
            mine.bias.copy_(bias)

        with torch.no_grad():
            for (
                up
            ) in ours.to_fine:  # a transposed convolution has one bias for all cells of a block
                cells = up.mix.bias.reshape(2**dims, -1)
                up.mix.bias.copy_(cells[:1].expand_as(cells).flatten())
            self.frequencies.copy_(ours.embedding.frequencies)
            take(self.first, ours.embedding.first.weight, ours.embedding.first.bias)
            take(self.second, ours.embedding.second.weight, ours.embedding.second.bias)
            take(self.stem, ours.stem.weight, ours.stem.bias)
            take(self.output, ours.output.weight, ours.output.bias)
            for mine, theirs in zip(
                (*self.to_coarse, *self.to_fine), (*ours.to_coarse, *ours.to_fine), strict=True
            ):
                take(mine, theirs.mix.weight, theirs.mix.bias)
            stages = [*ours.down, *ours.up, ours.head]
            sizes = ours.shift_channels
            weights = ours.embedding.shifts.weight.split(sizes)
            biases = ours.embedding.shifts.bias.split(sizes)
            for mine, stage, w, b in zip(
                (*self.down, *self.up), stages, weights, biases, strict=True
            ):
                take(mine.shift, w, b)
                take(mine.enter, stage.blocks[0].enter.weight, stage.blocks[0].enter.bias)
                take(mine.leave, stage.blocks[0].leave.weight, stage.blocks[0].leave.bias)
