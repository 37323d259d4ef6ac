r"""Improved MeanFlow: a network learns the mean velocity u of a flow between two times, and one call makes the answer.

    u(z_t, r, t) = (t − r)^{-1} ∫_r^t v dτ,        y = ε − u(ε, 0, 1)

The identity v = u + (t − r) du/dt, d/dt along the flow, makes a regression of it, on the velocity ε − z of single paths:

    V = u + (t − r) sg(∂_z u · u(z_t, t, t) + ∂_t u),    ‖V − (ε − z)‖²

with t > r of sigmoid(N(−0.4, 1)), and r = t for three samples in four (`still`). There V = u: a plain flow matching loss.

Passes of the network per sample: one where r = t, else three – u(z_t, t, t) without gradient, u and its derivative along
the flow, which forward mode makes beside u at the price of another pass. Hence 1 + 2 (1 − still) = 1.5 on average. A
network that forward mode cannot go through is differentiated by central differences: one pass more. t − r is one more
channel of x, the same at every point.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch

from biasbound.core.losses import Scalar
from biasbound.core.mask import cleared, mean_square
from biasbound.core.noise import Condition, State, draw
from biasbound.models.flow import Times, clock, column, uniform, with_plane
from biasbound.models.model import Examples, Frame, Model, Recipe

__all__ = ["MeanFlow"]

STEP = 5e-3  # of t, in central differences: round-off and curvature are both small in float32


class MeanFlow(Model):
    """Improved MeanFlow: one call per answer."""

    accepts: ClassVar[frozenset[str]] = frozenset({"residual"})
    STILL: ClassVar[float] = 0.75

    def __init__(self, net: Any, frame: Frame, *, mean: float = -0.4, std: float = 1.0) -> None:
        super().__init__(net, frame)
        if not (math.isfinite(mean) and std > 0):
            raise ValueError(f"the times of MeanFlow need a finite mean and a positive std, got {mean} and {std}")
        self.drawn = mean, std
        self.forward_mode = True  # until a network turns out not to have it

    def spec(self) -> dict[str, Any]:
        return dict(zip(("mean", "std"), self.drawn, strict=True))

    @classmethod
    def extra(cls, channels: int) -> int:
        return 1

    @classmethod
    def passes(cls, recipe: Recipe, levels: int) -> float:
        return 1 + 2 * (1 - cls.STILL)

    def mean_velocity(self, z_t: State, x: Condition, r: Times, t: Times) -> State:
        """u(z_t, r, t)."""
        return self.ask(z_t, with_plane(x, t - r), clock(t))

    def advance(self, x: Condition, generator: torch.Generator | None = None) -> State:
        eps = draw(self.frame.task.guess(x, self.frame.channels), generator)
        t = eps.new_ones(eps.shape[0])
        return cleared(self.frame.target.decode(eps - self.mean_velocity(eps, x, 0 * t, t), x), self.mask)

    def loss(self, batch: Examples, generator: torch.Generator) -> Scalar:
        x, (y, *_) = self.windows(batch)
        z, eps, (mean, std) = self.frame.target.encode(y, x), draw(y, generator), self.drawn
        pair = [torch.sigmoid(mean + std * draw(y.new_empty(len(y)), generator)) for _ in range(2)]
        t, r = torch.maximum(*pair), torch.minimum(*pair)
        still = uniform(torch.empty(len(y), 1), generator) < self.STILL  # on the host, which then knows the shapes
        order = torch.cat([still.nonzero().flatten(), (~still).nonzero().flatten()]).to(y.device, non_blocking=True)
        z, eps, x, t, r = (values[order] for values in (z, eps, x, t, r))
        z_t, at = torch.lerp(z, eps, column(t, z)), int(still.sum())
        parts = []
        if at:
            parts.append(self.mean_velocity(z_t[:at], x[:at], t[:at], t[:at]))
        if at < len(t):
            parts.append(self.instant(z_t[at:], x[at:], r[at:], t[at:]))
        return mean_square(torch.cat(parts) - (eps - z), self.mask).mean()

    def instant(self, z_t: State, x: Condition, r: Times, t: Times) -> State:
        """V = u + (t − r) sg(du/dt): the velocity at t that the mean one implies."""
        with torch.no_grad():
            along = self.mean_velocity(z_t, x, t, t)
        u, slope = self._derivative(z_t, x, r, t, along)
        return u + column(t - r, z_t) * slope.detach()

    def _derivative(self, z_t: State, x: Condition, r: Times, t: Times, along: State) -> tuple[State, State]:
        """u and its derivative in t along (dz/dt, dr/dt) = (`along`, 0)."""

        def mean_velocity(z_t: State, t: Times) -> State:
            return self.mean_velocity(z_t, x, r, t)

        if self.forward_mode:
            before = self.rows
            try:
                u, slope, *_ = torch.func.jvp(mean_velocity, (z_t, t), (along, torch.ones_like(t)))
            except RuntimeError:  # a layer has no derivative in forward mode; any other error comes again below
                self.forward_mode, self.rows = False, before
            else:
                self.rows += len(t)  # the derivative's
                return u, slope
        with torch.no_grad():
            ahead = mean_velocity(z_t + STEP * along, t + STEP)
            behind = mean_velocity(z_t - STEP * along, t - STEP)
        return mean_velocity(z_t, t), (ahead - behind) / (2 * STEP)
