r"""Denoisers in closed form, for learning the method and for tests.

Each oracle comes with the data for which it is exact (`pairs`). The whole method, from the
clean-input error to the searched schedule, runs on it in seconds, and every number can be checked
analytically.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from biasbound.core.noise import Condition, Sigma, State, alpha_bar, coefficients, draw

__all__ = ["AffineOracle", "GaussianOracle", "WienerOracle"]

LevelFunction = float | Callable[[float], float]


class AffineOracle:
    r"""A denoiser with prescribed error and sensitivity, for the deterministic dynamics y = x.

        y_est = y + c(σ) u + κ(σ)/√ᾱ · (y_t − √ᾱ y),    u = 1 everywhere, or `direction`

    Its error on the noised truth is e = c u + κ σ/√ᾱ ε. On its own estimate, noised with the same
    draw, its error is (1 + κ) e, so 𝓑^(own) = 1 + κ exactly. Where c dominates,
    𝓑^(2S)(σ_t, σ′) ≈ 1 + κ(σ_t) c(σ′)/c(σ_t): the sensitivity limits the length of a jump.
    """

    def __init__(self, error: LevelFunction, sensitivity: LevelFunction, direction: Tensor | None = None) -> None:
        self.error = error
        self.sensitivity = sensitivity
        self.direction = direction

    def pairs(self, shape: Sequence[int], generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """(x, y) with y = x ~ N(0, I)."""
        x = draw(torch.empty(*shape), generator)
        return x, x.clone()

    def __call__(self, y_t: State, x: Condition, sigma: Sigma) -> State:
        a, _ = coefficients(sigma, y_t)
        y = x[:, : y_t.shape[1]]
        u = torch.ones_like(y) if self.direction is None else self.direction.to(y)
        return y + _at(self.error, sigma, y) * u + _at(self.sensitivity, sigma, y) / a * (y_t - a * y)


class WienerOracle:
    r"""The exact posterior mean for y = x + a Gaussian field with power spectrum P(k).

    `spectrum` has the shape *N of a field and the order of `torch.fft.fftn`: P(k) = E|ŷ_k|²/N,
    where N is the number of points. Per wavenumber, with d = y − x,

        d_est(k) = H(k) d_t(k),    H(k) = √ᾱ P/(ᾱ P + σ²),    E(k) = σ² P/(ᾱ P + σ²),

    and H = (√ᾱ/σ²) E. This is the structure that the paper's Appendix C assumes for a trained
    denoiser.
    """

    def __init__(self, spectrum: Float[Tensor, "*N"]) -> None:
        power = spectrum.double()
        if not bool((power.isfinite() & (power >= 0)).all()):
            raise ValueError("a power spectrum must be finite and non-negative")
        axes = tuple(range(power.ndim))
        mirrored = power.flip(axes).roll([1] * power.ndim, axes)
        if not torch.allclose(power, mirrored):
            raise ValueError("the power spectrum of a real field must be symmetric, P(k) = P(−k)")
        self.spectrum = power

    def pairs(self, shape: Sequence[int], generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """(x, y) with x ~ N(0, I) and y − x of spectrum P; shape (B, C, *N)."""
        x = draw(torch.empty(*shape), generator)
        return x, x + self._filter(self.spectrum.sqrt(), draw(x, generator))

    def residual_spectrum(self, sigma: float) -> Float[Tensor, "*N"]:
        """E(k), the remaining error variance of the estimate per wavenumber."""
        remaining: Tensor = sigma**2 * self.spectrum / (alpha_bar(sigma) * self.spectrum + sigma**2)
        return remaining

    def __call__(self, y_t: State, x: Condition, sigma: Sigma) -> State:
        a, _ = coefficients(sigma, y_t)
        mean = x[:, : y_t.shape[1]]
        level = torch.as_tensor(sigma, dtype=torch.float64).reshape(-1, *[1] * (y_t.ndim - 1))
        signal = alpha_bar(level)
        gain = signal.sqrt() * self.spectrum / (signal * self.spectrum + level**2)
        return mean + self._filter(gain, y_t - a * mean)

    def _filter(self, gain: Tensor, field: State) -> State:
        axes = tuple(range(-self.spectrum.ndim, 0))
        filtered: Tensor = torch.fft.ifftn(gain.to(field) * torch.fft.fftn(field, dim=axes), dim=axes)
        return filtered.real


class GaussianOracle:
    r"""The exact posterior mean for y ~ N(x, r² I): the Wiener oracle of a flat spectrum.

        y_est = x + k/√ᾱ · (y_t − √ᾱ x),    k = ᾱ r²/(ᾱ r² + σ²)

    Even this perfect denoiser has 𝓑^(own) = 1 + k with shared noise, so no chain is stable below
    σ ≈ r.
    """

    def __init__(self, std: float) -> None:
        if not (std > 0 and math.isfinite(std)):
            raise ValueError(f"the standard deviation std must be positive and finite, got {std}")
        self.std = std

    def pairs(self, shape: Sequence[int], generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """(x, y) with x ~ N(0, I) and y ~ N(x, r² I)."""
        x = draw(torch.empty(*shape), generator)
        return x, x + self.std * draw(x, generator)

    def gain(self, sigma: float) -> float:
        """k: the weight of the noisy input in the estimate."""
        signal = alpha_bar(sigma) * self.std**2
        return signal / (signal + sigma**2)

    def own_bias(self, sigma: float, *, shared: bool = False, power: int = 1) -> float:
        """𝓑^(own) for fields of many points.

            shared noise:  (1 + k)^power,
            fresh noise:   ((1 + k)²(1 − k) + k(1 + k²))^(power/2).

        A share k of the error variance comes from the noise. With fresh noise this part does not
        add up coherently: its square grows by 1 + k² instead of (1 + k)².
        """
        k = self.gain(sigma)
        squared = (1 + k) ** 2 if shared else (1 + k) ** 2 * (1 - k) + k * (1 + k**2)
        return float(squared ** (power / 2))

    def __call__(self, y_t: State, x: Condition, sigma: Sigma) -> State:
        a, _ = coefficients(sigma, y_t)
        mean = x[:, : y_t.shape[1]]
        return mean + _at(self.gain, sigma, y_t) / a * (y_t - a * mean)


def _at(function: LevelFunction, sigma: Sigma, y: State) -> float | Tensor:
    """The value of a function of the level, as one number or as one number per sample."""
    if not callable(function):
        return float(function)
    if not isinstance(sigma, Tensor):
        return function(sigma)
    return y.new_tensor([function(s) for s in sigma.double().tolist()]).reshape(-1, *[1] * (y.ndim - 1))
