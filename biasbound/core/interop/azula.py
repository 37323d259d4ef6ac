"""Schedules, denoisers and samplers of azula (install it with pip install azula; it brings torchvision).

azula's time runs from 0 to 1 and its samplers take equal steps. A ladder of T + 1 levels puts level t at (t + 1)/(T + 1)
and a clean field at 0, where the sampler's last step returns the estimate, as our chains do.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from biasbound.core.denoise import Denoiser
from biasbound.core.noise import Condition, Sigma, State, alpha_bar
from biasbound.core.sample import Transition
from biasbound.registry import extra

__all__ = ["as_azula", "denoiser_of", "levels_of", "sampler_of", "schedule_of"]

WHERE = "exchange with azula"
ETA: dict[Transition, float] = {
    "renoise": 1e30,
    "ddpm": 1.0,
    "ddim": 0.0,
}  # azula cuts η τ off at 1: all noise is fresh


def schedule_of(sigma: Sequence[float]) -> Any:
    """azula's `Schedule` through these levels; between two of them σ is linear in time."""
    table = torch.tensor([0.0, *sigma], dtype=torch.float64)
    last = len(table) - 1

    class Ladder(extra("azula.noise", WHERE, None).Schedule):  # type: ignore[misc]
        """(√ᾱ, σ) of a time in [0, 1], in the precision of the time."""

        levels = tuple(sigma)

        def __call__(self, t: Tensor) -> tuple[Tensor, Tensor]:
            s = self.exact(t)
            return alpha_bar(s).sqrt().to(t), s.to(t)

        def exact(self, t: Tensor) -> Tensor:
            """σ in float64. Times in float32 are rounded to the level that they mean: σ_0 may be far below 1e-7."""
            place = (t.double() * last).clamp(0, last)
            place = torch.where((place - place.round()).abs() < 1e-4, place.round(), place)
            low = place.floor().long().clamp(max=last - 1)
            here = table.to(t.device)
            return torch.lerp(here[low], here[low + 1], place - low)

    return Ladder()


def levels_of(schedule: Any, steps: int = 64) -> list[float]:
    """σ/√(α² + σ²) at the times where a sampler of `steps` steps calls its denoiser, increasing."""
    times = torch.linspace(1, 0, steps + 1, dtype=torch.float64)[:-1].flip(0)
    exact = getattr(schedule, "exact", None)
    alpha, sigma = schedule(times)
    found: list[float] = (sigma / torch.hypot(alpha, sigma) if exact is None else exact(times)).tolist()
    return found


def as_azula(denoiser: Denoiser, sigma: Sequence[float]) -> Any:
    """A denoiser of ours as azula's `Denoiser`, on these levels; its samplers are given x by the keyword `cond`."""
    library = extra("azula.denoise", WHERE, None)

    class Ours(library.Denoiser):  # type: ignore[misc, name-defined]
        """q(y | y_t, x), a point at the estimate."""

        def __init__(self) -> None:
            super().__init__()
            self.schedule, self.inner = schedule_of(sigma), denoiser

        def forward(self, x_t: Tensor, t: Tensor, cond: Tensor) -> Any:
            level = self.schedule.exact(t)
            return library.DiracPosterior(mean=self.inner(x_t, cond, level if level.ndim else float(level)))

    return Ours()


def sampler_of(denoiser: Any, sigma: Sequence[float], transition: Transition = "renoise") -> Any:
    """azula's sampler that walks these levels; `denoiser` is one of azula's, whose schedule is replaced in a copy.

    It is called with ŷ_T of unit variance and the denoiser's keywords, and draws from torch's global generator.
    """
    own = copy.copy(denoiser)
    own.schedule = schedule_of(sigma)
    return extra("azula.sample", WHERE, None).DDIMSampler(
        own, eta=ETA[transition], steps=len(sigma), silent=True, dtype=torch.float64
    )


def denoiser_of(denoiser: Any, by: str = "cond") -> Denoiser:
    """A denoiser from one of azula's, which is given x by the keyword `by`.

    Its schedule is replaced in a copy by one whose time is σ itself. azula's preconditioned denoisers allow that: what
    they tell their backbone depends on σ/α alone.
    """

    class Identity(extra("azula.noise", WHERE, None).Schedule):  # type: ignore[misc]
        """(√ᾱ, σ) at the time σ."""

        def __call__(self, t: Tensor) -> tuple[Tensor, Tensor]:
            return alpha_bar(t).sqrt().to(t), t

    own = copy.copy(denoiser)
    own.schedule = Identity()

    def ours(y_t: State, x: Condition, sigma: Sigma) -> State:
        level: Float[Tensor, " B"] = torch.as_tensor(sigma, dtype=torch.float64).expand(len(y_t))
        answer: State = own(y_t, level, **{by: x}).mean.to(y_t)
        return answer

    return ours
