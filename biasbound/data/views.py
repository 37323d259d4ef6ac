"""Which part of a stored array is meant, and where its grid points stand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from jaxtyping import Float64, Int64

from biasbound.data.layout import Boundary, Layout

__all__ = ["Coordinates", "View", "check_facts", "check_layout", "grid_points", "thin_grid"]

Coordinates = tuple[Float64[np.ndarray, "_"], ...]


def grid_points(layout: Layout) -> Coordinates:
    """Where the grid points of each axis stand, by the rule of `Layout`: low + (j + o) h."""
    axes: list[np.ndarray] = []
    for n, (low, high), kind in zip(layout.grid, layout.domain, layout.boundary, strict=True):
        if layout.points == "ends" and kind != "periodic":
            axes.append(np.linspace(low, high, n))
        else:
            axes.append(low + (np.arange(n) + 0.5 * (layout.points == "centre")) * ((high - low) / n))
    return tuple(axes)


def check_layout(layout: Layout, name: str) -> None:
    """Refuse what cannot be trajectories, in one sentence that begins with `name`."""
    rank = len(layout.grid)
    if rank == 0 or len(layout.domain) != rank or len(layout.boundary) != rank:
        raise ValueError(f"{name}: grid, domain and boundary need one entry per space axis")
    if min(layout.shape) < 1:
        raise ValueError(f"{name}: found shape {layout.shape}, expected (S, K, C, *N) without zeros")
    if not (math.isfinite(layout.dt) and layout.dt > 0):
        raise ValueError(f"{name}: found a time step of {layout.dt}, expected a positive number")
    for kind in layout.boundary:
        if kind not in get_args(Boundary):
            raise ValueError(f"{name}: found a {kind!r} boundary, expected one of {get_args(Boundary)}")
    bad = [c for c in layout.channels if not c or "/" in c or c == "."]
    twice = [c for c, n in Counter(layout.channels).items() if n > 1]
    if bad or twice:
        raise ValueError(f"{name}: channel names must differ and have no '/': {layout.channels}")


def check_facts(
    layout: Layout,
    name: str,
    parameters: Mapping[str, np.ndarray],
    series: Mapping[str, np.ndarray],
    static: Mapping[str, np.ndarray],
) -> None:
    """Refuse parameters that are not (S,), series that are not (S, K), masks neither *N nor (S, *N)."""
    s, k, grid = layout.trajectories, layout.frames, layout.grid
    for values, shapes in ((parameters, [(s,)]), (series, [(s, k)]), (static, [grid, (s, *grid)])):
        for key, value in values.items():
            if value.shape not in shapes:
                raise ValueError(f"{name}: found {key} of shape {value.shape}, expected {shapes[0]}")


def thin_grid(layout: Layout, points: Coordinates, space: int, name: str) -> Layout:
    """The layout that keeps every `space`-th of these grid points along each axis.

    A periodic axis keeps its domain, so the stride must divide it; any other axis then reaches from
    its first to its last kept point.
    """
    domain = []
    for c, ends, kind in zip(points, layout.domain, layout.boundary, strict=True):
        if kind == "periodic" and len(c) % space:
            raise ValueError(
                f"{name}: a periodic axis of {len(c)} points cannot keep every {space}-th; the "
                "stride must divide the number of points"
            )
        kept = c[::space]
        domain.append(ends if kind == "periodic" else (float(kept[0]), float(kept[-1])))
    grid = tuple(len(c[::space]) for c in points)
    return replace(layout, grid=grid, domain=tuple(domain), points="ends")


@dataclass(frozen=True)
class View:
    """A part of the stored array (S₀, K₀, C, *N₀)."""

    length: int  # K₀
    trajectories: Int64[np.ndarray, " S"]
    frames: range
    points: tuple[range, ...]

    @classmethod
    def whole(cls, layout: Layout) -> View:
        s, k, _, *grid = layout.shape
        return cls(k, np.arange(s), range(k), tuple(map(range, grid)))

    def numbers(self, s: Int64[np.ndarray, " B"], k: Int64[np.ndarray, "B W"]) -> Int64[np.ndarray, "B W"]:
        """Stored frame numbers s₀·K₀ + k₀ of the view's frames k of its trajectories s."""
        stored = self.frames.start + self.frames.step * k
        numbers: np.ndarray = self.trajectories[s][:, None] * self.length + stored
        return numbers

    @property
    def slices(self) -> tuple[slice, ...]:
        return tuple(slice(p.start, p.stop, p.step) for p in self.points)
