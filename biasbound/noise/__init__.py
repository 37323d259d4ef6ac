r"""Noise levels.

A level is named by its standard deviation σ ∈ (0, 1), never by a variance or a step index:

    ᾱ = 1 − σ²,    log-SNR = log(ᾱ/σ²),    ỹ = √ᾱ y + σ ε,    ε ~ N(0, I).

A schedule holds σ_0 < σ_1 < … < σ_T. Its chain makes T transitions and T+1 denoiser calls, so `len(schedule)`
is the number of function evaluations (NFE). Level 0 is noisy too: the chain's output is the estimate there.

Levels live in float64 and are cast only where they meet a field. Near σ = 1, where ᾱ is tiny, this is what keeps
√ᾱ right: 1 − σ is exact in float64, while in float32 every σ above 1 − 3·10⁻⁸ becomes 1 and √ᾱ becomes 0.

Not promised: that a level is useful. A schedule says nothing about the network that will stand on it.
"""

from .levels import (
    Condition,
    RowGenerator,
    ShardGenerator,
    Sigma,
    State,
    alpha_bar,
    coefficients,
    draw,
    draw_index,
    log_snr,
    renoise,
    sigma_from_alpha_bar,
    sigma_from_log_snr,
)
from .schedule import SIGMA_MAX, Schedule
from .standard import cosine, linear, log_uniform, sigmoid

__all__ = [
    "SIGMA_MAX",
    "Condition",
    "RowGenerator",
    "Schedule",
    "ShardGenerator",
    "Sigma",
    "State",
    "alpha_bar",
    "coefficients",
    "cosine",
    "draw",
    "draw_index",
    "linear",
    "log_snr",
    "log_uniform",
    "renoise",
    "sigma_from_alpha_bar",
    "sigma_from_log_snr",
    "sigmoid",
]
