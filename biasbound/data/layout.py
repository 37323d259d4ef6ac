"""What a generator of trajectories promises.

A source is a small frozen value that computes any block of its trajectories. It can be pickled, for worker processes.
Trajectory i depends on (seed, split, i) alone and blocks have a fixed size, so the bytes of a file depend neither on
the number of processes nor on interruptions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np
from jaxtyping import Float, Float64

Split = Literal["train", "valid", "test"]
Boundary = Literal["periodic", "open", "wall"]
Coordinates = tuple[Float64[np.ndarray, "_"], ...]


@dataclass(frozen=True)
class Layout:
    """Shape and meaning of the array (S, K, C, *N) that a source fills.

    `channels` are in array order; a vector field is named once per component with a common stem, `velocity_x`,
    `velocity_y`. `domain` and `boundary` have one entry per space axis. With h = (high − low)/N, grid point j stands
    at low + j h ("left") or low + (j + ½) h ("centre"), or the points reach from end to end ("ends"; a periodic axis,
    whose ends are one point, then counts as "left").
    """

    name: str  # "ks", "kolmogorov", "transonic", …
    trajectories: int  # S
    frames: int  # K
    channels: tuple[str, ...]  # C names
    grid: tuple[int, ...]  # *N
    dt: float  # time between frames
    domain: tuple[tuple[float, float], ...]
    boundary: tuple[Boundary, ...]
    block: int = 1  # trajectories computed together, a property of the file and not of the machine
    points: Literal["left", "centre", "ends"] = "left"

    @property
    def shape(self) -> tuple[int, ...]:
        """(S, K, C, *N)."""
        return (self.trajectories, self.frames, len(self.channels), *self.grid)

    @property
    def spacing(self) -> tuple[float, ...]:
        """h between grid points, along each axis."""
        gaps = [n - (self.points == "ends" and not around) for n, around in zip(self.grid, self.periodic, strict=True)]
        return tuple((high - low) / max(n, 1) for (low, high), n in zip(self.domain, gaps, strict=True))

    @property
    def periodic(self) -> tuple[bool, ...]:
        return tuple(kind == "periodic" for kind in self.boundary)

    @property
    def correlate(self) -> Literal["field", "vorticity"]:
        """What a correlation time compares by default: the vorticity of a plane velocity, else the field."""
        return "vorticity" if len(self.grid) == len(self.channels) == 2 else "field"

    def coordinates(self) -> Coordinates:
        """Where the grid points of each axis stand, by the rule above."""
        axes: list[np.ndarray] = []
        for n, (low, high), periodic in zip(self.grid, self.domain, self.periodic, strict=True):
            if self.points == "ends" and not periodic:
                axes.append(np.linspace(low, high, n))
            else:
                axes.append(low + (np.arange(n) + 0.5 * (self.points == "centre")) * ((high - low) / n))
        return tuple(axes)

    def check(self, name: str) -> None:
        """Refuse what cannot be trajectories, in one sentence that begins with `name`."""
        if not len(self.grid) == len(self.domain) == len(self.boundary) > 0:
            raise ValueError(f"{name}: grid, domain and boundary need one entry per space axis")
        if min(self.shape) < 1:
            raise ValueError(f"{name}: found shape {self.shape}, expected (S, K, C, *N) without zeros")
        if not (math.isfinite(self.dt) and self.dt > 0):
            raise ValueError(f"{name}: found a time step of {self.dt}, expected a positive number")
        for kind in self.boundary:
            if kind not in get_args(Boundary):
                raise ValueError(f"{name}: found a {kind!r} boundary, expected one of {get_args(Boundary)}")
        if len({c for c in self.channels if c not in ("", ".") and "/" not in c}) < len(self.channels):
            raise ValueError(f"{name}: channel names must differ and have no '/': {self.channels}")

    def thin(self, kept: Coordinates, space: int, name: str) -> Layout:
        """The layout of every `space`-th point: a periodic axis keeps its domain, any other ends at `kept` points."""
        domain = [(float(axis.min()), float(axis.max())) for axis in kept]  # latitudes may go down
        for i, (n, periodic) in enumerate(zip(self.grid, self.periodic, strict=True)):
            if periodic and n % space:
                raise ValueError(f"{name}: a periodic axis of {n} points cannot keep every {space}-th; use a divisor")
            if periodic:
                domain[i] = self.domain[i]
        return replace(self, grid=tuple(map(len, kept)), domain=tuple(domain), points="ends")


@dataclass(frozen=True)
class Labels:
    """What a file calls its space axes ("latitude"), and the units of its channels, axes and time ("K", "s")."""

    axes: tuple[str, ...] = ()  # empty: x, y, z
    units: Mapping[str, str] = field(default_factory=dict)  # by the name of a channel, an axis, or "time"

    def named(self, rank: int) -> tuple[str, ...]:
        """A name for each of `rank` axes."""
        plain = ("x", "y", "z")[:rank] if rank <= 3 else tuple(f"x{i}" for i in range(rank))
        return self.axes if len(self.axes) == rank else plain


@dataclass(frozen=True)
class Block:
    """Consecutive trajectories: fields, parameters (Mach), series in time (drag), static fields (masks)."""

    fields: Float[np.ndarray, "n K C *N"]
    parameters: Mapping[str, Float64[np.ndarray, " n"]] = field(default_factory=dict)
    series: Mapping[str, Float64[np.ndarray, "n K"]] = field(default_factory=dict)
    static: Mapping[str, Float[np.ndarray, " *N"]] = field(default_factory=dict)  # obstacle mask


@runtime_checkable
class Source(Protocol):
    """A generator: its layout, how it was set up, and any block [start, stop) of its trajectories."""

    @property
    def layout(self) -> Layout: ...

    def provenance(self) -> dict[str, Any]:
        """Equation, coefficients, scheme, seed and split, as JSON values."""
        ...

    def block(self, start: int, stop: int) -> Block: ...


def stream(seed: int, split: Split, index: int) -> np.random.Generator:
    """The random numbers of trajectory `index`: they depend on (seed, split, index) alone."""
    return np.random.default_rng([seed, get_args(Split).index(split), index])


def demand(source: object, rule: str, holds: Callable[[Any], bool], *fields: str) -> None:
    """Refuse a source whose field breaks a rule, in one sentence that names both."""
    for name in fields:
        if not holds(value := getattr(source, name)):
            raise ValueError(f"{type(source).__name__}: {name} must be {rule}, got {value!r}.")
