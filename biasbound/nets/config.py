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
        _check_fields(vars(self))

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
        given: dict[str, Any] = dict(values)
        given |= {k: tuple(v) for k, v in given.items() if isinstance(v, list)}
        _check_fields({f.name: given.get(f.name, f.default) for f in fields(cls)})
        return cls(**given)


def _check_fields(values: Mapping[str, Any]) -> None:
    """Each field on its own terms; JSON knows one kind of number, so 2.0 is no whole number and 1 is not true."""
    dims, multipliers, padding = values["dims"], values["multipliers"], values["padding"]
    _check(values, "dims", _whole(dims) and dims <= 2, "1 or 2")
    for name in ("in_channels", "out_channels", "width", "blocks"):
        _check(values, name, _whole(values[name]), "a whole number ≥ 1")
    levels = isinstance(multipliers, tuple) and len(multipliers) and all(map(_whole, multipliers))
    _check(values, "multipliers", levels, "a list of whole numbers ≥ 1, one a level")
    _check(values, "block", values["block"] in BLOCKS, 'one of "convnext" and "residual"')
    for name in ("middle", "attention", "noise", "zero_init"):
        _check(values, name, type(values[name]) is bool, "true or false")
    axes = isinstance(padding, tuple) and len(padding) == dims and set(padding) <= set(PADDINGS)
    _check(values, "padding", axes, f'a list of {dims} of "circular" and "zeros", one an axis')
    fits = _whole(values["embedding"]) and values["embedding"] % 8 == 0
    _check(values, "embedding", fits, "a positive multiple of 8")
    number = type(values["frequency"]) is float and math.isfinite(values["frequency"])
    _check(values, "frequency", number and values["frequency"] > 0, "a positive decimal number")


def _check(values: Mapping[str, Any], name: str, fits: Any, expected: str) -> None:
    if not fits:
        raise ValueError(f"the network's {name} must be {expected}, got {values[name]!r}")


def _whole(value: Any) -> bool:
    return type(value) is int and value >= 1
