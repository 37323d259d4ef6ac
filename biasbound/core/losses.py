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

from biasbound.core.denoise import NetDenoiser
from biasbound.core.mask import mask_of, mean_square
from biasbound.core.noise import Condition, State, draw, draw_index, renoise
from biasbound.core.sample import Transition, proxy_estimate, sample
from biasbound.core.schedule import Schedule

__all__ = [
    "Follow",
    "Scalar",
    "diffusion_loss",
    "full_unrolled_loss",
    "loss_and_proxy",
    "proxy_unrolled_loss",
    "unrolled",
]

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

    Both ask about the same x, the loss at drawn levels σ_t and the proxy at σ_0. A sample with t = 0 is asked once:
    its ε serves both. Each term still sees standard normal noise, independent of all else in that term, so the
    expectation of their sum and of its gradient is that of separate draws. A batch of B costs 2B − #{t = 0} rows;
    with `detach` those of the estimate alone are asked apart, without gradient.
    """
    count = len(y)
    t = draw_index(len(schedule), count, generator, share)
    # Both noises for every row, so that the stream does not depend on how many are shared.
    eps, fresh = draw(y, generator), draw(y, generator)
    apart = t.nonzero().flatten()
    row = torch.cat([torch.arange(count), apart])
    sigma = torch.tensor(schedule.sigma, dtype=torch.float64)[torch.cat([t, 0 * apart])]
    y_t = renoise(_rows(y, row), sigma, torch.cat([eps, _rows(fresh, apart)]))
    if detach and len(apart):  # a gradient that nobody needs would cost more than a second call
        output = denoiser.output(y_t[:count], x, sigma[:count])
        with torch.no_grad():
            rest = denoiser.output(y_t[count:], _rows(x, apart), sigma[count:])
        output = torch.cat([output, rest])
    else:
        output = denoiser.output(y_t, _rows(x, row), sigma)
    objective = denoiser.objective(y, x, sigma[:count], eps)
    loss = _squared_error(denoiser, output[:count], objective).mean()
    bottom = torch.arange(count)  # where each sample was asked at σ_0
    bottom[apart] = torch.arange(count, len(row))
    estimate = denoiser.estimate(_rows(output, bottom), _rows(y_t, bottom), x, schedule.level(0))
    return loss, estimate.detach() if detach else estimate


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
