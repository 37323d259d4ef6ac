r"""Rectified flow (Liu et al. 2023): a network learns the velocity of straight paths from noise to the answer.

    z_t = (1 − t) z + t ε,    v* = ε − z,    t ~ U(0, 1);        from t = 1 on, z ← z − Δt v(z, x, t)

With one call the answer is ε − v(ε, x, 1), which is an estimate of E[z | x], as a direct model's. One training serves any
number of calls. The network is told `clock(t)` in place of a log-SNR.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from biasbound.core.losses import Scalar
from biasbound.core.mask import cleared, mean_square
from biasbound.core.noise import Condition, State, beside, draw
from biasbound.models.model import Examples, Frame, Model

__all__ = ["Flow", "Times", "clock", "column", "uniform", "with_plane"]

Times = Float[Tensor, " B"]


def clock(t: Times) -> Times:
    """10 (1 − 2t): falls with the signal as a log-SNR does, but is finite and has the same slope everywhere.

    A log-SNR is infinite at both ends, where a flow begins and ends and where MeanFlow differentiates.
    """
    return 10 * (1 - 2 * t)


def column(per_sample: Times, like: State) -> Tensor:
    """One number per sample, ready to multiply a field."""
    return beside(per_sample.reshape(-1, *[1] * (like.ndim - 1)), like)


def uniform(like: State, generator: torch.Generator | None) -> Times:
    """U(0, 1) per sample, by Φ of normal numbers, so that every noise stream serves."""
    found: Times = torch.special.ndtr(draw(like.new_empty(len(like)), generator))
    return found


def with_plane(x: Condition, values: Times) -> Float[Tensor, "B _D *N"]:
    """x with one more channel, which holds one number per sample at every point."""
    return torch.cat([x, column(values, x).expand(x.shape[0], 1, *x.shape[2:])], 1)


class Flow(Model):
    """Rectified flow, sampled by Euler's method."""

    accepts: ClassVar[frozenset[str]] = frozenset({"residual", "calls"})

    def __init__(self, net: Any, frame: Frame, *, calls: int = 4) -> None:
        super().__init__(net, frame)
        self._calls = 1
        self.resample(calls=calls)

    def resample(self, sampler: str = "", calls: int = 0) -> None:
        self.require(sampler, calls)
        self._calls = calls or self._calls

    def spec(self) -> dict[str, Any]:
        return {"calls": self.calls}

    @property
    def calls(self) -> int:
        return self._calls

    def velocity(self, z_t: State, x: Condition, t: Times) -> State:
        """v(z_t, x, t)."""
        return self.ask(z_t, x, clock(t))

    def advance(self, x: Condition, generator: torch.Generator | None = None) -> State:
        z = draw(self.frame.task.guess(x, self.frame.channels), generator)
        for i in range(self.calls):
            z = z - self.velocity(z, x, z.new_full((z.shape[0],), 1 - i / self.calls)) / self.calls
        return cleared(self.frame.target.decode(z, x), self.mask)

    def loss(self, batch: Examples, generator: torch.Generator) -> Scalar:
        """E ‖v(z_t, x, t) − (ε − z)‖²."""
        x, (y, *_) = self.windows(batch)
        z, t, eps = self.frame.target.encode(y, x), uniform(y, generator), draw(y, generator)
        gap = self.velocity(torch.lerp(z, eps, column(t, z)), x, t) - (eps - z)
        return mean_square(gap, self.mask).mean()
