r"""Every bias along one schedule.

For each level t of a chain with noises ε_T … ε_0, from the top down:

    ŷ_t        the chain's own iterate           → E_inf(t),   REB(t) = E_inf(t)/E_clean(t)
    ỹ_t        truth noised with ε_t             → E_clean(t)
    ŷ_t^(2S)   clean estimate at t+1, noised with ε_t   → 𝓑^(2S)(t)
    ŷ_t^(own)  clean estimate at t, noised with ε_t     → 𝓑^(own)(t)

and δ(t) = 𝓑^(2S)(t) − 𝓑^(own)(t), which may be negative. The alternative biases of Appendix B
measure the distance to the clean estimate instead of the truth. ρ₁ is the cosine between the
two-step error and the clean error, ρ₂ the cosine between the inference error and the clean error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from biasbound.core.bias.estimate import Estimate, divide
from biasbound.core.bias.ratio import DEFAULT, Measure, PerPair, error_norm, reestimate
from biasbound.core.denoise import Denoiser, ask
from biasbound.core.mask import error_of
from biasbound.core.noise import Condition, State, draw, renoise
from biasbound.core.sample import Transition, denoise_chain, descend
from biasbound.core.schedule import Schedule

__all__ = ["BiasRow", "LevelNoise", "Terms", "bias_curve", "chain_terms", "cosine_similarity"]


@dataclass(frozen=True)
class BiasRow:
    """All biases at one level. Those that need a level above are None at the top."""

    t: int
    sigma: float
    clean: Estimate  # E_clean(t)
    inference: Estimate  # E_inf(t)
    reb: Estimate
    own: Estimate
    two_step: Estimate | None
    delta: Estimate | None
    reb_alt: Estimate
    two_step_alt: Estimate | None
    rho1: Estimate | None
    rho2: Estimate
    reb_squared: Estimate
    own_squared: Estimate
    two_step_squared: Estimate | None

    def as_dict(self) -> dict[str, float | int | None]:
        """Flat JSON values: `name` and `name_stderr` per estimate; pairs and draws once."""
        flat: dict[str, float | int | None] = {"t": self.t, "sigma": self.sigma}
        flat |= {"pairs": self.clean.pairs, "draws": self.clean.draws}
        for name in (f.name for f in fields(self) if f.name not in ("t", "sigma")):
            value: Estimate | None = getattr(self, name)
            flat |= {name: None, f"{name}_stderr": None} if value is None else value.as_dict(name)
        return flat


class LevelNoise:
    """The noise ε_t of each level, shared by a chain and its clean counterpart.

    ε_t is drawn when level t is first requested, and kept until another level is requested. With
    `shared`, one draw serves all levels.
    """

    def __init__(self, like: State, generator: torch.Generator | None, shared: bool = False) -> None:
        self._fresh: Callable[[], Tensor] = lambda: draw(like, generator)
        self._shared = shared
        self._t: int | None = None
        self._eps: Tensor | None = None

    def __call__(self, t: int) -> Tensor:
        if self._eps is None or (t != self._t and not self._shared):
            self._t, self._eps = t, self._fresh()
        return self._eps


class Terms(NamedTuple):
    """Estimates at one level of one chain, and the two-step input; None at the top level."""

    t: int
    sigma: float
    inference: Tensor
    clean: Tensor
    two_step: Tensor | None
    y_two_step: Tensor | None


def chain_terms(
    denoiser: Denoiser,
    x: Condition,
    y: State,
    schedule: Schedule,
    noise: Callable[[int], Tensor],
    transition: Transition = "renoise",
) -> Iterator[Terms]:
    """Walk a chain from ŷ_T = ε_T and, beside it, the clean and the two-step estimates per level."""
    above: tuple[Tensor, Tensor, float] | None = None  # clean input and estimate of the level above
    chain = denoise_chain(denoiser, x, noise(schedule.top), schedule, noise=noise, transition=transition)
    for t, sigma, _, y_est in chain:
        eps = noise(t)
        y_clean = renoise(y, sigma, eps)
        clean = ask(denoiser, y_clean, x, sigma)
        y_two_step = two_step = None
        if above is not None:
            y_two_step = descend(*above, sigma, partial(noise, t), transition)
            two_step = ask(denoiser, y_two_step, x, sigma)
        yield Terms(t, sigma, y_est, clean, two_step, y_two_step)
        above = y_clean, clean, sigma


def cosine_similarity(a: State, b: State) -> PerPair:
    """cos ∠(a, b) per pair; 1 where a or b is zero."""
    a, b = (e.flatten(1).double() for e in (a, b))
    norms = a.norm(dim=1) * b.norm(dim=1)
    cosine = (a * b).sum(1) / torch.where(norms > 0, norms, 1.0)
    return torch.where(norms > 0, cosine.clamp(-1, 1), 1.0)


@torch.no_grad()
def bias_curve(
    denoiser: Denoiser, x: Condition, y: State, schedule: Schedule, how: Measure = DEFAULT
) -> list[BiasRow]:
    """One row per level, from level 0 up; five denoiser calls per level and draw (four with `shared`).

    >>> from biasbound.core.oracle import AffineOracle
    >>> deaf = AffineOracle(0.1, 0.0)  # an error of 0.1, whatever the error of its input
    >>> x, y = deaf.pairs((8, 1, 16), torch.Generator().manual_seed(0))
    >>> [round(row.reb.mean, 3) for row in bias_curve(deaf, x, y, Schedule([0.1, 0.9]))]
    [1.0, 1.0]
    """

    def measure(x: Condition, y: State) -> list[dict[str, Tensor]]:
        """Norms and cosines (R, B) of each level."""
        seen: list[dict[str, list[Tensor]]] = [{} for _ in schedule.sigma]
        for _ in range(how.draws):
            noise = LevelNoise(y, how.generator, how.shared)
            for terms in chain_terms(denoiser, x, y, schedule, noise, how.transition):
                first = terms.clean
                if not how.shared:
                    first = reestimate(denoiser, x, y, terms.sigma, how.noise(y))
                own = reestimate(denoiser, x, first, terms.sigma, noise(terms.t))
                for name, value in _per_pair(denoiser, terms, own, y).items():
                    seen[terms.t].setdefault(name, []).append(value)
        return [{k: torch.stack(v) for k, v in values.items()} for values in seen]

    by_level = zip(*(measure(*pair) for pair in how.batches(x, y)), strict=True)
    joined = [{k: torch.cat([part[k] for part in parts], 1) for k in parts[0]} for parts in by_level]
    return [_row(t, schedule.sigma[t], seen, how.draws) for t, seen in enumerate(joined)]


def _per_pair(denoiser: Denoiser, terms: Terms, own: State, y: State) -> dict[str, PerPair]:
    """Norms and cosines per pair, for one draw."""
    error = partial(error_of, denoiser)
    clean, inference = error(terms.clean, y), error(terms.inference, y)
    values = {
        "clean": error_norm(clean),
        "inference": error_norm(inference),
        "own": error_norm(error(own, y)),
        "reb_alt": error_norm(error(terms.inference, terms.clean)),
        "rho2": cosine_similarity(inference, clean),
    }
    if terms.two_step is not None:
        values["two_step"] = error_norm(error(terms.two_step, y))
        values["two_step_alt"] = error_norm(error(terms.two_step, terms.clean))
        values["rho1"] = cosine_similarity(error(terms.two_step, y), clean)
    return values


def _row(t: int, sigma: float, seen: dict[str, Tensor], draws: int) -> BiasRow:
    """Estimates from norms and cosines of shape (R, B)."""
    clean = seen["clean"]

    def estimate(name: str, of: Callable[[Tensor], PerPair]) -> Estimate:
        return Estimate.of(of(seen[name]), draws)

    def mean(values: Tensor) -> PerPair:
        return values.mean(0)

    def bias(name: str, power: int = 1) -> Estimate:
        return Estimate.of_ratio(seen[name], clean, power)

    def relative(values: Tensor) -> PerPair:
        return divide(values.mean(0), clean.mean(0), 0.0)

    below_top = "two_step" in seen
    return BiasRow(
        t=t,
        sigma=sigma,
        clean=estimate("clean", mean),
        inference=estimate("inference", mean),
        reb=bias("inference"),
        own=bias("own"),
        two_step=bias("two_step") if below_top else None,
        delta=estimate("two_step", lambda e: relative(e - seen["own"])) if below_top else None,
        reb_alt=estimate("reb_alt", relative),
        two_step_alt=estimate("two_step_alt", relative) if below_top else None,
        rho1=estimate("rho1", mean) if below_top else None,
        rho2=estimate("rho2", mean),
        reb_squared=bias("inference", 2),
        own_squared=bias("own", 2),
        two_step_squared=bias("two_step", 2) if below_top else None,
    )
