r"""The reverse chain, as a generator of its intermediate steps.

From ŷ_T, the chain asks the denoiser for an estimate, adds the noise of the next lower level to
it, and so on down to level 0, whose estimate is the output (paper Eq. 8):

    y_est = denoiser(ŷ_t, x, σ_t),    ŷ_{t−1} = √ᾱ_{t−1} y_est + σ_{t−1} ε′.

The three transitions differ only in ε′. It mixes the noise that the estimate implies, ε_est, with
fresh noise ε:  ε′ = c ε_est + √(1 − c²) ε,  ε_est = (ŷ_t − √ᾱ_t y_est)/σ_t, with

    renoise   c = 0                            the simplified step of the paper (default)
    ddpm      c = √(SNR_t/SNR_{t−1})           the posterior q(y_{t−1} | ŷ_t, y_est)
    ddim      c = 1                            deterministic

Sampling, the proxy estimate and the inference-input errors all use this loop. Whether gradients
flow through it depends on the caller's grad mode.

Whatever else is known about y (observations, a conserved mean, zero divergence) enters by one hook:
`correct(y_est, σ_t)` takes the place of the estimate before it is noised again, and of the output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from biasbound.core.denoise import Denoiser, ask, lost, nonfinite
from biasbound.core.noise import Condition, State, coefficients, draw, log_snr, renoise
from biasbound.core.schedule import Schedule

__all__ = ["Correct", "Step", "Transition", "denoise_chain", "descend", "proxy_estimate", "sample"]

Transition = Literal["renoise", "ddpm", "ddim"]
Correct = Callable[[State, float], State]  # (y_est, σ) ↦ the estimate that the chain goes on with


class Step(NamedTuple):
    """One denoiser call of a chain: level index t, its σ, the noisy input ŷ_t and the estimate."""

    t: int
    sigma: float
    y_t: Tensor
    y_est: Tensor


def denoise_chain(
    denoiser: Denoiser,
    x: Condition,
    y_t: State,
    schedule: Schedule,
    *,
    noise: Callable[[int], State],
    start: int | None = None,
    transition: Transition = "renoise",
    correct: Correct | None = None,
    allow_nonfinite: bool = False,
) -> Iterator[Step]:
    """From y_t at level `start` (default T) down to level 0; `noise(t)` is the ε of level t.

    Each step holds the estimate after `correct`.
    """
    if transition not in get_args(Transition):
        raise ValueError(f"unknown transition {transition!r}; choose from {', '.join(get_args(Transition))}")
    for t in range(schedule.top if start is None else start, -1, -1):
        sigma = schedule.level(t)
        y_est = ask(denoiser, y_t, x, sigma, allow_nonfinite=allow_nonfinite)
        if correct is not None:
            y_est = correct(y_est, sigma)
        yield Step(t, sigma, y_t, y_est)
        if t > 0:
            below = schedule.level(t - 1)
            y_t = descend(y_t, y_est, sigma, below, partial(noise, t - 1), transition)


def descend(
    y_t: State,
    y_est: State,
    sigma: float,
    below: float,
    noise: Callable[[], State],
    transition: Transition = "renoise",
) -> State:
    """ŷ at the level `below`, from the input ŷ_t at σ and its estimate; `noise` is asked only where it is needed."""
    kept = _kept_noise(transition, sigma, below)
    if kept == 0:
        return renoise(y_est, below, noise())
    a, s = coefficients(sigma, y_t)
    implied = (y_t - a * y_est) / s
    if kept < 1:
        implied = kept * implied + math.sqrt(1 - kept**2) * noise()
    return renoise(y_est, below, implied)


def _kept_noise(transition: Transition, sigma: float, sigma_to: float) -> float:
    """c, the weight of the implied noise in a step from σ down to σ_to."""
    if transition == "ddpm":
        return math.exp((log_snr(sigma) - log_snr(sigma_to)) / 2)
    return 1.0 if transition == "ddim" else 0.0


def sample(
    denoiser: Denoiser,
    x: Condition,
    schedule: Schedule,
    *,
    transition: Transition = "renoise",
    generator: torch.Generator | None = None,
    start: State | None = None,
    like: State | None = None,
    correct: Correct | None = None,
    allow_nonfinite: bool = False,
) -> State:
    """M_θ(x): one emulated step, from `start` or from ŷ_T ~ N(0, I) with the shape of `like` or x.

    Pass `like` if the target has fewer channels than the condition. A non-finite estimate raises
    `NonFiniteError`; with `allow_nonfinite` it is returned for the affected samples.

    >>> x = torch.zeros(4, 1, 16)
    >>> persistence = lambda y_t, x, sigma: x  # any callable is a denoiser
    >>> sample(persistence, x, Schedule([0.1, 0.5, 0.99])).equal(x)
    True
    """
    y_T = draw(x if like is None else like, generator) if start is None else start
    chain = denoise_chain(
        denoiser,
        x,
        y_T,
        schedule,
        noise=lambda _: draw(y_T, generator),
        transition=transition,
        correct=correct,
        allow_nonfinite=True,
    )
    return _last(chain, allow_nonfinite)


def proxy_estimate(
    denoiser: Denoiser,
    x: Condition,
    y: State,
    schedule: Schedule,
    *,
    n: int = 0,
    generator: torch.Generator | None = None,
    detach: bool = False,
    transition: Transition = "renoise",
    allow_nonfinite: bool = False,
) -> State:
    """P⁽ⁿ⁾(x, y): the last n transitions of the chain, from the noised truth ỹ_n down to level 0.

    It takes n + 1 denoiser calls. It replaces the full sample at a fraction of the cost, provided
    that the chain reaches level n without bias. It is differentiable through all calls; `detach`
    cuts the gradient. A non-finite estimate raises `NonFiniteError` unless it is allowed.
    """
    with torch.no_grad() if detach else nullcontext():
        chain = denoise_chain(
            denoiser,
            x,
            renoise(y, schedule.level(n), draw(y, generator)),
            schedule,
            noise=lambda _: draw(y, generator),
            start=n,
            transition=transition,
            allow_nonfinite=True,
        )
        return _last(chain, allow_nonfinite)


def _last(chain: Iterator[Step], allow_nonfinite: bool) -> State:
    """The answer of a chain; whether all of its estimates were finite is asked once, at its end."""
    broken: list[tuple[float, Tensor]] = []
    for step in chain:
        if not allow_nonfinite:
            broken.append((step.sigma, lost(step.y_est)))
    if broken:
        for (sigma, _), bad in zip(broken, torch.stack([count for _, count in broken]).tolist(), strict=True):
            if bad:
                raise nonfinite(sigma, bad, len(step.y_est))
    return step.y_est
