r"""How well does a proxy of the previous step stand in for the full chain, seen from the gradient? (paper, appendix on P-UT)

For a window x⁰, x¹, x² the second-frame loss, averaged over all levels of the schedule, is

    L₂(x̂) = mean_t ‖output(√ᾱ_t x² + σ_t ε, x̂, σ_t) − objective‖²,

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

from biasbound.core.losses import diffusion_loss
from biasbound.core.noise import Condition, State, draw, renoise
from biasbound.core.sample import denoise_chain
from biasbound.core.schedule import Schedule
from biasbound.models.diffusion import Diffusion
from biasbound.models.model import Examples

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
    model: Diffusion,
    batch: Examples,
    ns: Iterable[int] | None = None,
    *,
    generator: torch.Generator | None = None,
    batch_size: int | None = None,
) -> list[GradientRow]:
    """Rows for each P⁽ⁿ⁾ (default n = 0 … T), then "full" and "teacher"; `batch` has windows with two targets.

    `batch_size` windows make one gradient (default all); the cosines of the batches are averaged.
    """
    x, targets = model.windows(batch)
    wanted = list(range(len(model.schedule)) if ns is None else ns)
    for n in wanted:
        model.schedule.level(n)  # refuses what the schedule does not have
    size = len(x) if batch_size is None else batch_size
    if len(x) < 1 or size < 1 or len(targets) != 2:
        raise ValueError("the gradient similarity needs at least one window with two targets")
    inputs: list[Input] = [*wanted, "full", "teacher"]
    seen: dict[Input, list[tuple[float, float]]] = {key: [] for key in inputs}
    for b in range(0, len(x), size):
        part = slice(b, b + size)
        gradients = _gradients(model, x[part], [y[part] for y in targets], inputs, generator)
        for key, gradient in gradients.items():
            pair = (_cosine(gradient, gradients[of]) for of in ("full", "teacher"))
            seen[key].append((next(pair), next(pair)))
    return [_row(key, model.schedule, seen[key]) for key in inputs]


def _gradients(
    model: Diffusion,
    x: Condition,
    targets: Sequence[State],
    inputs: Sequence[Input],
    generator: torch.Generator | None,
) -> dict[Input, Gradient]:
    """∇L₂ for each input, on shared noise."""
    noise = [draw(targets[0], generator) for _ in model.schedule.sigma]
    seed = int(torch.randint(2**62, (), generator=generator))
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError("the denoiser has no trainable parameters, so there is no gradient")
    made = {}
    for key in inputs:
        state = _input(model, x, targets[0], key, noise.__getitem__)
        loss = _level_averaged(model, model.frame.task.follow(x, state), targets[1], seed)
        parts = torch.autograd.grad(loss, parameters, materialize_grads=True)
        real = (torch.view_as_real(p) if p.is_complex() else p for p in parts)
        made[key] = torch.cat([p.flatten().double() for p in real])
    return made


@torch.no_grad()
def _input(model: Diffusion, x: Condition, y: State, key: Input, noise: Callable[[int], State]) -> State:
    """What stands for x¹."""
    if key == "teacher":
        return y
    schedule = model.schedule
    top = schedule.top if key == "full" else int(key)
    first = noise(top) if key == "full" else renoise(y, schedule.level(top), noise(top))
    chain = denoise_chain(model, x, first, schedule, noise=noise, start=top, transition=model.transition)
    return deque(chain, maxlen=1)[0].y_est


def _level_averaged(model: Diffusion, x: Condition, y: State, seed: int) -> Float[Tensor, ""]:
    """The diffusion loss with every sample at every level once, on noise that depends on the seed alone."""
    generator = torch.Generator(y.device).manual_seed(seed)
    losses = [diffusion_loss(model, x, y, Schedule([s]), generator=generator) for s in model.schedule.sigma]
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
