r"""How well does a proxy of the previous step stand in for the full chain, seen from the gradient? (paper, appendix on P-UT)

For a window x⁰, x¹, x² the second-frame loss, averaged over all levels of the schedule, is

    L₂(x̂) = mean_t ‖prediction(√ᾱ_t x² + σ_t ε, x̂, σ_t) − target‖²,

and depends on what stands for x¹ in its condition. Three inputs are compared by the angle between their gradients
∇_θ L₂, in which x̂ is a fixed input:

    teacher   x̂ = x¹                        teacher forcing
    full      x̂ = the whole chain's sample  full unrolling, what happens at inference
    n         x̂ = P⁽ⁿ⁾(x⁰, x¹)              the proxy: the last n transitions of the chain, from noised truth

All inputs share the noise: level t of every chain has the same ε_t, and every loss the same levels and noise. A proxy of
all T transitions then differs from the full chain only by the signal √ᾱ_T that is left in its first input. Where the
schedule has no exposure bias, all cosines are near 1 already at n = 0.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from biasbound.core.denoise import NetDenoiser
from biasbound.core.noise import Condition, State, draw, renoise
from biasbound.core.sample import Transition, denoise_chain
from biasbound.core.schedule import Schedule
from biasbound.models.losses import diffusion_loss, informed

__all__ = ["GradientRow", "gradient_similarity"]

Input = int | Literal["full", "teacher"]
Gradient = Float[Tensor, " parameters"]


@dataclass(frozen=True)
class GradientRow:
    """The gradient of one input beside those of full unrolling and of teacher forcing.

    Cosines are means over `batches` with standard errors, which are None for a single batch. `nfe` counts the denoiser
    calls that make the input: n + 1 for P⁽ⁿ⁾, T + 1 for the full chain, 0 for teacher forcing.
    """

    n: Input
    nfe: int
    to_full: float
    to_full_stderr: float | None
    to_teacher: float
    to_teacher_stderr: float | None
    batches: int

    def as_dict(self) -> dict[str, Any]:
        """JSON values, by the names of the fields; a `gradients.json` is a list of them."""
        return asdict(self)


def gradient_similarity(
    denoiser: NetDenoiser,
    frames: Float[Tensor, "B 3 C *N"],
    schedule: Schedule,
    ns: Iterable[int] | None = None,
    *,
    conditions: Float[Tensor, "B P *N"] | None = None,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
    transition: Transition = "renoise",
) -> list[GradientRow]:
    """Rows for each P⁽ⁿ⁾ (default n = 0 … T), then "full" and "teacher".

    `batch_size` windows make one gradient (default all); the cosines of the batches are averaged.
    """
    wanted = list(range(len(schedule)) if ns is None else ns)
    for n in wanted:
        schedule.level(n)  # refuses what the schedule does not have
    size = len(frames) if batch_size is None else batch_size
    if len(frames) < 1 or size < 1:
        raise ValueError("the gradient similarity needs at least one window of three frames")
    inputs: list[Input] = [*wanted, "full", "teacher"]
    seen: dict[Input, list[tuple[float, float]]] = {key: [] for key in inputs}
    for b in range(0, len(frames), size):
        extra = None if conditions is None else conditions[b : b + size]
        gradients = _gradients(
            denoiser, frames[b : b + size], schedule, inputs, extra, generator, transition
        )
        for key, gradient in gradients.items():
            pair = (_cosine(gradient, gradients[of]) for of in ("full", "teacher"))
            seen[key].append((next(pair), next(pair)))
    return [_row(key, schedule, seen[key]) for key in inputs]


def _gradients(
    denoiser: NetDenoiser,
    frames: Float[Tensor, "B 3 C *N"],
    schedule: Schedule,
    inputs: Sequence[Input],
    conditions: Tensor | None,
    generator: torch.Generator | None,
    transition: Transition,
) -> dict[Input, Gradient]:
    """∇L₂ for each input, on shared noise."""
    x, y = informed(frames[:, 0], conditions), frames[:, 1]
    noise = [draw(y, generator) for _ in schedule.sigma]
    seed = int(torch.randint(2**62, (), generator=generator))
    parameters = [p for p in denoiser.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError("the denoiser has no trainable parameters, so there is no gradient")
    made = {}
    for key in inputs:
        state = _input(denoiser, x, y, schedule, key, noise.__getitem__, transition)
        loss = _level_averaged(
            denoiser, informed(state, conditions), frames[:, 2], schedule, seed, y.device
        )
        parts = torch.autograd.grad(loss, parameters, materialize_grads=True)
        made[key] = torch.cat([p.flatten().double() for p in parts])
    return made


@torch.no_grad()
def _input(
    denoiser: NetDenoiser,
    x: Condition,
    y: State,
    schedule: Schedule,
    key: Input,
    noise: Callable[[int], State],
    transition: Transition,
) -> State:
    """What stands for x¹."""
    if key == "teacher":
        return y
    top = schedule.top if key == "full" else int(key)
    first = noise(top) if key == "full" else renoise(y, schedule.level(top), noise(top))
    chain = denoise_chain(
        denoiser, x, first, schedule, noise=noise, start=top, transition=transition
    )
    return deque(chain, maxlen=1)[0].y_est


def _level_averaged(
    denoiser: NetDenoiser,
    x: Condition,
    y: State,
    schedule: Schedule,
    seed: int,
    device: torch.device,
) -> Float[Tensor, ""]:
    """The diffusion loss with every sample at every level once, on noise that hangs on the seed alone."""
    generator = torch.Generator(device).manual_seed(seed)
    losses = [
        diffusion_loss(denoiser, x, y, Schedule([s]), generator=generator) for s in schedule.sigma
    ]
    return torch.stack(losses).mean()


def _cosine(a: Gradient, b: Gradient) -> float:
    """cos ∠(a, b); 1 where both are zero, 0 where one of them is."""
    size = a.norm() * b.norm()
    if not bool(size > 0):
        return 1.0 if torch.equal(a, b) else 0.0
    return float((a @ b / size).clamp(-1, 1))


def _row(key: Input, schedule: Schedule, cosines: Sequence[tuple[float, float]]) -> GradientRow:
    nfe = {"teacher": 0, "full": len(schedule)}.get(str(key))
    full, teacher = (_mean(list(values)) for values in zip(*cosines, strict=True))
    return GradientRow(key, int(key) + 1 if nfe is None else nfe, *full, *teacher, len(cosines))


def _mean(values: Sequence[float]) -> tuple[float, float | None]:
    n, mean = len(values), sum(values) / len(values)
    if n < 2:
        return mean, None
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)
