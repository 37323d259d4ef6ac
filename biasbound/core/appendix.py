r"""The paper's appendices on one denoiser: how tight the bound of B is, and how well C predicts its own bias.

    B   REB(t) ≤ 1 + √((𝓑^(2S) − ρ₁)² + 1 − ρ₁²) + λ_t √((REB(t+1) − ρ₂)² + 1 − ρ₂²),    λ_t = ‖J_t‖ √ᾱ_t E_{t+1}/E_t
    C   𝓑^(own) ≈ 1 + 2 (ᾱ/σ²) R(θ) + …,    R(θ) = Σ_k E_θ(k)²/Σ_k E_θ(k)

Both cost more than the biases themselves: B needs the norm of a Jacobian per level and pair. C is about squared norms and
one noise throughout, so its biases are larger than those that a search bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from biasbound.core.bias import (
    BoundRow,
    Estimate,
    Measure,
    dominant_power,
    own_bias,
    predicted_own_bias,
    reb_bound,
    residual_spectrum,
)
from biasbound.core.denoise import Denoiser
from biasbound.core.noise import Condition, State, alpha_bar
from biasbound.core.schedule import Schedule

__all__ = ["Appendices", "Predicted", "appendices", "predictions"]


@dataclass(frozen=True)
class Predicted:
    """Appendix C at one level: what the error spectrum says of the own bias, and the own bias itself."""

    spectrum: tuple[float, ...]  # E_θ(k) for k = 0, 1, 2, …
    ratio: float  # R(θ) over σ²/ᾱ, the power of the noise
    predicted: Estimate
    measured: Estimate

    def as_dict(self) -> dict[str, Any]:
        told = {"spectrum": list(self.spectrum), "ratio": self.ratio}
        return told | self.predicted.as_dict("predicted") | self.measured.as_dict("measured")


@dataclass(frozen=True)
class Appendices:
    """`bound` along `chain`, which is empty for a transition that the bound is not about; `predicted` per level.

    `against` is `predicted` of another network, and `than` its name.
    """

    chain: Schedule | None
    bound: tuple[BoundRow, ...]
    predicted: Mapping[float, Predicted]
    against: Mapping[float, Predicted]
    than: str = ""

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        names = ("jacobian", "lam", "reb", "bound", "aligned")

        def row(of: BoundRow) -> dict[str, Any]:
            slack = of.slack_min if math.isfinite(of.slack_min) else None
            told: dict[str, Any] = {"t": of.t, "sigma": of.sigma, "slack_min": slack}
            for name in names:
                told |= getattr(of, name).as_dict(name)
            return told

        return {
            "chain": None if self.chain is None else list(self.chain.sigma),
            "bound": [row(of) for of in self.bound],
            "predicted": [{"sigma": s, **found.as_dict()} for s, found in self.predicted.items()],
            "than": self.than,
            "against": [{"sigma": s, **found.as_dict()} for s, found in self.against.items()],
        }


def predictions(
    denoiser: Denoiser, x: Condition, y: State, levels: Iterable[float], how: Measure
) -> dict[float, Predicted]:
    """Appendix C at every level, on pairs in the denoiser's units."""
    shared = replace(how, shared=True, power=2)

    def at(sigma: float) -> Predicted:
        spectrum = residual_spectrum(denoiser, x, y, sigma, how)
        ratio = dominant_power(spectrum) * alpha_bar(sigma) / sigma**2
        measured = own_bias(denoiser, x, y, sigma, shared)
        return Predicted(tuple(spectrum.by_wavenumber()), ratio, predicted_own_bias(spectrum), measured)

    return {sigma: at(sigma) for sigma in levels}


def appendices(
    denoiser: Denoiser, x: Condition, y: State, levels: Iterable[float], chain: Schedule | None, how: Measure
) -> Appendices:
    """Both appendices: B along a chain, where its transition is `renoise`, and C on levels.

    ‖J_t‖ is known to a thousandth or so, from below, which is enough for a bound that is loose by factors.
    """
    bounded = chain if how.transition == "renoise" else None
    rows = (
        [] if bounded is None else reb_bound(denoiser, x, y, bounded, replace(how, draws=1), iterations=50, rtol=1e-3)
    )
    return Appendices(bounded, tuple(rows), predictions(denoiser, x, y, levels, how), {})
