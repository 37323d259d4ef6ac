r"""Solvers of the probability-flow equation of a denoiser D(z + σ ε, σ), where noise is added and the signal keeps its scale.

    dz/dσ = (z − D(z, σ))/σ

Levels fall from the first to the last one, which may be 0. A step to 0 is always D itself, in both solvers. The form is
that of Karras et al. (2022); `core.interop.edm` says how it is related to ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from biasbound.core.noise import State

__all__ = ["RHO", "Denoise", "heun", "karras", "multistep"]

RHO = 7.0
Denoise = Callable[[State, float], State]  # D(z_σ, σ)


def karras(count: int, low: float, high: float, rho: float = RHO) -> list[float]:
    """σ_i = (σ_max^{1/ρ} + i/(N−1) (σ_min^{1/ρ} − σ_max^{1/ρ}))^ρ, i = 0 … N−1: N levels from `high` down to `low`."""
    if count < 1 or not 0 < low < high < math.inf or not rho > 0:
        raise ValueError(f"levels need a count, 0 < low < high and ρ > 0, got {count}, {low}, {high} and {rho}")
    if count == 1:
        return [high]
    top, bottom = high ** (1 / rho), low ** (1 / rho)
    return [high, *((top + i / (count - 1) * (bottom - top)) ** rho for i in range(1, count - 1)), low]


def heun(denoise: Denoise, z: State, levels: Sequence[float], plain: int = 0) -> State:
    """Heun's method of second order: two calls per step, one where it ends at 0 and in the first `plain` steps."""
    for i, (high, low) in enumerate(pairwise(levels)):
        slope = (z - denoise(z, high)) / high
        ahead = z + (low - high) * slope
        if low > 0 and i >= plain:
            slope = (slope + (ahead - denoise(ahead, low)) / low) / 2
            ahead = z + (low - high) * slope
        z = ahead
    return z


def multistep(denoise: Denoise, z: State, levels: Sequence[float]) -> State:
    r"""DPM-Solver++(2M) of second order: one call per step (Lu et al. 2022).

        z′ = (σ′/σ) z − expm1(−h) D̃,    D̃ = (1 + 1/2r) D − (1/2r) D_last,    h = ln(σ/σ′),  r = h_last/h

    Its first step, and one that ends at 0, take D for D̃.
    """
    last: tuple[State, float] | None = None  # D and h of the step before
    for high, low in pairwise(levels):
        found = denoise(z, high)
        if low == 0:
            return found
        h, mixed = math.log(high / low), found
        if last is not None:
            weight = h / (2 * last[1])
            mixed = (1 + weight) * found - weight * last[0]
        z, last = low / high * z - math.expm1(-h) * mixed, (found, h)
    return z
