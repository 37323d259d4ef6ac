r"""RecFM (2026): rectified flow whose network also knows the velocity of paths that are a factor α shorter.

A path seen at τ = t/α in place of t has the velocity α v*. With t ~ U(0, 1) and α ~ U(t, 1) the loss is

    ‖v(z_t, t, 1) − v*‖² + ‖v(z_t, τ, α) − α v*‖² + λ ‖v(z_t, τ, α) − α v(z_t, t, 1)‖²,    v* = ε − z,

two passes of the network per sample. α is one more channel of x, the same at every point. Sampling is that of the flow,
with α = 1. Where α is always 1, the loss is twice that of the flow.
"""

from __future__ import annotations

from typing import Any

import torch

from biasbound.core.losses import Scalar
from biasbound.core.mask import mean_square
from biasbound.core.noise import Condition, State, draw
from biasbound.models.flow import Flow, Times, clock, column, uniform, with_plane
from biasbound.models.model import Examples, Frame, Recipe

__all__ = ["RecFM"]


class RecFM(Flow):
    """Rectified flow that agrees with itself over scales of time."""

    def __init__(self, net: Any, frame: Frame, *, calls: int = 4, weight: float = 1.0, shortest: float = 0.0) -> None:
        super().__init__(net, frame, calls=calls)
        if not 0 <= shortest <= 1 or weight < 0:
            raise ValueError(f"RecFM needs a weight ≥ 0 and 0 ≤ shortest ≤ 1, got {weight} and {shortest}")
        self.weight, self.shortest = weight, shortest  # λ, and the least α: 1 leaves the flow alone

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "weight": self.weight, "shortest": self.shortest}

    @classmethod
    def extra(cls, channels: int) -> int:
        return 1

    @classmethod
    def passes(cls, recipe: Recipe, levels: int) -> float:
        return 2.0

    def velocity(self, z_t: State, x: Condition, t: Times, scale: Times | None = None) -> State:
        return self.ask(z_t, with_plane(x, torch.ones_like(t) if scale is None else scale), clock(t))

    def loss(self, batch: Examples, generator: torch.Generator) -> Scalar:
        x, (y, *_) = self.windows(batch)
        z, t, eps = self.frame.target.encode(y, x), uniform(y, generator), draw(y, generator)
        alpha = (t + (1 - t) * uniform(y, generator)).clamp(min=self.shortest)
        scale, z_t = column(alpha, z), torch.lerp(z, eps, column(t, z))
        # One call for both, which is quicker than two of half the size.
        both = self.velocity(
            torch.cat([z_t, z_t]),
            torch.cat([x, x]),
            torch.cat([t, t / alpha]),
            torch.cat([torch.ones_like(alpha), alpha]),
        )
        whole, part = both.chunk(2)
        gaps = whole - (eps - z), part - scale * (eps - z), self.weight**0.5 * (part - scale * whole)
        return torch.stack([mean_square(gap, self.mask).mean() for gap in gaps]).sum()
