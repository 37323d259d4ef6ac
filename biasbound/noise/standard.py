"""The schedules that people know, with the constants of the paper's baselines."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from .levels import log_snr, sigma_from_log_snr
from .schedule import SIGMA_MAX, Schedule, cap, check_levels

__all__ = ["cosine", "linear", "log_uniform", "sigmoid"]


def _from_betas(method: str, beta: Tensor, sigma_max: float | None) -> Schedule:
    """σ_t from ᾱ_t = Π (1 − β_s), β clipped to [1e-4, 0.9999] as in the source of the baselines."""
    log_alpha_bar = torch.log1p(-beta.clamp(1e-4, 0.9999)).cumsum(0)
    sigma = torch.sqrt(
        -torch.expm1(log_alpha_bar)
    ).tolist()  # √(1 − ᾱ) without cancellation at small σ
    meta = {"method": method, "T": len(sigma)}
    if sigma_max is not None and sigma[-1] > sigma_max:
        return Schedule(cap(sigma, sigma_max), {**meta, "capped": sigma_max})
    if sigma[-1] == 1:
        raise ValueError(
            f"{method}(T={len(sigma)}) has levels closer to 1 than float64 can tell; "
            f"pass sigma_max, for instance {method}(T={len(sigma)}, sigma_max=10**-1e-4)"
        )
    return Schedule(sigma, meta)


def _ramp(T: int) -> Tensor:
    if T < 1:
        raise ValueError(f"a schedule needs T ≥ 1 levels, got T={T}")
    return torch.linspace(0, 1, T, dtype=torch.float64)


def linear(T: int = 20, sigma_max: float | None = None) -> Schedule:
    """T levels from β rising linearly from 1e-4·500/T to 0.02·500/T.

    T counts the β's, as DDPM does: T levels, T denoiser calls. Levels above `sigma_max` give way to it.
    """
    return _from_betas("linear", (1e-4 + (0.02 - 1e-4) * _ramp(T)) * 500 / T, sigma_max)


def cosine(T: int = 20, sigma_max: float | None = None) -> Schedule:
    """T levels from ᾱ(u) ∝ cos²(π/2 · (u + 0.008)/1.008), u = t/T; arguments as in `linear`."""
    u = torch.arange(len(_ramp(T)) + 1, dtype=torch.float64) / T
    signal = torch.cos((u + 0.008) / 1.008 * math.pi / 2) ** 2
    return _from_betas("cosine", 1 - signal[1:] / signal[:-1], sigma_max)


def sigmoid(T: int = 20, sigma_max: float | None = None) -> Schedule:
    """T levels from β on a logistic curve over [−6, 6], from 1e-4·1000/T to 0.02·1000/T; as `linear`."""
    ramp = torch.sigmoid(12 * _ramp(T) - 6)
    return _from_betas("sigmoid", (1e-4 + (0.02 - 1e-4) * ramp) * 1000 / T, sigma_max)


def log_uniform(
    T: int = 40,
    sigma_min: float = 1e-3,
    sigma_max: float = SIGMA_MAX,
    over: Literal["ratio", "sigma"] = "ratio",
) -> Schedule:
    """T levels from `sigma_min` to `sigma_max`, equally spaced in log(σ/√ᾱ), or in log σ with over="sigma".

    The ratio σ/√ᾱ = SNR^-½ has no upper end, so its grid stays dense near σ = 1, where a grid in log σ
    makes one step from 0.79 to 0.999.
    """
    if over not in ("ratio", "sigma"):
        raise ValueError(f'log_uniform spaces its levels over "ratio" or "sigma", not {over!r}')
    check_levels([sigma_min] if T == 1 else [sigma_min, sigma_max])
    if over == "sigma":
        low, high = math.log(sigma_min), math.log(sigma_max)
        inner = torch.exp(low + (high - low) * _ramp(T))
    else:
        low, high = log_snr(sigma_min), log_snr(sigma_max)
        inner = sigma_from_log_snr(low + (high - low) * _ramp(T))
    ends = ([sigma_min], [sigma_max]) if T > 1 else ([sigma_min], [])
    return Schedule(
        [*ends[0], *inner[1:-1].tolist(), *ends[1]],
        {"method": "log_uniform", "T": T, "over": over},
    )
