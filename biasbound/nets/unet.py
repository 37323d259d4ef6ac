"""The U-Net shared by all models, as a conditional denoiser and as a deterministic emulator."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, repeat

import torch
from jaxtyping import Float
from torch import Tensor, nn

from biasbound.core.noise import Condition, State
from biasbound.nets.blocks import Attention, ConvNeXtBlock, Down, LogSnrEmbedding, ResidualBlock, Shift, Up, conv
from biasbound.nets.config import UNetConfig
from biasbound.nets.layers import Field

__all__ = ["ConditionalNet", "DirectNet", "UNet"]

Shifts = Iterator[Shift | None]


class Stage(nn.Module):
    """The blocks of one level, followed by attention if the config has it."""

    def __init__(self, config: UNetConfig, inside: int, outside: int, count: int, attention: nn.Module) -> None:
        super().__init__()
        block = ConvNeXtBlock if config.block == "convnext" else ResidualBlock
        widths = [inside, *repeat(outside, count)]
        self.blocks = nn.ModuleList(block(config, a, b) for a, b in pairwise(widths))
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

        def stage(inside: int, outside: int) -> Stage:
            return Stage(config, inside, outside, config.blocks, attention(outside))

        stem = first * 2 // 3 if convnext else first
        self.stem = conv(config, config.in_channels, stem, 7 if convnext else 3)
        self.down = nn.ModuleList(stage(w if i else stem, w) for i, w in enumerate(widths))
        self.to_coarse = nn.ModuleList(Down(config, a, b) for a, b in pairwise(widths))
        count = int(config.middle)
        self.middle = nn.ModuleList(
            Stage(config, last, last, count, a) for a in (attention(last, False), nn.Identity())
        )
        # Input channels of each level on the way up: its own, plus those of a concatenated skip.
        joined = [2 * w if convnext else w for w in widths]
        if not config.middle:
            joined[-1] = last
        self.up = nn.ModuleList(stage(joined[i], widths[i]) for i in range(len(widths) - 1, 0, -1))
        self.to_fine = nn.ModuleList(Up(config, b, a) for a, b in reversed([*pairwise(widths)]))
        self.head = Stage(config, joined[0], first, 1, nn.Identity())
        self.output = nn.Linear(first, config.out_channels)
        if config.zero_init:
            nn.init.zeros_(self.output.weight)
            nn.init.zeros_(self.output.bias)
        stages = [*self.down, *self.middle, *self.up, *([] if convnext else [self.head])]
        self.shift_channels = [b.shift_channels for s in stages for b in s.blocks]
        if config.noise:
            self.embedding = LogSnrEmbedding(config, sum(self.shift_channels))

    @property
    def parameter_count(self) -> int:
        return sum(p.numel() for p in self.parameters())

    def forward(
        self, inputs: Float[Tensor, "B I *N"], log_snr: Float[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B O *N"]:
        self._check(inputs, log_snr)
        x = inputs.unsqueeze(2) if self.config.dims == 1 else inputs
        x = self._levels(x.permute(0, 2, 3, 1).contiguous(), self._shifts(log_snr))
        outputs = x.permute(0, 3, 1, 2).contiguous()
        return outputs.squeeze(2) if self.config.dims == 1 else outputs

    def _shifts(self, log_snr: Tensor | None) -> Shifts:
        if log_snr is None:
            return repeat(None)
        return iter(self.embedding(log_snr).split(self.shift_channels, -1))

    def _levels(self, x: Field, shifts: Shifts) -> Field:
        x = self.stem(x)
        skips: list[Field | None] = []
        for i, stage in enumerate(self.down):
            x = stage(self.to_coarse[i - 1](x) if i else x, shifts)
            skips.append(x)
        for stage in self.middle:
            x = stage(x, shifts)
        if not self.config.middle:
            skips[-1] = None
        for stage, to_fine in zip(self.up, self.to_fine, strict=True):
            x = to_fine(stage(self._join(x, skips.pop()), shifts))
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
                f"{', '.join('XY'[: config.dims])}), got {tuple(inputs.shape)}"
            )
        grid = inputs.shape[2:]
        if any(n % config.stride or n < config.least_grid for n in grid):
            raise ValueError(
                f"a network of {len(config.multipliers)} levels with {config.block} blocks takes "
                f"grid sizes that are multiples of {config.stride} and at least "
                f"{config.least_grid}, got {tuple(grid)}"
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
