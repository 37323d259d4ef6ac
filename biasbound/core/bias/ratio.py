r"""Errors of estimates, and the ratio of two errors that defines a bias.

‖·‖ is the root mean square over channels and valid grid points, so errors are comparable across
grids and masks.
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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from biasbound.core.bias.estimate import Estimate, bias_ratio, pooled
from biasbound.core.denoise import Denoiser, ask
from biasbound.core.mask import error_of
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

    def repeated(self, one: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
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
            estimate = reestimate(denoiser, x, y, sigma, how.noise(y))
            return (error_norm(error_of(denoiser, estimate, y)),)

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
        return error_norm(error_of(denoiser, y_two, y)), error_norm(error_of(denoiser, y_clean, y))

    parts = [how.repeated(partial(one, *pair)) for pair in how.batches(x, y)]
    return _gathered(parts, how)


def _gathered(parts: Sequence[tuple[Tensor, ...]], how: Measure) -> Estimate:
    """The bias from (error, clean) of each batch."""
    error, clean = (torch.cat(values, 1) for values in zip(*parts, strict=True))
    return Estimate.of_ratio(error, clean, how.power)


def own_bias(denoiser: Denoiser, x: Condition, y: State, sigma: float, how: Measure = DEFAULT) -> Estimate:
    """𝓑^(own)(σ): the two-step bias of a step from a level to itself; stable if near 1.

    >>> from biasbound.core.oracle import AffineOracle
    >>> deaf = AffineOracle(0.1, 0.0)  # an error of 0.1, whatever the error of its input
    >>> x, y = deaf.pairs((8, 1, 16), torch.Generator().manual_seed(0))
    >>> round(own_bias(deaf, x, y, sigma=0.3).mean, 3)
    1.0
    """
    return two_step_bias(denoiser, x, y, sigma, sigma, replace(how, transition="renoise"))


class Stability(NamedTuple):
    """The own-prediction bias and the clean-input error of a level, from the same noise."""

    own: Estimate
    clean: Estimate

    def as_dict(self) -> dict[str, float | None]:
        """Flat JSON values. Infinities become null, because JSON has none."""
        return self.own.as_dict("own") | self.clean.as_dict("clean")


@torch.no_grad()
def stability(denoiser: Denoiser, x: Condition, y: State, sigma: float, how: Measure = DEFAULT) -> Stability:
    """𝓑^(own)(σ) and E_clean(σ) from 2R denoiser calls for R draws; `own_bias` alone needs 3R.

    The clean estimate of draw r serves as the first estimate of draw r + 1, cyclically. As in
    `own_bias`, it is independent of the noise that is added to it, and it costs no extra call. A
    single draw has no neighbour and makes one more call.
    """

    def one(x: Condition, y: State) -> tuple[Tensor, Tensor]:
        noises = [how.noise(y) for _ in range(how.draws)]
        clean = [reestimate(denoiser, x, y, sigma, eps) for eps in noises]
        first = clean if how.shared else [clean[-1], *clean[:-1]]
        if how.draws == 1 and not how.shared:
            first = [reestimate(denoiser, x, y, sigma, how.noise(y))]
        own = [reestimate(denoiser, x, f, sigma, e) for f, e in zip(first, noises, strict=True)]
        own_error, clean_norm = (
            torch.stack([error_norm(error_of(denoiser, estimate, y)) for estimate in made]) for made in (own, clean)
        )
        return own_error, clean_norm

    parts = [one(*pair) for pair in how.batches(x, y)]
    clean = torch.cat([part[1] for part in parts], 1)
    return Stability(_gathered(parts, how), Estimate.of(clean.pow(how.power).mean(0), how.draws))
