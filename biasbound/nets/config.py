"""The description of a U-Net, as plain JSON values."""

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
    """A U-Net. Every field is checked on construction, and an invalid one is named in the error.

    `multipliers` has one entry per level, finest first: the number of channels of that level as a
    multiple of `width`. Each level halves the grid of the previous one, along each axis as often as
    `halvings` says. A circular axis must have a multiple of 2^halvings points, because its ends meet; one
    with ends repeats its last point wherever it has an odd number of them.
    """

    in_channels: int
    out_channels: int
    dims: int = 1
    width: int = 32
    multipliers: tuple[int, ...] = (1, 1, 1)
    block: str = "residual"  # or "convnext", the paper's
    blocks: int = 1  # per level, on the way down and again on the way up
    middle: bool = False  # two more blocks at the coarsest level, between down and up
    attention: bool = False  # linear attention per level, full attention in the middle
    padding: tuple[str, ...] = ("circular",)  # one per axis: "circular" or "zeros"
    noise: bool = True  # whether the log-SNR is an input of the network
    embedding: int = 64  # channels of the log-SNR embedding
    frequency: float = 2.0  # its highest angular frequency, in radians per unit of log-SNR
    zero_init: bool = True  # the last layer, and so the network's output, starts at zero
    halvings: tuple[int, ...] = ()  # per axis, how many levels halve it, finest first; (): all of them
    positions: int = 0  # waves that tell a point its place along each circular axis

    def __post_init__(self) -> None:
        _check_fields(vars(self))

    @property
    def strides(self) -> tuple[int, ...]:
        """Per axis, 2^halvings: a shift by it shifts the result, if the axis is circular."""
        return tuple(1 << h for h in self.halvings or (len(self.multipliers) - 1,) * self.dims)

    def factors(self, level: int) -> tuple[int, ...]:
        """Per axis, by how much `level` is finer than the next coarser one: 2, or 1 where the axis is kept."""
        return tuple(1 + (stride >> level > 1) for stride in self.strides)

    def dilation(self, level: int) -> tuple[int, ...]:
        """Per axis, how far apart the points are that a kernel of `level` joins.

        On a circular axis that was not halved it doubles instead, so that the network sees as far.
        """
        pairs = zip(self.strides, self.padding, strict=True)
        return tuple(max(1, (1 << level) // stride) if kind == "circular" else 1 for stride, kind in pairs)

    def fitted(self, grid: tuple[int, ...]) -> UNetConfig:
        """With the halvings that this grid allows, at most one per level."""
        least = 3 if self.block == "convnext" else 1  # no kernel should go round the coarsest level twice
        most = len(self.multipliers) - 1

        def allowed(n: int, kind: str, h: int) -> bool:
            return n >= least << h and (kind == "zeros" or n % (1 << h) == 0)

        pairs = [*zip(grid, self.padding, strict=True)]
        found = tuple(max((h for h in range(1, most + 1) if allowed(n, kind, h)), default=0) for n, kind in pairs)
        return replace(self, halvings=() if set(found) == {most} else found)

    def deterministic(self) -> UNetConfig:
        """The same network as a baseline that maps x to y, without log-SNR and noisy target."""
        return replace(self, in_channels=self.in_channels - self.out_channels, noise=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; `from_dict` restores the config."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> UNetConfig:
        """The inverse of `to_dict`; the error names an unknown, missing or ill-typed field."""
        known = [f.name for f in fields(cls)]
        for name in values:
            if name not in known:
                raise ValueError(f"a network config has no field {name!r}; its fields are {', '.join(known)}")
        for name in ("in_channels", "out_channels"):
            if name not in values:
                raise ValueError(f"a network config needs the field {name!r}")
        given: dict[str, Any] = dict(values)
        given |= {k: tuple(v) for k, v in given.items() if isinstance(v, list)}
        _check_fields({f.name: given.get(f.name, f.default) for f in fields(cls)})
        return cls(**given)


def _check_fields(values: Mapping[str, Any]) -> None:
    """Check each field, strictly by type: 2.0 is not a whole number and 1 is not true."""
    dims, multipliers, padding = values["dims"], values["multipliers"], values["padding"]
    _check(values, "dims", _whole(dims) and dims <= 3, "1, 2 or 3")
    for name in ("in_channels", "out_channels", "width", "blocks"):
        _check(values, name, _whole(values[name]), "a whole number ≥ 1")
    levels = isinstance(multipliers, tuple) and len(multipliers) and all(map(_whole, multipliers))
    _check(values, "multipliers", levels, "a list of whole numbers ≥ 1, one per level")
    _check(values, "block", values["block"] in BLOCKS, 'one of "convnext" and "residual"')
    positions = values["positions"]
    _check(values, "positions", type(positions) is int and positions >= 0, "a whole number ≥ 0")
    for name in ("middle", "attention", "noise", "zero_init"):
        _check(values, name, type(values[name]) is bool, "true or false")
    axes = isinstance(padding, tuple) and len(padding) == dims and set(padding) <= set(PADDINGS)
    _check(values, "padding", axes, f'a list of {dims} of "circular" and "zeros", one per axis')
    halvings = values["halvings"]
    counts = isinstance(halvings, tuple) and all(type(h) is int and 0 <= h < len(multipliers) for h in halvings)
    expected = f"an empty list or {dims} whole numbers from 0 to {len(multipliers) - 1}, one per axis"
    _check(values, "halvings", counts and len(halvings) in (0, dims), expected)
    fits = _whole(values["embedding"]) and values["embedding"] % 8 == 0
    _check(values, "embedding", fits, "a positive multiple of 8")
    number = type(values["frequency"]) is float and math.isfinite(values["frequency"])
    _check(values, "frequency", number and values["frequency"] > 0, "a positive decimal number")


def _check(values: Mapping[str, Any], name: str, fits: Any, expected: str) -> None:
    if not fits:
        raise ValueError(f"the network's {name} must be {expected}, got {values[name]!r}")


def _whole(value: Any) -> bool:
    return type(value) is int and value >= 1
