"""What a user may say about a file that does not say it itself, as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from biasbound._io import as_kind
from biasbound.data.columns import Frames, Reader
from biasbound.data.layout import Boundary
from biasbound.data.shapes import space_axes
from biasbound.data.trajectories import Trajectories

__all__ = ["ReadOptions", "applied", "as_mask"]


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading; None leaves to the file, or to its format's rule, what it says."""

    variable: tuple[str, ...] | None = None
    """the variables to read, one per channel (or one that holds all channels)"""
    channels: tuple[str, ...] | None = None
    """names for the channels"""
    domain: tuple[tuple[float, float], ...] | None = None
    """the ends (low, high) of each space axis"""
    boundary: tuple[Boundary, ...] | None = None
    """periodic, open or wall for each space axis; one for all of them"""
    dt: float | None = None
    """time step"""
    mask: str | None = None
    """the variable or static field that is nonzero at valid points"""
    dims: int | None = None
    """number of space axes"""

    @classmethod
    def of(cls, told: Mapping[str, Any], where: str) -> ReadOptions:
        """From values as YAML, JSON or a caller give them: one name stands for a list of one, "u,v" for two."""
        plain: dict[str, Any] = {name: value for name, value in told.items() if value is not None}
        for name in ("variable", "channels", "boundary"):
            if isinstance(plain.get(name), str):
                plain[name] = [part.strip() for part in plain[name].split(",")]
            elif name in plain:
                plain[name] = list(plain[name])
        if "domain" in plain:
            plain["domain"] = [[float(end) for end in ends] for ends in plain["domain"]]
        made: ReadOptions = as_kind(cls, plain, where)
        return made

    def given(self) -> dict[str, Any]:
        """The options that were given, by name."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    def space_axes(self, where: str) -> int | None:
        """The number of space axes that is told, if any."""
        several = self.boundary if self.boundary and len(self.boundary) > 1 else ()
        return space_axes(where, self.dims, self.domain or (), several)

    def edges(self, rank: int, where: str) -> tuple[Boundary | None, ...]:
        """What is said about the boundary of each of `rank` axes."""
        kinds = self.boundary or (None,)
        if len(kinds) not in (1, rank):
            raise ValueError(f"{where}: boundary has {len(kinds)} entries for {rank} space axes; give one for each")
        return kinds if len(kinds) == rank else kinds * rank

    def ends(self, rank: int, where: str) -> tuple[tuple[float, float], ...] | None:
        """What is said about the domain, checked for `rank` axes."""
        if self.domain is not None and len(self.domain) != rank:
            raise ValueError(f"{where}: domain has {len(self.domain)} pairs for {rank} space axes; give one for each")
        return self.domain


class _Picked:
    """Some channels of a reader."""

    def __init__(self, reader: Reader, numbers: list[int]) -> None:
        self._reader, self._numbers = reader, numbers
        self.channels, self.dtype = len(numbers), reader.dtype

    def read(self, frames: Frames) -> Float[np.ndarray, "F c *N"]:
        return self._reader.read(frames)[:, self._numbers]


def as_mask(values: np.ndarray, rank: int) -> Bool[np.ndarray, " *N"]:
    """True where a field (*N) of `rank` axes is a number other than 0; of (S, *N), where it is in every trajectory."""
    valid = np.nan_to_num(np.asarray(values, dtype=np.float64)) != 0
    return np.asarray(valid.reshape(-1, *valid.shape[valid.ndim - rank :]).all(axis=0))


def _variable(t: Trajectories, names: tuple[str, ...]) -> Trajectories:
    missing = [name for name in names if name not in t.channels]
    if missing:
        raise ValueError(f"{t.name}: found no variable {missing[0]!r}; it has {', '.join(t.channels)}")
    numbers = [t.channels.index(name) for name in names]
    return replace(t, layout=replace(t.layout, channels=names), reader=_Picked(t.reader, numbers), known=None)


def _channels(t: Trajectories, names: tuple[str, ...]) -> Trajectories:
    if len(names) != len(t.channels):
        raise ValueError(f"{t.name}: found {len(names)} names for the channels {', '.join(t.channels)}")
    return replace(t, layout=replace(t.layout, channels=names))


def _mask(t: Trajectories, name: str) -> Trajectories:
    if name not in t.static:
        raise ValueError(f"{t.name}: found no field {name!r} for the mask; it has {', '.join(t.static) or 'none'}")
    return replace(t, mask=as_mask(t.static[name], len(t.layout.grid)), known=None)


def applied(t: Trajectories, options: ReadOptions) -> Trajectories:
    """Trajectories of any format as the options want them."""
    rank = len(t.layout.grid)
    if options.dims not in (None, rank):
        raise ValueError(f"{t.name}: found {rank} space axes, but dims is {options.dims}; leave it out")
    steps: tuple[tuple[Callable[..., Trajectories], Any], ...] = (
        (_variable, options.variable),
        (_channels, options.channels),
        (_mask, options.mask),
    )
    for step, value in steps:
        if value is not None:
            t = step(t, value)
    layout = t.layout
    if options.dt is not None:
        layout = replace(layout, dt=options.dt)
    if options.boundary is not None:
        kinds = options.edges(rank, t.name)
        layout = replace(layout, boundary=tuple(new or old for new, old in zip(kinds, layout.boundary, strict=True)))
    if (ends := options.ends(rank, t.name)) is not None:
        layout = replace(layout, domain=ends)
    layout.check(t.name)
    moved = layout.domain != t.layout.domain
    return replace(t, layout=layout, coordinates=layout.coordinates() if moved else t.coordinates)
