r"""Training losses: pure functions of a model, a window of frames and a generator of noise.

A window holds x^k … x^{k+1+u} as (B, u + 2, C, *N), and channels that only inform (Mach number, mask) as
(B, P, *N). u is the number of frames in the loss beyond the first: 0 is teacher forcing. All fields are in the
units of the network (normalised).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from biasbound.core.denoise import NetDenoiser
from biasbound.core.noise import Condition, State, draw, draw_index, renoise
from biasbound.core.sample import Transition, proxy_estimate, sample
from biasbound.core.schedule import Schedule
from biasbound.models.predict import DirectPredictor, Refiner

__all__ = [
    "diffusion_loss",
    "direct_loss",
    "full_unrolled_loss",
    "loss_and_proxy",
    "proxy_unrolled_loss",
    "refiner_loss",
    "unrolled_loss",
]

Scalar = Float[Tensor, ""]
Window = Float[Tensor, "B W C *N"]


def informed(state: State, conditions: Float[Tensor, "B P *N"] | None) -> Condition:
    """x: the state, followed by the channels that only inform."""
    return (
        state
        if conditions is None or conditions.shape[1] == 0
        else torch.cat([state, conditions], 1)
    )


def diffusion_loss(
    denoiser: NetDenoiser,
    x: Condition,
    y: State,
    schedule: Schedule,
    *,
    generator: torch.Generator | None = None,
    weights: Sequence[float] | None = None,
    lowest: float | None = None,
) -> Scalar:
    """L_diff: E ‖prediction − target‖² over the schedule's levels, each drawn with equal probability (Eq. 5).

    `weights` multiply the squared error of their level. `lowest` is the share of samples that train σ_0 instead.
    """
    if weights is not None and len(weights) != len(schedule):
        raise ValueError(f"{len(weights)} weights do not fit {len(schedule)} noise levels")
    t = draw_index(len(schedule), len(y), generator, lowest)
    sigma = torch.tensor(schedule.sigma, dtype=torch.float64)[t]
    eps = draw(y, generator)
    output = denoiser.prediction(renoise(y, sigma, eps), x, sigma)
    per_sample = _squared_error(output, denoiser.target(y, x, sigma, eps))
    if weights is not None:
        per_sample = per_sample * torch.tensor(weights, dtype=torch.float64)[t].to(per_sample)
    return per_sample.mean()


def _squared_error(output: State, target: State) -> Float[Tensor, " B"]:
    return (output - target).square().flatten(1).mean(1)


def loss_and_proxy(
    denoiser: NetDenoiser,
    x: Condition,
    y: State,
    schedule: Schedule,
    *,
    detach: bool = False,
    generator: torch.Generator | None = None,
    lowest: float | None = None,
) -> tuple[Scalar, State]:
    """(L_diff, P⁽⁰⁾): the loss of a frame and its proxy estimate, from one network call.

    Both ask about the same x, the loss at drawn levels σ_t and the proxy at σ_0. A sample with t = 0 is asked once:
    its ε serves both. Each term still sees standard normal noise, independent of all else in that term, so the
    expectation of their sum and of its gradient is that of separate draws. A batch of B costs 2B − #{t = 0} rows;
    with `detach` those of the estimate alone are asked apart, without gradient.
    """
    count = len(y)
    t = draw_index(len(schedule), count, generator, lowest)
    # Both noises for every row, so that the stream does not hang on how many are shared.
    eps, fresh = draw(y, generator), draw(y, generator)
    apart = t.nonzero().flatten()
    row = torch.cat([torch.arange(count), apart])
    sigma = torch.tensor(schedule.sigma, dtype=torch.float64)[torch.cat([t, 0 * apart])]
    y_t = renoise(y[row], sigma, torch.cat([eps, fresh[apart]]))
    if detach and len(apart):  # a gradient that nobody needs would cost more than a second call
        output = denoiser.prediction(y_t[:count], x, sigma[:count])
        with torch.no_grad():
            rest = denoiser.prediction(y_t[count:], x[apart], sigma[count:])
        output = torch.cat([output, rest])
    else:
        output = denoiser.prediction(y_t, x[row], sigma)
    target = denoiser.target(y, x, sigma[:count], eps)
    loss = _squared_error(output[:count], target).mean()
    bottom = torch.arange(count)  # where each sample was asked at σ_0
    bottom[apart] = torch.arange(count, len(row))
    estimate = denoiser.answer(output[bottom], y_t[bottom], x, schedule.level(0))
    return loss, estimate.detach() if detach else estimate


def unrolled_loss(
    denoiser: NetDenoiser,
    frames: Window,
    schedule: Schedule,
    estimate: Callable[[Condition, State], State],
    *,
    conditions: Float[Tensor, "B P *N"] | None = None,
    generator: torch.Generator | None = None,
    lowest: float | None = None,
) -> Scalar:
    """Σ_j L_diff(x̂^{k+j}, x^{k+j+1}) with x̂^k = x^k and x̂^{k+j} = estimate(x̂^{k+j−1}, x^{k+j})."""
    last = partial(diffusion_loss, denoiser, schedule=schedule, generator=generator, lowest=lowest)
    return _unroll(frames, conditions, lambda x, y: (last(x, y), estimate(x, y)), last)


def _unroll(
    frames: Window,
    conditions: Float[Tensor, "B P *N"] | None,
    inner: Callable[[Condition, State], tuple[Scalar, State]],
    last: Callable[[Condition, State], Scalar],
) -> Scalar:
    """Σ of the losses of all frames: `inner` also gives the state that the next one starts from."""
    state = frames[:, 0]
    total = torch.zeros((), dtype=frames.dtype, device=frames.device)
    for j in range(1, frames.shape[1]):
        x, y = informed(state, conditions), frames[:, j]
        if j + 1 < frames.shape[1]:
            loss, state = inner(x, y)
        else:
            loss = last(x, y)
        total = total + loss
    return total


def proxy_unrolled_loss(
    denoiser: NetDenoiser,
    frames: Window,
    schedule: Schedule,
    *,
    n: int = 0,
    detach: bool = False,
    conditions: Float[Tensor, "B P *N"] | None = None,
    generator: torch.Generator | None = None,
    transition: Transition = "renoise",
    lowest: float | None = None,
) -> Scalar:
    """L_P-UT (paper Sec. 5): later frames are conditioned on the proxy estimate P⁽ⁿ⁾ of the one before.

    The gradient flows through the proxy's n + 1 calls unless `detach` is set. With n = 0 the proxy shares the network
    call of the frame's loss (`loss_and_proxy`).
    """

    if n != 0:
        estimate = partial(
            proxy_estimate,
            denoiser,
            schedule=schedule,
            n=n,
            generator=generator,
            detach=detach,
            transition=transition,
        )
        return unrolled_loss(
            denoiser,
            frames,
            schedule,
            estimate,
            conditions=conditions,
            generator=generator,
            lowest=lowest,
        )

    last = partial(diffusion_loss, denoiser, schedule=schedule, generator=generator, lowest=lowest)
    inner = partial(
        loss_and_proxy,
        denoiser,
        schedule=schedule,
        detach=detach,
        generator=generator,
        lowest=lowest,
    )
    return _unroll(frames, conditions, inner, last)


def full_unrolled_loss(
    denoiser: NetDenoiser,
    frames: Window,
    schedule: Schedule,
    *,
    detach: bool = False,
    conditions: Float[Tensor, "B P *N"] | None = None,
    generator: torch.Generator | None = None,
    transition: Transition = "renoise",
) -> Scalar:
    """L_UT: later frames are conditioned on the full chain's sample; the costly original of the proxy."""

    def estimate(x: Condition, y: State) -> State:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not detach):
            return sample(
                denoiser,
                x,
                schedule,
                like=y,
                generator=generator,
                transition=transition,
            )

    return unrolled_loss(
        denoiser, frames, schedule, estimate, conditions=conditions, generator=generator
    )


def direct_loss(
    predictor: DirectPredictor,
    frames: Window,
    *,
    pushforward: bool = False,
    conditions: Float[Tensor, "B P *N"] | None = None,
) -> Scalar:
    """Mean over the predicted frames of ‖x̂^{k+j} − x^{k+j}‖², in units of the target.

    With two frames this is teacher forcing; with more the prediction is fed back. `pushforward` cuts the gradient
    between frames, so that each frame's error trains only the step that made it.
    """
    state, errors = frames[:, 0], []
    for j in range(1, frames.shape[1]):
        state = predictor(informed(state.detach() if pushforward else state, conditions))
        errors.append(((state - frames[:, j]) / predictor.scale).square().mean())
    return torch.stack(errors).mean()


def refiner_loss(
    refiner: Refiner,
    x: Condition,
    y: State,
    *,
    generator: torch.Generator | None = None,
) -> Scalar:
    """E_k ‖net − target‖² over the first prediction and all K refinements with equal probability."""
    k = draw_index(len(refiner.levels), len(y), generator)
    z, eps = refiner.encode(y, x), draw(y, generator)
    out = refiner.prediction(refiner.noised(z, k, eps), x, k)
    return (out - refiner.target(z, k, eps)).square().mean()
