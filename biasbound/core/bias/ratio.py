r"""Errors of estimates, and the ratio of two errors that defines a bias.

‖·‖ is the root mean square over channels and grid points, so errors are comparable across grids.
For one pair (x, y),

    E_clean = E_ε ‖y_est(√ᾱ y + σ ε) − y‖,      bias = E_ε ‖y_est(…) − y‖ / E_clean,

where … is an input that occurs in a chain. A bias is the mean of this ratio over pairs. The order
is: average over noise draws, divide, average over pairs. `power=2` squares the norms.

Noise: the first estimate has its own draw, as in sampling. Numerator and denominator share the
second draw (common random numbers). `shared=True` uses one draw throughout, as the algebra of the
paper's appendices does. It gives larger biases: for the exact posterior mean with gain k, 1 + k
instead of about √((1+k)²(1−k) + k(1+k²)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from biasbound.core.bias.estimate import Estimate, pooled
from biasbound.core.denoise import Denoiser, ask
from biasbound.core.noise import Condition, State, draw, renoise
from biasbound.core.sample import Transition, descend

__all__ = [
    "DEFAULT",
    "Measure",
    "Power",
    "Stability",
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
    """numerator / clean per pair. 0/0 is `zero_over_zero`; anything else over 0 is infinite."""
    return torch.where((numerator == 0) & (clean == 0), zero_over_zero, numerator / clean)


def bias_ratio(error: PerDraw, clean: PerDraw, power: Power = 1) -> PerPair:
    """E_ε‖error‖^p / E_ε‖clean‖^p per pair.

    Where the clean error is zero, the ratio is 1 if the other error is zero too (the chain is no
    worse than its denoiser), and ∞ otherwise.
    """
    if power not in (1, 2):
        raise ValueError(f"power must be 1 (norms) or 2 (squared norms) in a bias, got {power}")
    return divide(error.pow(power).mean(0), clean.pow(power).mean(0), 1.0)


def reestimate(denoiser: Denoiser, x: Condition, signal: State, sigma: float, eps: State) -> State:
    """y_est(√ᾱ signal + σ ε).

    The signal is the truth (clean input), or an estimate that a chain noises again.
    """
    return ask(denoiser, renoise(signal, sigma, eps), x, sigma)


@dataclass(frozen=True)
class Measure:
    """How to measure: the arguments that every bias shares.

    A chain of another `transition` than `renoise` makes the second input of a two-step bias in its own way. The
    own-prediction bias is about noise that is added again, whatever the transition.
    """

    draws: int = 4
    """noise draws per pair"""
    power: Power = 1
    """1 compares norms, 2 squared norms"""
    shared: bool = False
    """one draw throughout, as in the paper's appendices"""
    transition: Transition = "renoise"
    batch_size: int | None = None
    """pairs at once; None: all"""
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise ValueError(f"a bias needs at least one noise draw, got draws={self.draws}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}")
        if self.power not in (1, 2):
            raise ValueError(f"a bias compares norms (power=1) or squared norms (power=2), not power={self.power}")

    def batches(self, x: Condition, y: State) -> Iterator[tuple[Tensor, Tensor]]:
        """The pairs in chunks of at most `batch_size`."""
        if len(x) != len(y):
            raise ValueError(f"x and y must come in pairs, got {len(x)} and {len(y)}")
        if len(x) == 0:
            raise ValueError("no pairs (x, y) were given")
        step = len(x) if self.batch_size is None else self.batch_size
        for i in range(0, len(x), step):
            yield x[i : i + step], y[i : i + step]

    def repeated(self, one: Callable[[], tuple[Tensor, ...]]) -> tuple[PerDraw, ...]:
        """A measurement of one or more values per pair, once per draw; each value is stacked into (R, B)."""
        every = zip(*(one() for _ in range(self.draws)), strict=True)
        return tuple(torch.stack(values) for values in every)

    def noise(self, like: State) -> State:
        """The next draw."""
        return draw(like, self.generator)


DEFAULT = Measure()


@torch.no_grad()
def clean_error(denoiser: Denoiser, x: Condition, y: State, sigma: float, how: Measure = DEFAULT) -> Estimate:
    """E_clean(σ) = E ‖y_est(√ᾱ y + σ ε) − y‖^p (paper Def. 3.1)."""

    def measure(x: Condition, y: State) -> Estimate:
        def one() -> tuple[PerPair]:
            return (error_norm(reestimate(denoiser, x, y, sigma, how.noise(y)) - y),)

        return Estimate.of(how.repeated(one)[0].pow(how.power).mean(0), how.draws)

    return pooled(measure(*pair) for pair in how.batches(x, y))


@torch.no_grad()
def two_step_bias(
    denoiser: Denoiser,
    x: Condition,
    y: State,
    sigma_to: float,
    sigma_from: float,
    how: Measure = DEFAULT,
    *,
    first: Denoiser | None = None,
) -> Estimate:
    """𝓑^(2S)(σ_to, σ_from): how much one chain step from σ_from worsens the estimate at σ_to.

    `first` (default: `denoiser`) estimates at σ_from from the noised truth. `denoiser` estimates
    at σ_to after one step of the chain from there. They are the checkpoints θ*(σ′) and θ*(σ_t) of the
    paper's Phase 2.
    """
    first = denoiser if first is None else first

    def one(x: Condition, y: State) -> tuple[PerPair, PerPair]:
        eps_from = how.noise(y)
        eps_to = eps_from if how.shared else how.noise(y)
        y_from = renoise(y, sigma_from, eps_from)
        y_first = ask(first, y_from, x, sigma_from)
        y_to = descend(y_from, y_first, sigma_from, sigma_to, lambda: eps_to, how.transition)
        y_two = ask(denoiser, y_to, x, sigma_to)
        same = how.shared and first is denoiser and sigma_from == sigma_to
        y_clean = y_first if same else reestimate(denoiser, x, y, sigma_to, eps_to)
        return error_norm(y_two - y), error_norm(y_clean - y)

    def measure(x: Condition, y: State) -> Estimate:
        error, clean = how.repeated(lambda: one(x, y))
        return Estimate.of(bias_ratio(error, clean, how.power), how.draws)

    return pooled(measure(*pair) for pair in how.batches(x, y))


def own_bias(denoiser: Denoiser, x: Condition, y: State, sigma: float, how: Measure = DEFAULT) -> Estimate:
    """𝓑^(own)(σ): the two-step bias of a step from a level to itself; stable if near 1."""
    return two_step_bias(denoiser, x, y, sigma, sigma, replace(how, transition="renoise"))


class Stability(NamedTuple):
    """The own-prediction bias and the clean-input error of a level, from the same noise."""

    own: Estimate
    clean: Estimate

    def as_dict(self) -> dict[str, float | None]:
        """Flat JSON values. Infinities become null, because JSON has none."""
        own, clean = self.own, self.clean
        values = {"own": own.mean, "own_stderr": own.stderr}
        values |= {"clean": clean.mean, "clean_stderr": clean.stderr}
        return {k: v if math.isfinite(v) else None for k, v in values.items()}


@torch.no_grad()
def stability(denoiser: Denoiser, x: Condition, y: State, sigma: float, how: Measure = DEFAULT) -> Stability:
    """𝓑^(own)(σ) and E_clean(σ) from 2R denoiser calls for R draws; `own_bias` alone needs 3R.

    The clean estimate of draw r serves as the first estimate of draw r + 1, cyclically. As in
    `own_bias`, it is independent of the noise that is added to it, and it costs no extra call. A
    single draw has no neighbour and makes one more call.
    """

    def measure(x: Condition, y: State) -> Stability:
        noises = [how.noise(y) for _ in range(how.draws)]
        clean = [reestimate(denoiser, x, y, sigma, eps) for eps in noises]
        first = [clean[-1], *clean[:-1]]
        if how.draws == 1:
            first = [reestimate(denoiser, x, y, sigma, how.noise(y))]
        own = [reestimate(denoiser, x, f, sigma, e) for f, e in zip(first, noises, strict=True)]
        own_error, clean_norm = (torch.stack([error_norm(estimate - y) for estimate in made]) for made in (own, clean))
        return Stability(
            Estimate.of(bias_ratio(own_error, clean_norm, how.power), how.draws),
            Estimate.of(clean_norm.mean(0), how.draws),
        )

    parts = [measure(*pair) for pair in how.batches(x, y)]
    return Stability(pooled(p.own for p in parts), pooled(p.clean for p in parts))
