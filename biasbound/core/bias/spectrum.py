r"""The own-prediction bias that the error spectrum predicts (paper Appendix C).

E_θ(k) = E|ε̂_k|²/N is the variance of the clean-input error at wavenumber k, for N grid points.
Σ_k E_θ(k) is the squared Euclidean norm of the error. If the denoiser's Jacobian is diagonal in
Fourier space with eigenvalues (√ᾱ/σ²) E_θ(k), as for a Wiener filter, then with shared noise and
squared norms

    𝓑^(own) = 1 + (2ᾱ/σ²) Σ E²/Σ E + (ᾱ/σ²)² Σ E³/Σ E.

So a level is stable when E_θ(k) is well below σ²/ᾱ at the wavenumbers that dominate the error: to first order the bias
depends on R(θ) = Σ E²/Σ E alone, and of two networks the one with the smaller R is the more stable.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from biasbound.core.bias.estimate import Estimate
from biasbound.core.bias.ratio import DEFAULT, Measure, reestimate
from biasbound.core.denoise import Denoiser
from biasbound.core.mask import cleared, mask_of
from biasbound.core.noise import Condition, State, alpha_bar

__all__ = ["ResidualSpectrum", "dominant_power", "predicted_own_bias", "residual_spectrum"]


@dataclass(frozen=True)
class ResidualSpectrum:
    """E_θ(k) per channel, in the order of `torch.fft.fftn`, with the standard error per entry."""

    sigma: float
    power: Float[Tensor, C * N]
    stderr: Float[Tensor, C * N]
    pairs: int
    draws: int

    def by_wavenumber(self) -> list[float]:
        """Mean of E_θ over channels and over the modes of each shell |k| = 0, 1, 2, …, up to the highest along an axis."""
        waves = (torch.fft.fftfreq(n, 1 / n, dtype=torch.float64) for n in self.power.shape[1:])
        squares = torch.stack(torch.meshgrid(*waves, indexing="ij")).square().sum(0)
        shell = squares.sqrt().round().long().flatten()
        power = self.power.mean(0).flatten().cpu()
        found = torch.bincount(shell, power) / torch.bincount(shell).clamp_min(1)
        known: list[float] = found[: max(self.power.shape[1:]) // 2 + 1].tolist()
        return known


@torch.no_grad()
def residual_spectrum(
    denoiser: Denoiser, x: Condition, y: State, sigma: float, how: Measure = DEFAULT
) -> ResidualSpectrum:
    """E_θ(k) at level σ.

    Under a mask the error is 0 at masked points: Σ_k is still its squared norm, but waves that the mask cuts leak into
    one another, and the prediction from the spectrum is only an approximation then.
    """
    axes = tuple(range(2, y.ndim))
    points = math.prod(y.shape[2:])
    total, squares = (torch.zeros(y.shape[1:], dtype=torch.float64, device=y.device) for _ in range(2))

    for x_b, y_b in how.batches(x, y):
        per_pair = torch.zeros(y_b.shape, dtype=torch.float64, device=y.device)
        for _ in range(how.draws):
            error = cleared(reestimate(denoiser, x_b, y_b, sigma, how.noise(y_b)) - y_b, mask_of(denoiser))
            per_pair += torch.fft.fftn(error.double(), dim=axes).abs().square() / points / how.draws
        total += per_pair.sum(0)
        squares += per_pair.square().sum(0)
    n = len(y)
    power = total / n
    spread = (squares / n - power**2).clamp_min(0) / max(n - 1, 1)
    stderr = spread.sqrt() if n > 1 else torch.full_like(power, math.inf)
    return ResidualSpectrum(sigma, power, stderr, n, how.draws)


def dominant_power(spectrum: ResidualSpectrum) -> float:
    """R(θ) = Σ E²/Σ E: E_θ where the error is, each wavenumber weighted by its share of the error; 0 without error."""
    total = spectrum.power.sum()
    return 0.0 if total == 0 else (spectrum.power.square().sum() / total).item()


def predicted_own_bias(spectrum: ResidualSpectrum) -> Estimate:
    """𝓑^(own) (squared norms, shared noise) from E_θ(k); 1 if the error is zero."""
    E, se = spectrum.power, spectrum.stderr
    c = alpha_bar(spectrum.sigma) / spectrum.sigma**2
    total = E.sum()
    if total == 0:
        return Estimate(1.0, 0.0, spectrum.pairs, spectrum.draws)
    second, third = E.pow(2).sum(), E.pow(3).sum()
    mean = 1 + 2 * c * second / total + c**2 * third / total
    slope = 2 * c * (2 * E / total - second / total**2) + c**2 * (3 * E**2 / total - third / total**2)
    # A real field has the same power at k and −k, so the errors of the entries come in equal
    # pairs: variance × 2.
    error = math.sqrt(2 * (slope * se).square().sum().item()) if spectrum.pairs > 1 else math.inf
    return Estimate(mean.item(), error, spectrum.pairs, spectrum.draws)
