r"""Hard constraints: what is known for certain about a state, as an orthogonal projection P onto the states that obey it.

    zero-mean          P u = u − ū                             of each channel, in the data's units
    divergence-free    P û(k) = û(k) − k (k·û(k))/|k|²         Leray's projection, per wavenumber

P P = P, P is symmetric, and P u = u where u obeys. If the truth x does, no answer becomes worse:
‖P y − x‖² = ‖y − x‖² − ‖y − P y‖².

`CONSTRAINTS` has them by name. An entry makes the projection for a layout and refuses a layout that it does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float64
from torch import Tensor

from biasbound.core.noise import State
from biasbound.registry import find, home

__all__ = ["CONSTRAINTS", "DivergenceFree", "Grid", "Projection", "ZeroMean", "constraint", "divergence"]

Projection = Callable[[State], State]  # in physical units
Waves = Float64[Tensor, "A *N"]
Scalars = Float64[Tensor, "B *N"]


@runtime_checkable
class Grid(Protocol):
    """What a constraint asks of a layout of data."""

    @property
    def name(self) -> str: ...

    @property
    def channels(self) -> tuple[str, ...]: ...

    @property
    def grid(self) -> tuple[int, ...]: ...

    @property
    def spacing(self) -> tuple[float, ...]: ...

    @property
    def periodic(self) -> tuple[bool, ...]: ...


@dataclass(frozen=True)
class ZeroMean:
    """Each channel without its mean over space."""

    def __call__(self, state: State) -> State:
        axes = tuple(range(2, state.ndim))
        return state - state.mean(axes, keepdim=True)

    @classmethod
    def on(cls, layout: Grid) -> ZeroMean:
        """For any grid of equal cells."""
        return cls()


@dataclass(frozen=True)
class DivergenceFree:
    """A periodic velocity without its gradient part; `velocity` are its channels, one per axis, in their order.

    The Nyquist wave of an even axis has no derivative on the grid and counts as k = 0 along it. The mean is kept.
    """

    grid: tuple[int, ...]
    spacing: tuple[float, ...]
    velocity: tuple[int, ...]

    @cached_property
    def waves(self) -> Waves:
        """k at every point of the Fourier grid."""
        axes = []
        for n, h in zip(self.grid, self.spacing, strict=True):
            k = 2 * math.pi / (n * h) * torch.fft.fftfreq(n, 1 / n, dtype=torch.float64)
            axes.append(torch.where(torch.arange(n) * 2 == n, 0.0, k))
        return torch.stack(torch.meshgrid(*axes, indexing="ij"))

    def __call__(self, state: State) -> State:
        own, axes, k = list(self.velocity), tuple(range(2, state.ndim)), self.waves.to(state.device)
        velocity = state[:, own].double()
        along = (k * torch.fft.fftn(velocity, dim=axes)).sum(1, keepdim=True)
        square = k.square().sum(0)
        gradient = torch.fft.ifftn(k * along / square.where(square > 0, torch.ones_like(square)), dim=axes).real
        projected = state.clone()
        projected[:, own] = (velocity - gradient).to(state)
        return projected

    @classmethod
    def on(cls, layout: Grid) -> DivergenceFree:
        """For a periodic grid whose channels are, or name, one velocity."""
        rank = len(layout.grid)
        named = tuple(i for i, name in enumerate(layout.channels) if name.startswith("velocity"))
        velocity = tuple(range(rank)) if len(layout.channels) == rank else named
        if rank < 2 or len(velocity) != rank or not all(layout.periodic):
            raise ValueError(
                f"divergence-free needs a velocity with one channel per axis on a periodic grid, but {layout.name} has "
                f"the channels {', '.join(layout.channels)} on {sum(layout.periodic)} periodic of {rank} axes"
            )
        return cls(layout.grid, layout.spacing, velocity)


def divergence(state: State, made: DivergenceFree) -> Scalars:
    """∇·u by the same spectral derivatives."""
    axes, k = tuple(range(2, state.ndim)), made.waves.to(state.device)
    waves = torch.fft.fftn(state[:, list(made.velocity)].double(), dim=axes)
    found: Tensor = torch.fft.ifftn(1j * (k * waves).sum(1), dim=tuple(range(1, state.ndim - 1))).real
    return found


CONSTRAINTS: dict[str, Callable[[Grid], Projection]] = home(
    "constraints", {"zero-mean": ZeroMean.on, "divergence-free": DivergenceFree.on}
)


def constraint(name: str, layout: Grid) -> Projection:
    """The projection of this name for states of a layout."""
    make = find(CONSTRAINTS, name)
    try:
        return make(layout)
    except TypeError as error:  # of something else that the user named
        raise ValueError(f"{name} makes no projection for a layout of data: {error}") from error
