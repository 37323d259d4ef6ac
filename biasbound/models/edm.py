r"""EDM (Karras et al. 2022), as GenCast and CorrDiff use it: a denoiser for all levels, and a solver with any number of calls.

    D(z_σ, σ) = c_skip z_σ + c_out F(c_in z_σ, x, σ),    z_σ = z + σ ε,    q = √(σ² + 1)
    c_skip = 1/q²,    c_out = σ/q,    c_in = 1/q

z has unit spread (σ_data = 1): it is the normalised field, or the scaled increment. Training draws ln σ ~ N(mean, std²) and
weighs ‖D − z‖² by 1/c_out², so that F learns a quantity of unit size at every level. The network is told −2 ln σ, the
log-SNR of z_σ. How a trained model is sampled is not part of its training: one training serves all solvers and calls.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from biasbound.core.losses import Scalar
from biasbound.core.mask import cleared, mean_square
from biasbound.core.noise import Condition, State, draw
from biasbound.core.ode import RHO, heun, karras, multistep
from biasbound.models.model import Examples, Frame, Model

__all__ = ["EDM"]


class EDM(Model):
    """EDM: Karras levels, sampled by Heun's method or DPM-Solver++(2M)."""

    accepts: ClassVar[frozenset[str]] = frozenset({"residual", "sampler", "calls"})
    samplers: ClassVar[tuple[str, ...]] = ("2m", "heun")

    def __init__(
        self,
        net: Any,
        frame: Frame,
        *,
        sampler: str = "2m",
        calls: int = 8,
        sigma_min: float = 2e-3,
        sigma_max: float = 80.0,
        rho: float = RHO,
        mean: float = -1.2,
        std: float = 1.2,
    ) -> None:
        super().__init__(net, frame)
        karras(2, sigma_min, sigma_max, rho)  # refuses what makes no levels
        if not std > 0:
            raise ValueError(f"ln σ needs a positive spread to be drawn with, got std = {std}")
        self.range, self.drawn = (sigma_min, sigma_max, rho), (mean, std)
        self.sampler, self._calls = "2m", 1
        self.resample(sampler, calls)

    def resample(self, sampler: str = "", calls: int = 0) -> None:
        self.require(sampler, calls)
        self.sampler, self._calls = sampler or self.sampler, calls or self._calls

    def spec(self) -> dict[str, Any]:
        levels = dict(zip(("sigma_min", "sigma_max", "rho"), self.range, strict=True))
        return {"sampler": self.sampler, "calls": self.calls, **levels, "mean": self.drawn[0], "std": self.drawn[1]}

    @property
    def calls(self) -> int:
        return self._calls

    @property
    def levels(self) -> list[float]:
        """From the highest down to a last 0. Heun's method takes 2N − 1 calls for N levels above 0.

        Where it is to take an even number, its first step, from the most noise, is not corrected.
        """
        count = self.calls if self.sampler == "2m" else self.calls // 2 + 1
        return [*karras(count, *self.range), 0.0]

    def denoise(self, z_s: State, x: Condition, sigma: float | Float[Tensor, " B"]) -> State:
        """D(z_σ, σ)."""
        level = torch.as_tensor(sigma, dtype=torch.float64, device=z_s.device).expand(z_s.shape[0])
        s = level.reshape(-1, *[1] * (z_s.ndim - 1)).to(z_s)
        q = (s * s + 1).sqrt()
        return z_s / (q * q) + s / q * self.ask(z_s / q, x, (-2 * level.log()).to(z_s))

    def advance(self, x: Condition, generator: torch.Generator | None = None) -> State:
        def denoise(z: State, sigma: float) -> State:
            return self.denoise(z, x, sigma)

        levels, noise = self.levels, draw(self.frame.task.guess(x, self.frame.channels), generator)
        if self.sampler == "2m":
            z = multistep(denoise, levels[0] * noise, levels)
        else:
            z = heun(denoise, levels[0] * noise, levels, plain=1 - self.calls % 2)
        return cleared(self.frame.target.decode(z, x), self.mask)

    def loss(self, batch: Examples, generator: torch.Generator) -> Scalar:
        """E ‖D − z‖²/c_out²."""
        x, (y, *_) = self.windows(batch)
        z, (mean, std) = self.frame.target.encode(y, x), self.drawn
        sigma = (mean + std * draw(y.new_empty(len(y)), generator).double()).exp()
        s = sigma.reshape(-1, *[1] * (y.ndim - 1)).to(y)
        error = self.denoise(z + s * draw(y, generator), x, sigma) - z
        return mean_square(error * (s * s + 1).sqrt() / s, self.mask).mean()
