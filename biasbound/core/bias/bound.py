r"""The recursive bound on the REB (paper Prop. 3.3 and Appendix B).

With λ_t = ‖J_t‖ √ᾱ_t ‖clean error at t+1‖/‖clean error at t‖ and J_t the Jacobian of the denoiser
at ŷ_t^(2S),

    REB(t) ≤ 1 + √((𝓑^(2S)(t) − ρ₁)² + 1 − ρ₁²) + λ_t √((REB(t+1) − ρ₂)² + 1 − ρ₂²),

with ρ₁ at level t and ρ₂ at level t+1. (The paper defines ρ₂ at level t, which is a slip: the term
that it bounds is REB_alt(t+1).) The bound holds for each pair and draw separately. It is exact for
denoisers that are linear in y_t, and holds to first order for others. When all errors are aligned,
it reads REB(t) ≲ 𝓑^(2S)(t) + λ_t REB(t+1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from biasbound.core.bias.curve import LevelNoise, Terms, chain_terms, cosine_similarity
from biasbound.core.bias.estimate import Estimate, divide, pooled
from biasbound.core.bias.ratio import Measure, PerPair, error_norm
from biasbound.core.denoise import Denoiser, ask
from biasbound.core.mask import error_of
from biasbound.core.noise import Condition, Sigma, State, alpha_bar, draw
from biasbound.core.schedule import Schedule

__all__ = ["BoundRow", "jacobian_norm", "reb_bound"]

ONE_DRAW = Measure(draws=1)


def jacobian_norm(
    denoiser: Denoiser,
    y_t: State,
    x: Condition,
    sigma: Sigma,
    *,
    iterations: int = 200,
    rtol: float = 1e-5,
    generator: torch.Generator | None = None,
) -> PerPair:
    """‖∂y_est/∂y_t‖, the largest singular value for each sample, by power iteration on JᵀJ.

    Each iteration is a jvp followed by a vjp. The values approach the norm from below. The
    iteration stops when no value grows by more than `rtol`, relative to its size.
    """

    def estimate(state: Tensor) -> Tensor:
        return ask(denoiser, state, x, sigma, allow_nonfinite=True)

    def lengths(v: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(v, dim=tuple(range(1, v.ndim)), keepdim=True)
        return length

    v = draw(y_t, generator)
    v = v / lengths(v)
    norm = torch.zeros_like(lengths(v))
    # Fused attention kernels have no forward-mode derivative; the plain kernel does.
    with sdpa_kernel(SDPBackend.MATH):
        pull_back = torch.func.vjp(estimate, y_t)[1]
        for _ in range(iterations):
            u = torch.func.jvp(estimate, (y_t,), (v,))[1]
            before, norm = norm, lengths(u)
            if not bool(norm.isfinite().all()):
                raise ValueError("the denoiser's derivative is not finite, so its norm is undefined")
            if bool((norm - before <= rtol * norm).all()):
                break
            (w,) = pull_back(u)
            v = w / lengths(w).clamp_min(torch.finfo(w.dtype).tiny)
    return norm.flatten().double()


@dataclass(frozen=True)
class BoundRow:
    """The bound at level t < T, and `slack_min`: min of (bound − REB) over pairs and draws."""

    t: int
    sigma: float
    jacobian: Estimate  # ‖J_t‖
    lam: Estimate  # λ_t
    reb: Estimate  # the ratio per draw, averaged over draws: the bound applies to each draw
    bound: Estimate
    aligned: Estimate  # 𝓑^(2S)(t) + λ_t REB(t+1)
    slack_min: float


@torch.no_grad()
def reb_bound(
    denoiser: Denoiser,
    x: Condition,
    y: State,
    schedule: Schedule,
    how: Measure = ONE_DRAW,
    *,
    iterations: int = 200,
    rtol: float = 1e-5,
) -> list[BoundRow]:
    """One row per level below the top, from level 0 up, for the `renoise` transition."""

    def one(x: Condition, y: State) -> list[BoundTerms]:
        """The levels T−1 … 0 of one chain."""
        levels: list[BoundTerms] = []
        above: Terms | None = None
        for terms in chain_terms(denoiser, x, y, schedule, LevelNoise(y, how.generator)):
            if above is not None and terms.y_two_step is not None:
                jacobian = jacobian_norm(
                    denoiser,
                    terms.y_two_step,
                    x,
                    terms.sigma,
                    iterations=iterations,
                    rtol=rtol,
                    generator=how.generator,
                )
                levels.append(_bound_terms(terms, above, partial(error_of, denoiser, y=y), jacobian))
            above = terms
        return levels

    def measure(x: Condition, y: State) -> list[BoundRow]:
        by_level = list(zip(*(one(x, y) for _ in range(how.draws)), strict=True))[::-1]
        return [_row(t, schedule.level(t), terms) for t, terms in enumerate(by_level)]

    by_batch = [measure(*pair) for pair in how.batches(x, y)]
    return [_pooled_row(rows) for rows in zip(*by_batch, strict=True)]


class BoundTerms(NamedTuple):
    """The quantities that a `BoundRow` averages, per pair, for one draw."""

    jacobian: PerPair
    lam: PerPair
    reb: PerPair
    bound: PerPair
    aligned: PerPair


def _bound_terms(terms: Terms, above: Terms, error: Callable[[State], State], jacobian: PerPair) -> BoundTerms:
    assert terms.two_step is not None
    clean, two_step, inference = error(terms.clean), error(terms.two_step), error(terms.inference)
    clean_above, inference_above = error(above.clean), error(above.inference)
    size, size_above = error_norm(clean), error_norm(clean_above)
    two_step_ratio = divide(error_norm(two_step), size, 1.0)
    reb = divide(error_norm(inference), size, 1.0)
    reb_above = divide(error_norm(inference_above), size_above, 1.0)
    lam = _times(jacobian * math.sqrt(alpha_bar(terms.sigma)), divide(size_above, size, 0.0))
    bound = (
        1
        + _alternative(two_step_ratio, cosine_similarity(two_step, clean))
        + _times(lam, _alternative(reb_above, cosine_similarity(inference_above, clean_above)))
    )
    return BoundTerms(jacobian, lam, reb, bound, two_step_ratio + _times(lam, reb_above))


def _times(a: PerPair, b: PerPair) -> PerPair:
    """a·b with 0·∞ = 0: an insensitive denoiser passes on no error, however large."""
    return torch.where((a == 0) | (b == 0), 0.0, a * b)


def _alternative(ratio: PerPair, rho: PerPair) -> PerPair:
    """‖a − b‖/‖b‖ from ‖a‖/‖b‖ and cos ∠(a, b): the law of cosines."""
    return torch.sqrt((ratio - rho) ** 2 + (1 - rho**2))


def _row(t: int, sigma: float, drawn: tuple[BoundTerms, ...]) -> BoundRow:
    estimates: dict[str, Any] = {
        name: Estimate.of(torch.stack([getattr(terms, name) for terms in drawn]).mean(0), len(drawn))
        for name in BoundTerms._fields
    }
    slack_min = min((terms.bound - terms.reb).nan_to_num(math.inf).min().item() for terms in drawn)
    return BoundRow(t, sigma, **estimates, slack_min=slack_min)


def _pooled_row(rows: tuple[BoundRow, ...]) -> BoundRow:
    estimates: dict[str, Any] = {name: pooled(getattr(row, name) for row in rows) for name in BoundTerms._fields}
    return replace(rows[0], **estimates, slack_min=min(row.slack_min for row in rows))
