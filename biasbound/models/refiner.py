r"""PDE-Refiner (Lippe et al. 2023): a first prediction from a zero input, then K refinements.

Each refinement adds noise of a falling level and removes it,

    û = net(0, x),    û ← (û + σ_k ε) − σ_k net(û + σ_k ε, x),    σ_k = σ_min^(k/K),  k = 1 … K.

The noise is additive (the signal is not scaled down) and σ_k a standard deviation. The levels that inference visits are
the levels that training draws, all of them: both read `levels`. The network is told log(1/σ_k²) as its log-SNR.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from biasbound.core.losses import Scalar
from biasbound.core.mask import cleared, mean_square
from biasbound.core.noise import Condition, State, beside, draw, draw_index
from biasbound.core.sample import Correct
from biasbound.models.model import Examples, Frame, Model, Settings

__all__ = ["Refiner"]


class Refiner(Model):
    """PDE-Refiner with K refinements down to σ_min."""

    accepts: ClassVar[frozenset[str]] = frozenset({"residual", "focus"})
    focus: ClassVar[float] = 11 / 14  # of the paper's authors, for three refinements

    def __init__(self, net: Any, frame: Frame, *, refinements: int = 3, sigma_min: float = 1e-2) -> None:
        super().__init__(net, frame)
        if refinements < 1 or not 0 < sigma_min < 1:
            raise ValueError(
                f"a refiner needs at least 1 refinement and 0 < sigma_min < 1, got {refinements} and {sigma_min}"
            )
        self.levels = tuple(sigma_min ** (k / refinements) for k in range(refinements + 1))  # 1 … σ_min

    @classmethod
    def options(cls, method: Any, settings: Settings) -> dict[str, Any]:
        return {"refinements": settings.refinements, "sigma_min": settings.sigma_min}

    def spec(self) -> dict[str, Any]:
        return {"refinements": len(self.levels) - 1, "sigma_min": self.levels[-1]}

    @property
    def calls(self) -> int:
        return len(self.levels)

    def advance(self, x: Condition, generator: torch.Generator | None = None) -> State:
        """ŷ after the first prediction and all refinements."""
        return self.corrected(x, generator, None)

    def corrected(self, x: Condition, generator: torch.Generator | None, correct: Correct | None) -> State:
        target, last = self.frame.target, len(self.levels) - 1
        z = torch.zeros_like(self.frame.task.guess(x, self.frame.channels))
        for k in range(len(self.levels)):
            index = torch.full((x.shape[0],), k)
            z_k = self.noised(z, index, draw(z, generator) if k else z)
            output = self.output(z_k, x, index)
            z = z_k - self.levels[k] * output if k else output
            if correct is not None and k < last:
                z = target.encode(correct(target.decode(z, x), self.levels[k]), x)
        y = cleared(target.decode(z, x), self.mask)
        return y if correct is None else correct(y, 0.0)

    def loss(self, batch: Examples, generator: torch.Generator) -> Scalar:
        """E_k ‖output − objective‖² over the first prediction and all K refinements.

        All k are drawn alike, or the last refinement with the share of the recipe.
        """
        x, (y, *_) = self.windows(batch)
        k = draw_index(len(self.levels), len(y), generator, self.recipe.share)
        if self.recipe.share is not None:  # shares count from the lowest level, refinements from the highest
            k = len(self.levels) - 1 - k
        z, eps = self.frame.target.encode(y, x), draw(y, generator)
        output = self.output(self.noised(z, k, eps), x, k)
        return mean_square(output - self.objective(z, k, eps), self.mask).mean()

    def noised(self, z: State, k: Int[Tensor, " B"], eps: State) -> State:
        """The network's input at step k: zero at first, then z + σ_k ε."""
        return torch.where(_column(k == 0, z), 0.0, z + self._sigma(k, z) * eps)

    def output(self, z_k: State, x: Condition, k: Int[Tensor, " B"]) -> State:
        """The raw network output at step k."""
        log_snr = -2 * torch.tensor(self.levels, dtype=torch.float64)[k].log()
        return self.ask(z_k, x, beside(log_snr, z_k))

    def objective(self, z: State, k: Int[Tensor, " B"], eps: State) -> State:
        """What the network learns: z itself from nothing, then the noise."""
        return torch.where(_column(k == 0, z), z, eps)

    def _sigma(self, k: Int[Tensor, " B"], z: State) -> Float[Tensor, B * ones]:
        return _column(torch.tensor(self.levels, dtype=torch.float64)[k].to(z.dtype), z)


def _column(per_sample: Tensor, like: State) -> Tensor:
    return per_sample.to(like.device, non_blocking=True).reshape(-1, *[1] * (like.ndim - 1))
