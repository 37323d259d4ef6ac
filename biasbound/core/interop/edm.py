r"""The form of EDM and k-diffusion: noise is added to a signal that keeps its scale.

With r = σ/√ᾱ the noisy field is y_t/√ᾱ = y + r ε, and a denoiser D(y + r ε, r) estimates y. A chain begins at ŷ_T/√ᾱ_T,
where these libraries begin at r_T ε: the same for ŷ_T = ε up to the factor √(1 + 1/r_T²). On `ratios`, with noise ε,

    their loop                               here
    Euler (`sample_euler`)                   ddim
    ancestral Euler, η = 1                   ddpm
    D(·), then + r ε (`sample_lcm`)          renoise, the paper's
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from biasbound.core.denoise import Denoiser
from biasbound.core.noise import Condition, Sigma, State, alpha_bar, coefficients

__all__ = ["Ratio", "as_edm", "denoiser_of", "levels_of", "ratios"]

Ratio = float | Float[Tensor, ""] | Float[Tensor, " B"]


def ratios(sigma: Iterable[float]) -> Float[Tensor, " T"]:
    """σ/√ᾱ from the highest level down to a last 0, as k-diffusion's samplers take them (float64)."""
    down = sorted((s / math.sqrt(alpha_bar(s)) for s in sigma), reverse=True)
    return torch.tensor([*down, 0.0], dtype=torch.float64)


def levels_of(ratios: Iterable[Any]) -> list[float]:
    """σ = r/√(1 + r²), increasing, of ratios in any order; zeros mark the end of a chain and are left out."""
    found = sorted(float(r) for r in ratios)
    return [r / math.hypot(1, r) for r in found if r != 0]


def as_edm(denoiser: Denoiser, x: Condition) -> Callable[[State, Ratio], State]:
    """D(y + r ε, r) = denoiser(√ᾱ (y + r ε), x, σ), for loops of EDM or k-diffusion."""

    def model(noisy: State, ratio: Ratio) -> State:
        r = torch.as_tensor(ratio, dtype=torch.float64)
        level = r / (1 + r * r).sqrt()
        sigma: Sigma = level if level.ndim else float(level)
        a, _ = coefficients(sigma, noisy)
        return denoiser(a * noisy, x, sigma)

    return model


def denoiser_of(model: Callable[[State, Condition, Float[Tensor, " B"]], State]) -> Denoiser:
    """A denoiser from a model D(y + r ε, x, r), which is given one ratio per sample."""

    def denoiser(y_t: State, x: Condition, sigma: Sigma) -> State:
        level = torch.as_tensor(sigma, dtype=torch.float64).expand(len(y_t))
        a, _ = coefficients(level, y_t)
        answer: State = model(y_t / a, x, (level / alpha_bar(level).sqrt()).to(y_t))
        return answer

    return denoiser
