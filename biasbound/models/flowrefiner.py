r"""FlowRefiner (2026): a first prediction from a zero input, then K refinements, each along a short straight flow.

    ẑ = net(0, x);    for k = 1 … K:  ẑ ← ẑ + σ_k ξ, then N times  ẑ ← ẑ + (σ_k/N) net(ẑ, x, k, τ),  τ = 0, 1/N, …

Half of the samples train the first prediction. The others train a refinement at z_τ = z + (1 − τ) σ_k ε, τ ~ U(0, 1),
where the network learns −ε, the velocity over σ_k. The σ_k are log-spaced from 0.01 to 0.001, set by hand. The network is
told −2 ln σ_k (0 in the first call), and τ as one more channel of x. Without refinements it is a direct model.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from biasbound.core.losses import Scalar
from biasbound.core.mask import cleared, mean_square
from biasbound.core.noise import Condition, State, beside, draw, draw_index
from biasbound.models.flow import Times, column, uniform, with_plane
from biasbound.models.model import Examples, Frame, Model

__all__ = ["FlowRefiner"]


class FlowRefiner(Model):
    """FlowRefiner with K refinements of N steps each: 1 + K N calls."""

    accepts: ClassVar[frozenset[str]] = frozenset({"residual", "calls"})

    def __init__(
        self,
        net: Any,
        frame: Frame,
        *,
        refinements: int = 2,
        substeps: int = 1,
        sigma_max: float = 1e-2,
        sigma_min: float = 1e-3,
    ) -> None:
        super().__init__(net, frame)
        if refinements < 0 or substeps < 1 or not 0 < sigma_min <= sigma_max:
            raise ValueError(
                f"FlowRefiner needs refinements ≥ 0, substeps ≥ 1 and 0 < sigma_min ≤ sigma_max, got {refinements}, "
                f"{substeps}, {sigma_min} and {sigma_max}"
            )
        self.ends, self.substeps, last = (sigma_max, sigma_min), substeps, max(refinements - 1, 1)
        self.levels = (1.0, *(sigma_max * (sigma_min / sigma_max) ** (k / last) for k in range(refinements)))

    def resample(self, sampler: str = "", calls: int = 0) -> None:
        """With another number of steps per refinement."""
        self.require(sampler, calls)
        most = max(len(self.levels) - 1, 1)
        if calls and (calls < 1 + most or (calls - 1) % most):
            raise ValueError(f"FlowRefiner takes 1 + {most} N calls, not {calls}")
        self.substeps = (calls - 1) // most if calls else self.substeps

    def spec(self) -> dict[str, Any]:
        told = {"refinements": len(self.levels) - 1, "substeps": self.substeps}
        return {**told, "sigma_max": self.ends[0], "sigma_min": self.ends[1]}

    @classmethod
    def extra(cls, channels: int) -> int:
        return 1

    @property
    def calls(self) -> int:
        return 1 + (len(self.levels) - 1) * self.substeps

    def output(self, z: State, x: Condition, k: Int[Tensor, " B"], tau: Times) -> State:
        """The raw network output in refinement k at τ; k = 0 is the first prediction, of zeros."""
        log_snr = -2 * torch.tensor(self.levels, dtype=torch.float64)[k].log()
        return self.ask(z, with_plane(x, tau), beside(log_snr, z))

    def advance(self, x: Condition, generator: torch.Generator | None = None) -> State:
        z = torch.zeros_like(self.frame.task.guess(x, self.frame.channels))
        for k, sigma in enumerate(self.levels):
            index = torch.full((z.shape[0],), k)
            if k == 0:
                z = self.output(z, x, index, z.new_zeros(z.shape[0]))
                continue
            z = z + sigma * draw(z, generator)
            for i in range(self.substeps):
                tau = z.new_full((z.shape[0],), i / self.substeps)
                z = z + sigma / self.substeps * self.output(z, x, index, tau)
        return cleared(self.frame.target.decode(z, x), self.mask)

    def loss(self, batch: Examples, generator: torch.Generator) -> Scalar:
        """E ‖output − z‖² from zeros for one half, E ‖output + ε‖² for the other."""
        x, (y, *_) = self.windows(batch)
        k = draw_index(len(self.levels), len(y), generator, 0.5)
        z, tau, eps = self.frame.target.encode(y, x), uniform(y, generator), draw(y, generator)
        first = column((k == 0).float(), z).bool()
        tau = torch.where((k == 0).to(tau.device, non_blocking=True), 0.0, tau)
        sigma = column(torch.tensor(self.levels, dtype=torch.float64)[k], z)
        given = torch.where(first, 0.0, z + (1 - column(tau, z)) * sigma * eps)
        gap = self.output(given, x, k, tau) - torch.where(first, z, -eps)
        return mean_square(gap, self.mask).mean()
