r"""Observations in a rollout of a trained emulator, without training it again.

M members are emulated side by side. Where frame k is observed, every estimate ŷ of it is replaced by its posterior mean
under Gaussian errors (an ensemble Kalman filter with perturbed observations; with one member, optimal interpolation):

    ŷ_m ← ŷ_m + K (o + ε_m − H ŷ_m),    K = P Hᵀ (H P Hᵀ + R)⁻¹,    ε_m ~ N(0, R),  Σ_m ε_m = 0,
    P   = ρ ∘ Cov_m(ŷ) + b² s² G,       ρ = G = exp(−d²/2ℓ²) over the distance d of two points.

H picks the observed values and R = error² is their variance. Cov_m is the members' covariance, after their spread was
multiplied by the inflation. ρ cuts off what few members make up between distant points. b² s² G is the part of the error
that members do not show, within each channel, where s is the spread of the training data.

A chain is corrected at every level: the noise of the next level is added to the corrected estimate. The last level is
the answer; in one-call ladders and models without a chain it is the only one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from biasbound.core.noise import State, draw
from biasbound.models.correction import Moment

__all__ = ["Assimilation", "Gain", "Nudging", "Observations"]

Frames = Float[Tensor, "B K C *N"]
Near = tuple[Float64[Tensor, "D O"], Float64[Tensor, "D O"]]
WHITE = 1e-6  # share of the background that is independent from point to point: exact observations everywhere need it


@dataclass(frozen=True, eq=False)
class Observations:
    """Noisy values of frames x¹ … x^K at some points, the same ones in every trajectory.

    `where` is True at (k, c, point) that are observed; `values` may hold anything, NaN too, elsewhere. `error` is the
    standard deviation of the noise, in the data's units, for each channel. A frame without True is not observed.
    """

    values: Frames
    where: Bool[Tensor, "K C *N"]
    error: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.values.shape[1:] != self.where.shape or len(self.error) != self.values.shape[2]:
            raise ValueError(
                f"observations (B, K, C, *N) need `where` of (K, C, *N) and an error per channel, but their shapes are "
                f"{tuple(self.values.shape)} and {tuple(self.where.shape)} with {len(self.error)} errors"
            )
        if not all(math.isfinite(e) and e >= 0 for e in self.error):
            raise ValueError(f"errors of observations must be finite and not negative, got {list(self.error)}")
        if not bool((self.values.isfinite() | ~self.where).all()):
            raise ValueError("observed values must be finite: set `where` to False at the others")

    @property
    def steps(self) -> int:
        """K, the number of frames, observed or not."""
        return self.values.shape[1]

    @classmethod
    def sparse(
        cls, truth: Frames, spacing: int, error: Sequence[float], generator: torch.Generator, every: int = 1
    ) -> Observations:
        """Every `spacing`-th point along each axis in every `every`-th frame of a truth, with Gaussian noise."""
        where = torch.zeros(truth.shape[1:], dtype=torch.bool)
        where[every - 1 :: every, :, *[slice(None, None, spacing)] * (truth.ndim - 3)] = True
        std = truth.new_tensor(tuple(error)).reshape(-1, *[1] * (truth.ndim - 3))
        return cls(truth + std * draw(truth, generator), where, tuple(map(float, error)))

    def at(self, step: int) -> tuple[Int[Tensor, " O"], Float64[Tensor, "B O"], Float64[Tensor, " O"]]:
        """Which of the C·N values of frame `step` are observed, as what, and with which variance."""
        k, points = min(step, self.steps) - 1, self.where[0, 0].numel()
        seen = (self.where[k] & (step <= self.steps)).flatten().nonzero()[:, 0]
        variance = self.values.new_tensor(self.error, dtype=torch.float64).square()[seen // points]
        return seen, self.values[:, k].flatten(1)[:, seen].double(), variance


@dataclass(frozen=True)
class Gain:
    """How far an observation reaches, and how much members are trusted; distances are in grid points.

    `periodic` has one entry per axis; empty, every axis is.
    """

    radius: float = 6.0  # ℓ
    inflation: float = 1.02
    background: float = 0.03  # b
    periodic: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if not (self.radius > 0 and self.inflation > 0 and self.background >= 0):
            raise ValueError(
                f"a gain needs radius > 0, inflation > 0 and background ≥ 0, got {self.radius}, {self.inflation} and "
                f"{self.background}"
            )

    def near(self, grid: Sequence[int], channels: int, seen: Int[Tensor, " O"]) -> Float64[Tensor, "D O"]:
        """exp(−d²/2ℓ²) between each of the D = C·N values of a state and each observed one."""
        points = torch.stack(torch.meshgrid(*map(torch.arange, grid), indexing="ij")).flatten(1).to(seen.device)
        square = torch.zeros(points.shape[1], len(seen), dtype=torch.float64, device=seen.device)
        around = self.periodic or (True,) * len(grid)
        for axis, n, closes in zip(points, grid, around, strict=True):
            gap = (axis[:, None] - axis[seen % len(axis)]).abs()
            square += (torch.minimum(gap, n - gap) if closes else gap).square()
        return (-square / (2 * self.radius**2)).exp().repeat(channels, 1)


@dataclass(frozen=True, eq=False)
class Assimilation:
    """The correction of a rollout whose rows are `members` × trajectories, members first; `spread` is s per channel."""

    observations: Observations
    members: int
    gain: Gain
    spread: tuple[float, ...]
    _held: dict[bytes, Near] = field(default_factory=dict, init=False, repr=False)  # per set of observed points

    def __call__(self, state: State, moment: Moment) -> State:
        seen, values, variance = self.observations.at(moment.step)
        if not len(seen):
            return state
        if len(state) != self.members * len(values) or state.shape[1:] != self.observations.where.shape[1:]:
            raise ValueError(
                f"{self.members} members of {len(values)} observed trajectories of shape "
                f"{tuple(self.observations.where.shape[1:])} cannot correct a state of shape {tuple(state.shape)}"
            )
        members = state.to(values).reshape(self.members, len(values), -1)
        mean = members.mean(0)
        deviations = self.gain.inflation * (members - mean)
        gain = self._kalman(deviations, seen, variance)
        members = mean + deviations
        innovation = values + self._noise(variance, members, moment) - members[..., seen]
        return (members + torch.einsum("bdo,mbo->mbd", gain, innovation)).reshape(state.shape).to(state)

    def _noise(
        self, variance: Float64[Tensor, " O"], members: Float64[Tensor, "M B D"], moment: Moment
    ) -> Float64[Tensor, "M B O"]:
        """ε_m, with mean 0 over members, so that their mean is not perturbed; one member has none."""
        count = len(members)
        drawn = draw(members.new_empty(count * members.shape[1], len(variance)), moment.generator)
        drawn = drawn.reshape(count, -1, len(variance))
        return variance.sqrt() * math.sqrt(count / max(count - 1, 1)) * (drawn - drawn.mean(0))

    def _kalman(
        self, deviations: Float64[Tensor, "M B D"], seen: Int[Tensor, " O"], variance: Float64[Tensor, " O"]
    ) -> Float64[Tensor, "B D O"]:
        """K = P Hᵀ (H P Hᵀ + R)⁻¹ of each trajectory; what is not finite stays so, and is counted by the rollout."""
        near, background = self._around(seen)
        sampled = torch.einsum("mbd,mbo->bdo", deviations, deviations[..., seen]) / max(len(deviations) - 1, 1)
        covariance = near * sampled + background  # 0 + background for a single member
        gain: Tensor = torch.linalg.solve_ex(covariance[:, seen] + torch.diag(variance), covariance.mT)[0]
        return gain.mT

    def _around(self, seen: Int[Tensor, " O"]) -> Near:
        """ρ and b² s² G between all values of a state and the observed ones."""
        key = seen.cpu().numpy().tobytes()
        if key not in self._held:
            _, channels, *grid = self.observations.where.shape
            near = self.gain.near(grid, channels, seen)
            channel = torch.arange(len(near), device=seen.device) // math.prod(grid)
            s = near.new_tensor(self.spread)[channel[seen]]
            same = torch.arange(len(near), device=seen.device)[:, None] == seen
            shape = (1 - WHITE) * near * (channel[:, None] == channel[seen]) + WHITE * same
            self._held[key] = near, (self.gain.background * s).square() * shape
        return self._held[key]


@dataclass(frozen=True, eq=False)
class Nudging:
    """The plain baseline: the answer is relaxed towards the observations at observed points, ŷ ← ŷ + g (o − ŷ)."""

    observations: Observations
    strength: float

    def __call__(self, state: State, moment: Moment) -> State:
        seen, values, _ = self.observations.at(moment.step)
        if not len(seen) or not moment.last:
            return state
        nudged = state.clone().flatten(1)
        there = nudged[:, seen]
        aim = values.repeat(len(state) // len(values), 1).to(state)
        nudged[:, seen] = there + self.strength * (aim - there)
        return nudged.reshape(state.shape)
