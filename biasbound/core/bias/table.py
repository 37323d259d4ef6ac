r"""Two-step biases between checkpoints, for N clean estimates and one call per visited pair.

Each level σ has its own noise ε_σ (`draws` of them). The clean estimate of its checkpoint θ*(σ)
serves twice: as the first estimate of every jump that starts at σ, and in the denominator of every
jump that ends at σ. So numerator and denominator of a jump share the noise of the lower level, and
the first estimate has the noise of the upper level. This is the convention of `two_step_bias`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from biasbound.core.bias.estimate import Estimate, pooled
from biasbound.core.bias.ratio import DEFAULT, Measure, error_norm, reestimate
from biasbound.core.denoise import Denoiser, ask
from biasbound.core.mask import error_of
from biasbound.core.noise import Condition, State, draw, renoise
from biasbound.core.sample import descend

__all__ = ["TwoStepTable"]


class TwoStepTable:
    """𝓑^(2S)(σ_to, σ_from) for any two levels of `denoisers`, measured on first use.

    `denoisers[σ]` is θ*(σ); levels may share a denoiser. The table keeps draws × pairs clean
    estimates per level used, on the device of y.
    """

    def __init__(self, denoisers: Mapping[float, Denoiser], x: Condition, y: State, how: Measure = DEFAULT) -> None:
        self.levels = tuple(sorted(denoisers))
        self._denoisers = dict(denoisers)
        self._batches, self._how = list(how.batches(x, y)), how
        device = None if how.generator is None else how.generator.device
        self._seed = int(torch.randint(2**62, (), generator=how.generator, device=device))
        self._clean: dict[float, list[Tensor]] = {}
        self._known: dict[tuple[float, float], Estimate] = {}

    def __call__(self, sigma_to: float, sigma_from: float) -> Estimate:
        """The bias of the jump from σ_from down to σ_to."""
        for sigma in (sigma_to, sigma_from):
            if sigma not in self._denoisers:
                raise ValueError(f"σ = {sigma} is not among the table's levels {self.levels}")
        if not sigma_to < sigma_from:
            raise ValueError(f"a chain steps down: σ_to = {sigma_to} must be below σ_from = {sigma_from}")
        if (sigma_to, sigma_from) not in self._known:
            self._known[sigma_to, sigma_from] = self._measure(sigma_to, sigma_from)
        return self._known[sigma_to, sigma_from]

    def clean_error(self, sigma: float) -> Estimate:
        """E_clean(σ) of the checkpoint of level σ, from the estimates that the table keeps."""
        per_batch = zip(self._batches, self._clean_estimates(sigma), strict=True)
        how = self._how
        return pooled(
            Estimate.of(self._norms(clean, y).pow(how.power).mean(0), how.draws) for (_, y), clean in per_batch
        )

    def matrix(self) -> list[tuple[float, float, Estimate]]:
        """(σ_to, σ_from, bias) for every pair of levels: the full landscape, N(N−1)/2 calls."""
        pairs = [(to, start) for to in self.levels for start in self.levels if to < start]
        return [(to, start, self(to, start)) for to, start in pairs]

    @torch.no_grad()
    def _measure(self, sigma_to: float, sigma_from: float) -> Estimate:
        errors, cleans = [], []
        kept = zip(self._batches, self._clean_estimates(sigma_from), self._clean_estimates(sigma_to), strict=True)
        for b, ((x, y), first, clean) in enumerate(kept):
            noises = zip(first, self._noise(sigma_from, b, y), self._noise(sigma_to, b, y), strict=True)
            second = torch.stack([self._second(x, y, f, sigma_from, sigma_to, *eps) for f, *eps in noises])
            errors.append(self._norms(second, y))
            cleans.append(self._norms(clean, y))
        return Estimate.of_ratio(torch.cat(errors, 1), torch.cat(cleans, 1), self._how.power)

    def _second(
        self, x: Condition, y: State, first: State, sigma_from: float, sigma_to: float, eps: State, eps_to: State
    ) -> State:
        """The estimate at σ_to after one step of the chain from the first estimate."""
        y_from = renoise(y, sigma_from, eps)
        y_to = descend(y_from, first, sigma_from, sigma_to, lambda: eps_to, self._how.transition)
        return ask(self._denoisers[sigma_to], y_to, x, sigma_to)

    @torch.no_grad()
    def _clean_estimates(self, sigma: float) -> list[Tensor]:
        """One tensor (R, B, C, *N) per batch."""
        if sigma not in self._clean:
            denoiser = self._denoisers[sigma]
            self._clean[sigma] = [
                torch.stack([reestimate(denoiser, x, y, sigma, eps) for eps in self._noise(sigma, b, y)])
                for b, (x, y) in enumerate(self._batches)
            ]
        return self._clean[sigma]

    def _noise(self, sigma: float, batch: int, y: State) -> list[Tensor]:
        """The draws of a level, regenerated from their seed instead of stored."""
        index = self.levels.index(sigma) * len(self._batches) + batch
        generator = torch.Generator().manual_seed(self._seed + index)
        return [draw(y, generator) for _ in range(self._how.draws)]

    def _norms(self, estimates: Tensor, y: State) -> Tensor:
        """‖estimate − y‖ of shape (R, B)."""
        one = self._denoisers[self.levels[0]]  # all are of one problem and have its mask
        return torch.stack([error_norm(error_of(one, estimate, y)) for estimate in estimates])
