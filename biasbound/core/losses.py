r"""Losses of a denoiser: pure functions of a network, fields and a generator of noise.

An unrolled loss has several targets y¹ … y^{u+1}. Each is conditioned on what the model made of the one before it:
x^{j+1} = follow(x^j, estimate of y^j), where `follow` belongs to the task. One target is teacher forcing. Means are over
channels and the denoiser's valid points. A loss asks the device nothing: one that is not finite is found where losses are
reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from biasbound.core.crps import crps
from biasbound.core.denoise import NetDenoiser
from biasbound.core.mask import mask_of, mean_square
from biasbound.core.noise import Condition, State, draw, draw_index, renoise
from biasbound.core.sample import Transition, proxy_estimate, sample
from biasbound.core.schedule import Schedule

__all__ = [
    "Follow",
    "Scalar",
    "aside",
    "crps_loss",
    "diffusion_loss",
    "full_unrolled_loss",
    "loss_and_proxy",
    "proxy_unrolled_loss",
    "unrolled",
]

THIN = 6  # of the samples whose loss would be above σ_0, one in so many is asked there while all are asked at σ_0
Scalar = Float[Tensor, ""]
Share = float | Sequence[float] | None
Follow = Callable[[Condition, State], Condition]


def diffusion_loss(
    denoiser: NetDenoiser,
    x: Condition,
    y: State,
    schedule: Schedule,
    *,
    generator: torch.Generator | None = None,
    share: Share = None,
) -> Scalar:
    """L_diff: E ‖output − objective‖² over the schedule's levels, each drawn with equal probability (Eq. 5).

    `share` is that of σ_0, or one share of the samples per level.
    """
    t = draw_index(len(schedule), len(y), generator, share)
    sigma = torch.tensor(schedule.sigma, dtype=torch.float64)[t]
    eps = draw(y, generator)
    output = denoiser.output(renoise(y, sigma, eps), x, sigma)
    return _squared_error(denoiser, output, denoiser.objective(y, x, sigma, eps)).mean()


def _squared_error(denoiser: NetDenoiser, output: State, objective: State) -> Float[Tensor, " B"]:
    return mean_square(output - objective, mask_of(denoiser))


def _rows(field: Tensor, index: Int[Tensor, " R"]) -> Tensor:
    """The rows of a field by an index that is on the host."""
    return field.index_select(0, index.to(field.device, non_blocking=True))


def loss_and_proxy(
    denoiser: NetDenoiser,
    x: Condition,
    y: State,
    schedule: Schedule,
    *,
    detach: bool = False,
    generator: torch.Generator | None = None,
    share: Share = None,
) -> tuple[Scalar, State]:
    """(L_diff, P⁽⁰⁾): the loss of a target and its proxy estimate, from one network call.

    The proxy asks about every sample at σ_0, which is also the loss's share p_0 of that level, from more samples than L_diff
    itself would draw. The other levels are asked of the part `aside(p_0)` of the samples, which then count as many times more.
    Each term sees standard normal noise, independent of all else in that term, so the expectation of the loss and of its
    gradient is that of separate draws, for B + aside(p_0)·B rows instead of 2B.
    """
    count, levels = len(y), len(schedule)
    lowest, *above = _shares(levels, share)
    part = aside(lowest)
    t = draw_index(levels, count, generator, [1 - part, *(part * p / (1 - lowest) for p in above)] if part else None)
    # Both noises for every row, so that the stream does not depend on how many are asked twice.
    eps, fresh = draw(y, generator), draw(y, generator)
    twice = t.nonzero().flatten()
    row = torch.cat([torch.arange(count), twice])
    sigma = torch.tensor(schedule.sigma, dtype=torch.float64)[torch.cat([0 * t, t[twice]])]
    noise, truth, told = torch.cat([eps, _rows(fresh, twice)]), _rows(y, row), _rows(x, row)
    y_t = renoise(truth, sigma, noise)
    output = denoiser.output(y_t, told, sigma)
    error = _squared_error(denoiser, output, denoiser.objective(truth, told, sigma, noise))
    loss = lowest * error[:count].mean()
    if part:
        loss = loss + (1 - lowest) / part * error[count:].sum() / count
    estimate = denoiser.estimate(output[:count], y_t[:count], x, schedule.level(0))
    return loss, estimate.detach() if detach else estimate


def aside(lowest: float) -> float:
    """The part of the samples that `loss_and_proxy` asks at other levels too, if σ_0 has the share `lowest` of a loss."""
    return (1 - lowest) / THIN


def _shares(levels: int, share: Share) -> list[float]:
    """One share per level."""
    if share is None or levels == 1:
        return [1 / levels] * levels
    return [share, *[(1 - share) / (levels - 1)] * (levels - 1)] if isinstance(share, float) else [*share]


def unrolled(
    x: Condition,
    targets: Sequence[State],
    follow: Follow,
    inner: Callable[[Condition, State], tuple[Scalar, State]],
    last: Callable[[Condition, State], Scalar],
) -> Scalar:
    """Σ of the losses of all targets; `inner` also gives the estimate that the next condition follows from."""
    total = torch.zeros((), dtype=x.dtype, device=x.device)
    for y in targets[:-1]:
        loss, estimate = inner(x, y)
        total, x = total + loss, follow(x, estimate)
    return total + last(x, targets[-1])


def proxy_unrolled_loss(
    denoiser: NetDenoiser,
    x: Condition,
    targets: Sequence[State],
    schedule: Schedule,
    follow: Follow,
    *,
    n: int = 0,
    detach: bool = False,
    generator: torch.Generator | None = None,
    transition: Transition = "renoise",
    share: Share = None,
) -> Scalar:
    """L_P-UT (paper Sec. 5): later targets are conditioned on the proxy estimate P⁽ⁿ⁾ of the one before.

    The gradient flows through the proxy's n + 1 calls unless `detach` is set. With n = 0 the proxy shares the network
    call of the target's loss (`loss_and_proxy`).
    """
    last = partial(diffusion_loss, denoiser, schedule=schedule, generator=generator, share=share)
    if n == 0:
        inner = partial(loss_and_proxy, denoiser, schedule=schedule, detach=detach, generator=generator, share=share)
        return unrolled(x, targets, follow, inner, last)

    def apart(x: Condition, y: State) -> tuple[Scalar, State]:
        loss = last(x, y)
        told: dict[str, Any] = {"transition": transition, "generator": generator, "allow_nonfinite": True}
        return loss, proxy_estimate(denoiser, x, y, schedule, n=n, detach=detach, **told)

    return unrolled(x, targets, follow, apart, last)


def full_unrolled_loss(
    denoiser: NetDenoiser,
    x: Condition,
    targets: Sequence[State],
    schedule: Schedule,
    follow: Follow,
    *,
    detach: bool = False,
    generator: torch.Generator | None = None,
    transition: Transition = "renoise",
    share: Share = None,
) -> Scalar:
    """L_UT: later targets are conditioned on the full chain's sample; the costly original of the proxy."""
    last = partial(diffusion_loss, denoiser, schedule=schedule, generator=generator, share=share)

    def inner(x: Condition, y: State) -> tuple[Scalar, State]:
        loss = last(x, y)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not detach):
            told: dict[str, Any] = {"transition": transition, "generator": generator, "allow_nonfinite": True}
            made = sample(denoiser, x, schedule, like=y, **told)
        return loss, made

    return unrolled(x, targets, follow, inner, last)


def crps_loss(
    answer: Callable[[Condition, State], State],
    error: Callable[[State, State], Tensor],
    x: Condition,
    targets: Sequence[State],
    follow: Follow,
    *,
    members: int = 2,
    detach: bool = False,
) -> Scalar:
    """Mean over the targets of the fair CRPS of `members` rollouts, each of which follows its own answers.

    `answer(x, like)` is one draw of y from x, and `error(answer, y)` its error at the valid points. With one target the
    members differ by the noise of a single step; with more, the loss also sees how they part from each other and from
    the truth, which teaches an ensemble to stay accurate and spread while it is rolled out.
    """
    total = torch.zeros((), dtype=x.dtype, device=x.device)
    states = [x] * members
    for y in targets:
        made = [answer(state, y) for state in states]
        total = total + crps(torch.stack([error(each, y) for each in made])).mean()
        states = [follow(state, a.detach() if detach else a) for state, a in zip(states, made, strict=True)]
    return total / len(targets)
