"""The U-Net shared by all models, as a conditional denoiser and as a deterministic emulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat

import torch
from jaxtyping import Float
from torch import Tensor, nn

from biasbound.core.noise import Condition, State
from biasbound.nets.blocks import Attention, Axes, ConvNeXtBlock, Down, LogSnrEmbedding, ResidualBlock, Shift, Up
from biasbound.nets.config import UNetConfig
from biasbound.nets.layers import Field, channels_first, channels_last
from biasbound.nets.places import Places

__all__ = ["ConditionalNet", "DirectNet", "UNet"]

Shifts = Iterator[Shift | None]


class Stage(nn.Module):
    """Blocks of one level, followed by attention if the config has it.

    `widths` are the channels before, between and after the blocks.
    """

    def __init__(self, config: UNetConfig, level: int, widths: Sequence[int], attention: nn.Module) -> None:
        super().__init__()
        block = ConvNeXtBlock if config.block == "convnext" else ResidualBlock
        axes = Axes(config.padding, config.dilation(level))
        self.blocks = nn.ModuleList(block(axes, a, b) for a, b in pairwise(widths))
        self.attention = attention

    def forward(self, x: Field, shifts: Shifts) -> Field:
        for block in self.blocks:
            x = block(x, next(shifts))
        y: Field = self.attention(x)
        return y


class UNet(nn.Module):
    """(B, in_channels, *N) and log-SNR (B,) → (B, out_channels, *N).

        stem → down₀ ──────────────────────────────→ head → output
                 └→ down₁ ─────────────────→ up₁ ─┘
                       └→ … down_L → middle → up_L ┘

    Every level has a skip connection: concatenated with the paper's "convnext" blocks, added with
    the lean "residual" blocks. The head is a single block, because the finest level is the most
    expensive one. Without `middle` blocks the coarsest level has no skip, since nothing lies
    between its ends.

    Weights are drawn from the global generator, or from `generator` if it is given.
    """

    def __init__(self, config: UNetConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        if generator is None:
            self._build()
            return
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._build()

    def _build(self) -> None:
        config, convnext = self.config, self.config.block == "convnext"
        widths = [config.width * m for m in config.multipliers]
        first, last = widths[0], widths[-1]

        def attention(channels: int, linear: bool = True) -> nn.Module:
            return Attention(channels, linear=linear) if config.attention else nn.Identity()

        def stage(level: int, inside: int) -> Stage:
            outside = widths[level]
            return Stage(config, level, [inside, *repeat(outside, config.blocks)], attention(outside))

        axes, coarsest = Axes(config.padding, config.dilation(0)), len(widths) - 1
        stem = first * 2 // 3 if convnext else first
        self.stem = axes.conv(config.in_channels, stem, 7 if convnext else 3)
        self.down = nn.ModuleList(stage(i, w if i else stem) for i, w in enumerate(widths))
        pairs = [*enumerate(pairwise(widths))]
        self.to_coarse = nn.ModuleList(Down(axes, config.factors(i), (a, b), overlap=convnext) for i, (a, b) in pairs)
        between = [last, *repeat(last, int(config.middle))]
        self.middle = nn.ModuleList(
            Stage(config, coarsest, between, a) for a in (attention(last, False), nn.Identity())
        )
        # Input channels of each level on the way up: its own, plus those of a concatenated skip.
        joined = [2 * w if convnext else w for w in widths]
        if not config.middle:
            joined[-1] = last
        self.up = nn.ModuleList(stage(i, joined[i]) for i in range(coarsest, 0, -1))
        self.to_fine = nn.ModuleList(
            Up(axes, config.factors(i), (b, a), overlap=convnext) for i, (a, b) in reversed(pairs)
        )
        self.head = Stage(config, 0, [joined[0], first], nn.Identity())
        self.output = nn.Linear(first, config.out_channels)
        if config.zero_init:
            nn.init.zeros_(self.output.weight)
            nn.init.zeros_(self.output.bias)
        stages = [*self.down, *self.middle, *self.up, *([] if convnext else [self.head])]
        self.shift_channels = [b.shift_channels for s in stages for b in s.blocks]
        if config.noise:
            self.embedding = LogSnrEmbedding(config, sum(self.shift_channels))
        told = tuple(config.positions if kind == "circular" else 0 for kind in config.padding)
        self.place = Places(config.padding, told, stem) if any(told) else None

    @property
    def parameter_count(self) -> int:
        return sum(p.numel() for p in self.parameters())

    def forward(
        self, inputs: Float[Tensor, "B I *N"], log_snr: Float[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B O *N"]:
        self._check(inputs, log_snr)
        return channels_first(self._levels(channels_last(inputs), self._shifts(log_snr)), self.config.dims)

    def _shifts(self, log_snr: Tensor | None) -> Shifts:
        if log_snr is None:
            return repeat(None)
        return iter(self.embedding(log_snr).split(self.shift_channels, -1))

    def _levels(self, x: Field, shifts: Shifts) -> Field:
        x = self.stem(x)
        x = x if self.place is None else self.place(x)
        skips: list[Field | None] = []
        grids = []
        for i, stage in enumerate(self.down):
            x = stage(self.to_coarse[i - 1](x) if i else x, shifts)
            skips.append(x)
            grids.append(x.shape[1:-1])
        for stage in self.middle:
            x = stage(x, shifts)
        if not self.config.middle:
            skips[-1] = None
        for stage, to_fine, grid in zip(self.up, self.to_fine, reversed(grids[:-1]), strict=True):
            x = to_fine(stage(self._join(x, skips.pop()), shifts), grid)
        # The paper's head does not receive the noise level.
        last = repeat(None) if self.config.block == "convnext" else shifts
        y: Field = self.output(self.head(self._join(x, skips.pop()), last))
        return y

    def _join(self, x: Field, skip: Field | None) -> Field:
        if skip is None:
            return x
        return torch.cat([x, skip], -1) if self.config.block == "convnext" else x + skip

    def _check(self, inputs: Tensor, log_snr: Tensor | None) -> None:
        config = self.config
        expected = (config.in_channels, config.dims)
        if (inputs.shape[1], inputs.ndim - 2) != expected:
            raise ValueError(
                f"the network takes fields of shape (batch, {config.in_channels}, "
                f"{', '.join('XYZ'[: config.dims])}), got {tuple(inputs.shape)}"
            )
        grid = inputs.shape[2:]
        needed = [n if kind == "circular" else 1 for n, kind in zip(config.strides, config.padding, strict=True)]
        if any(n % of for n, of in zip(grid, needed, strict=True)):
            raise ValueError(
                f"a network that halves its grid needs multiples of {needed} points along the axes, got a grid of "
                f"{list(grid)}; build one for this grid"
            )
        if config.noise != (log_snr is not None):
            raise ValueError(
                "the network was built with a noise input and needs log_snr"
                if config.noise
                else "the network was built without a noise input and takes no log_snr"
            )


class ConditionalNet(nn.Module):
    """output = net(z_t, x, log-SNR): the network inside a denoiser.

    `in_channels` counts the channels of z_t and x together.
    """

    def __init__(self, config: UNetConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if not config.noise:
            raise ValueError("the network of a denoiser needs a noise input: set noise to true")
        self.unet = UNet(config, generator)
        self.config = config

    @property
    def parameter_count(self) -> int:
        return self.unet.parameter_count

    def forward(self, z_t: State, x: Condition, log_snr: Float[Tensor, " B"]) -> State:
        y: State = self.unet(torch.cat([z_t, x], 1), log_snr)
        return y


class DirectNet(nn.Module):
    """y = net(x): the same U-Net without a noise input, the deterministic baseline."""

    def __init__(self, config: UNetConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if config.noise:
            raise ValueError(
                "a deterministic network has no noise input: set noise to false or use config.deterministic()"
            )
        self.unet = UNet(config, generator)
        self.config = config

    @property
    def parameter_count(self) -> int:
        return self.unet.parameter_count

    def forward(self, x: Condition) -> State:
        y: State = self.unet(x)
        return y
