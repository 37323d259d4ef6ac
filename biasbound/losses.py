r"""Training losses: pure functions of a model, a window of frames and a generator of noise.

A window holds x^k … x^{k+1+u} as (B, u + 2, C, *N), and channels that only inform (Mach number, mask) as
(B, P, *N). u is the number of frames in the loss beyond the first: 0 is teacher forcing. All fields are in the
units of the network (normalised).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from .denoise import NetDenoiser
from .noise import Condition, Schedule, State, draw, draw_index, renoise
from .predict import DirectPredictor, Refiner
from .sample import Transition, proxy_estimate, sample

__all__ = [
    "diffusion_loss",
    "direct_loss",
    "full_unrolled_loss",
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
) -> Scalar:
    """L_diff: E ‖prediction − target‖² over the schedule's levels, each drawn with equal probability (Eq. 5).

    `weights` multiply the squared error of their level.
    """
    if weights is not None and len(weights) != len(schedule):
        raise ValueError(f"{len(weights)} weights do not fit {len(schedule)} noise levels")
    t = draw_index(len(schedule), len(y), generator)
    sigma = torch.tensor(schedule.sigma, dtype=torch.float64)[t]
    eps = draw(y, generator)
    error = denoiser.prediction(renoise(y, sigma, eps), x, sigma) - denoiser.target(
        y, x, sigma, eps
    )
    per_sample = error.square().flatten(1).mean(1)
    if weights is not None:
        per_sample = per_sample * torch.tensor(weights, dtype=torch.float64)[t].to(per_sample)
    return per_sample.mean()


def unrolled_loss(
    denoiser: NetDenoiser,
    frames: Window,
    schedule: Schedule,
    estimate: Callable[[Condition, State], State],
    *,
    conditions: Float[Tensor, "B P *N"] | None = None,
    generator: torch.Generator | None = None,
) -> Scalar:
    """Σ_j L_diff(x̂^{k+j}, x^{k+j+1}) with x̂^k = x^k and x̂^{k+j} = estimate(x̂^{k+j−1}, x^{k+j})."""
    state = frames[:, 0]
    total = torch.zeros((), dtype=frames.dtype, device=frames.device)
    for j in range(1, frames.shape[1]):
        x = informed(state, conditions)
        total = total + diffusion_loss(denoiser, x, frames[:, j], schedule, generator=generator)
        if j + 1 < frames.shape[1]:
            state = estimate(x, frames[:, j])
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
) -> Scalar:
    """L_P-UT (paper Sec. 5): later frames are conditioned on the proxy estimate P⁽ⁿ⁾ of the one before.

    The gradient flows through the proxy's n + 1 calls unless `detach` is set.
    """

    def estimate(x: Condition, y: State) -> State:
        return proxy_estimate(
            denoiser,
            x,
            y,
            schedule,
            n=n,
            generator=generator,
            detach=detach,
            transition=transition,
        )

    return unrolled_loss(
        denoiser, frames, schedule, estimate, conditions=conditions, generator=generator
    )


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
