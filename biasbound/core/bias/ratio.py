r"""Errors of estimates, and the one ratio that makes a bias of two of them.

‖·‖ is the root mean square over channels and grid points, so errors compare across grids. For one pair (x, y),

    E_clean = E_ε ‖y_est(√ᾱ y + σ ε) − y‖,      bias = E_ε ‖y_est(…) − y‖ / E_ε ‖y_est(√ᾱ y + σ ε) − y‖,

where … is an input that a chain would meet. A bias is the mean of this over pairs: first the noise draws are
averaged, then numerator and denominator are divided, then pairs are averaged. `power=2` squares the norms.

Noise: the first estimate has its own draw, as in sampling; numerator and denominator share the second one (common
random numbers). `shared=True` uses one draw throughout, as the algebra of the paper's appendices does; it gives
larger biases: for the exact posterior mean 1 + k against about √((1+k)²(1−k) + k(1+k²)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from biasbound.core.bias.estimate import Estimate, pooled
from biasbound.core.denoise import Denoiser, ask
from biasbound.core.noise import Condition, State, draw, renoise

__all__ = [
    "Power",
    "Stability",
    "batches",
    "bias_ratio",
    "clean_error",
    "error_norm",
    "own_bias",
    "reestimate",
    "stability",
    "two_step_bias",
]

Power = Literal[1, 2]
PerPair = Float[Tensor, " B"]
PerDraw = Float[Tensor, "R B"]


def error_norm(error: State) -> PerPair:
    """Root mean square over channels and grid points, in float64."""
    return error.flatten(1).double().square().mean(1).sqrt()


def divide(numerator: PerPair, clean: PerPair, zero_over_zero: float) -> PerPair:
    """numerator / clean for each pair; 0/0 as told, anything else over 0 is infinite."""
    return torch.where((numerator == 0) & (clean == 0), zero_over_zero, numerator / clean)


def bias_ratio(error: PerDraw, clean: PerDraw, power: Power = 1) -> PerPair:
    """E_ε‖error‖^p / E_ε‖clean‖^p for each pair.

    Where the clean error is zero: 1 if the other is zero too (the chain is no worse than its denoiser), else ∞.
    """
    if power not in (1, 2):
        raise ValueError(
            f"a bias compares norms (power=1) or squared norms (power=2), not power={power}"
        )
    return divide(error.pow(power).mean(0), clean.pow(power).mean(0), 1.0)


def reestimate(denoiser: Denoiser, x: Condition, signal: State, sigma: float, eps: State) -> State:
    """y_est(√ᾱ signal + σ ε): of the truth (clean input), or of an estimate that a chain would noise again."""
    return ask(denoiser, renoise(signal, sigma, eps), x, sigma)


def batches(x: Condition, y: State, size: int | None) -> Iterator[tuple[Tensor, Tensor]]:
    """The pairs in chunks of at most `size`; all at once with None."""
    if len(x) != len(y):
        raise ValueError(f"x and y must come in pairs, got {len(x)} and {len(y)}")
    if len(x) == 0:
        raise ValueError("no pairs (x, y) were given")
    if size is not None and size < 1:
        raise ValueError(f"batch_size must be at least 1, got {size}")
    step = len(x) if size is None else size
    for i in range(0, len(x), step):
        yield x[i : i + step], y[i : i + step]


def checked_draws(draws: int) -> int:
    """Refuse a measurement without noise."""
    if draws < 1:
        raise ValueError(f"a bias needs at least one noise draw, got draws={draws}")
    return draws


def over_draws(one: Callable[[], tuple[Tensor, ...]], draws: int) -> tuple[PerDraw, ...]:
    """Repeat a measurement of one or more values a pair; stack each into (R, B)."""
    if draws < 1:
        raise ValueError(f"a bias needs at least one noise draw, got draws={draws}")
    return tuple(
        torch.stack(values) for values in zip(*(one() for _ in range(draws)), strict=True)
    )


@torch.no_grad()
def clean_error(
    denoiser: Denoiser,
    x: Condition,
    y: State,
    sigma: float,
    *,
    draws: int = 4,
    power: Power = 1,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
) -> Estimate:
    """E_clean(σ) = E ‖y_est(√ᾱ y + σ ε) − y‖^p (paper Def. 3.1)."""

    def measure(x: Condition, y: State) -> Estimate:
        (errors,) = over_draws(
            lambda: (error_norm(reestimate(denoiser, x, y, sigma, draw(y, generator)) - y),), draws
        )
        return Estimate.of(errors.pow(power).mean(0), draws)

    return pooled(measure(*pair) for pair in batches(x, y, batch_size))


@torch.no_grad()
def two_step_bias(
    denoiser: Denoiser,
    x: Condition,
    y: State,
    sigma_to: float,
    sigma_from: float,
    *,
    first: Denoiser | None = None,
    draws: int = 4,
    power: Power = 1,
    shared: bool = False,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
) -> Estimate:
    """𝓑^(2S)(σ_to, σ_from): how much worse an estimate at σ_to is after one chain step from σ_from.

    `first` (default: `denoiser`) estimates at σ_from from noised truth, `denoiser` at σ_to from that estimate noised
    again: the checkpoints θ*(σ′) and θ*(σ_t) of the paper's Phase 2.
    """
    first = denoiser if first is None else first

    def one(x: Condition, y: State) -> tuple[PerPair, PerPair]:
        eps_from = draw(y, generator)
        eps_to = eps_from if shared else draw(y, generator)
        y_first = reestimate(first, x, y, sigma_from, eps_from)
        y_two = reestimate(denoiser, x, y_first, sigma_to, eps_to)
        same = shared and first is denoiser and sigma_from == sigma_to
        y_clean = y_first if same else reestimate(denoiser, x, y, sigma_to, eps_to)
        return error_norm(y_two - y), error_norm(y_clean - y)

    def measure(x: Condition, y: State) -> Estimate:
        error, clean = over_draws(lambda: one(x, y), draws)
        return Estimate.of(bias_ratio(error, clean, power), draws)

    return pooled(measure(*pair) for pair in batches(x, y, batch_size))


def own_bias(
    denoiser: Denoiser,
    x: Condition,
    y: State,
    sigma: float,
    *,
    draws: int = 4,
    power: Power = 1,
    shared: bool = False,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
) -> Estimate:
    """𝓑^(own)(σ): the two-step bias of a step from a level to itself. The level is stable when it is near 1."""
    return two_step_bias(
        denoiser,
        x,
        y,
        sigma,
        sigma,
        draws=draws,
        power=power,
        shared=shared,
        generator=generator,
        batch_size=batch_size,
    )


class Stability(NamedTuple):
    """A level's own-prediction bias and its clean-input error, from the same noise."""

    own: Estimate
    clean: Estimate

    def as_dict(self) -> dict[str, float | None]:
        """Flat JSON values; JSON has no infinities, they become null."""
        own, clean = self.own, self.clean
        values = {"own": own.mean, "own_stderr": own.stderr}
        values |= {"clean": clean.mean, "clean_stderr": clean.stderr}
        return {k: v if math.isfinite(v) else None for k, v in values.items()}


@torch.no_grad()
def stability(
    denoiser: Denoiser,
    x: Condition,
    y: State,
    sigma: float,
    *,
    draws: int = 2,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
) -> Stability:
    """𝓑^(own)(σ) and E_clean(σ) from 2R denoiser calls for R draws, where `own_bias` alone needs 3R.

    The clean estimate of draw r is the first estimate of draw r + 1, cyclically: it is independent of the noise that
    it gets, as in `own_bias`, and costs nothing. A single draw has no neighbour and makes one more call.
    """

    def measure(x: Condition, y: State) -> Stability:
        noises = [draw(y, generator) for _ in range(checked_draws(draws))]
        clean = [reestimate(denoiser, x, y, sigma, eps) for eps in noises]
        first = [clean[-1], *clean[:-1]]
        if draws == 1:
            first = [reestimate(denoiser, x, y, sigma, draw(y, generator))]
        own = [reestimate(denoiser, x, f, sigma, e) for f, e in zip(first, noises, strict=True)]
        own_error, clean_norm = (
            torch.stack([error_norm(estimate - y) for estimate in made]) for made in (own, clean)
        )
        return Stability(
            Estimate.of(bias_ratio(own_error, clean_norm), draws),
            Estimate.of(clean_norm.mean(0), draws),
        )

    parts = [measure(*pair) for pair in batches(x, y, batch_size)]
    return Stability(pooled(p.own for p in parts), pooled(p.clean for p in parts))
