"""What a generator of trajectories promises.

A source is a small frozen value that computes any block of its trajectories. It can be pickled, for worker
processes. Trajectory i depends on (seed, split, i) alone and blocks have a fixed size, so the bytes of a file
depend neither on the number of processes nor on interruptions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np
from jaxtyping import Float, Float64

__all__ = ["Block", "Boundary", "Layout", "Source", "Split", "demand", "stream"]

Split = Literal["train", "valid", "test"]
Boundary = Literal["periodic", "open", "wall"]


@dataclass(frozen=True)
class Layout:
    """Shape and meaning of the array (S, K, C, *N) that a source fills.

    `channels` are in array order; a vector field is named once per component with a common stem,
    `velocity_x`, `velocity_y`. `domain` and `boundary` have one entry per space axis.
    With h = (high − low)/N, grid point j stands at low + j h ("left") or low + (j + ½) h ("centre"), or the points
    reach from end to end ("ends"; a periodic axis, whose ends are one point, then counts as "left").
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
        gaps = []
        for (low, high), n, kind in zip(self.domain, self.grid, self.boundary, strict=True):
            from_end_to_end = self.points == "ends" and kind != "periodic"
            gaps.append((high - low) / max(n - from_end_to_end, 1))
        return tuple(gaps)

    @property
    def periodic(self) -> tuple[bool, ...]:
        return tuple(kind == "periodic" for kind in self.boundary)

    @property
    def correlate(self) -> Literal["field", "vorticity"]:
        """What a correlation time compares by default: the vorticity of a plane velocity, else the field."""
        plane = len(self.grid) == 2 and len(self.channels) == 2
        return "vorticity" if plane else "field"


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
