"""What a U-Net is, as plain JSON values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

__all__ = ["UNetConfig"]

BLOCKS = ("convnext", "residual")
PADDINGS = ("circular", "zeros")


@dataclass(frozen=True)
class UNetConfig:
    """A U-Net; every field is checked when the config is made, and an unfit one is named.

    `multipliers` has one entry a level, finest first: the level's channels as a multiple of `width`. Each level
    halves the grid of the one before, so grids must be multiples of 2^(levels − 1).
    """

    in_channels: int
    out_channels: int
    dims: int = 1
    width: int = 32
    multipliers: tuple[int, ...] = (1, 1, 1)
    block: str = "residual"  # or "convnext", the paper's
    blocks: int = 1  # a level, on the way down and again on the way up
    middle: bool = False  # two more blocks at the coarsest level, between the two ways
    attention: bool = False  # linear attention a level, full attention in the middle
    padding: tuple[str, ...] = ("circular",)  # one an axis: "circular" or "zeros"
    noise: bool = True  # whether the network is told the log-SNR
    embedding: int = 64  # channels of the log-SNR embedding
    frequency: float = 2.0  # its highest angular frequency, in radians a unit of log-SNR
    zero_init: bool = True  # the last layer starts at zero, and so does the network

    def __post_init__(self) -> None:
        for name in ("in_channels", "out_channels", "width", "blocks"):
            _check(_whole(getattr(self, name), 1), name, self, "a whole number ≥ 1")
        _check(_whole(self.dims, 1) and self.dims <= 2, "dims", self, "1 or 2")
        _check(
            _tuple(self.multipliers) and all(_whole(m, 1) for m in self.multipliers),
            "multipliers",
            self,
            "a list of whole numbers ≥ 1, one a level",
        )
        _check(self.block in BLOCKS, "block", self, 'one of "convnext" and "residual"')
        for name in ("middle", "attention", "noise", "zero_init"):
            _check(type(getattr(self, name)) is bool, name, self, "true or false")
        _check(
            _tuple(self.padding)
            and len(self.padding) == self.dims
            and all(p in PADDINGS for p in self.padding),
            "padding",
            self,
            f'a list of "circular" or "zeros", one an axis, so {self.dims} of them',
        )
        _check(
            _whole(self.embedding, 8) and self.embedding % 8 == 0,
            "embedding",
            self,
            "a positive multiple of 8",
        )
        _check(
            type(self.frequency) in (int, float)
            and math.isfinite(self.frequency)
            and self.frequency > 0,
            "frequency",
            self,
            "a positive number",
        )

    @property
    def stride(self) -> int:
        """2^(levels − 1): what every grid size must be a multiple of."""
        return 1 << (len(self.multipliers) - 1)

    @property
    def least_grid(self) -> int:
        """The smallest grid size: the widest kernel must not reach around the coarsest level twice."""
        return self.stride * (3 if self.block == "convnext" else 1)

    def deterministic(self) -> UNetConfig:
        """The same network as a baseline that maps x to y: no log-SNR and no noisy target among its inputs."""
        return replace(self, in_channels=self.in_channels - self.out_channels, noise=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `from_dict` gives the config back."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> UNetConfig:
        """The config of `to_dict`; an unknown, missing or ill-typed field is refused by name."""
        known = [f.name for f in fields(cls)]
        for name in values:
            if name not in known:
                raise ValueError(
                    f"a network config has no field {name!r}; its fields are {', '.join(known)}"
                )
        for name in ("in_channels", "out_channels"):
            if name not in values:
                raise ValueError(f"a network config needs the field {name!r}")
        given: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
        }
        return cls(**given)


def _check(fits: bool, name: str, config: UNetConfig, expected: str) -> None:
    if not fits:
        raise ValueError(f"the network's {name} must be {expected}, got {getattr(config, name)!r}")


def _whole(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


def _tuple(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) > 0
