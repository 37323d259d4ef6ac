r"""The exact front: for every number of calls the ladder of least measured inference error, by dynamic programming.

With the truth at hand, the error of a chain can be measured instead of bounded. Let ŷ_k[j] be the estimate after k calls,
the last of them at level j, along the best ladder of that length that ends there:

    ŷ_1[T] = y_est(ε_T, σ_T),    e_k[j] = min_{i > j} E‖y_est(√ᾱ_j ŷ_{k−1}[i] + σ_j ε_j, σ_j) − y‖

Where the answer is a distribution, the CRPS of the draws takes the place of the error (`score`).

Every level has one noise per pair and draw, whatever comes before it, so that ladders are compared on the same noise. The
result is exact where a better estimate stays better after one more call; it needs levels² × calls / 2 denoiser calls. The
formula is that of the `renoise` transition; the others keep the chain's own noise from level to level.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from biasbound.core.bias import Estimate, Measure
from biasbound.core.bias.ratio import DEFAULT
from biasbound.core.denoise import Denoiser, ask
from biasbound.core.mask import error_of
from biasbound.core.noise import Condition, State, draw
from biasbound.core.sample import Transition, descend, sample
from biasbound.core.schedule import Schedule
from biasbound.core.score import Score, pair_scores

__all__ = [
    "Front",
    "at_most",
    "best_schedule",
    "inference_error",
    "optimal_schedules",
    "pair_errors",
    "paired_schedule",
]

Front = Mapping[int, tuple[Schedule, Estimate]]


class Node(NamedTuple):
    """A chain that has come down to some level: its levels from the top, its inputs and estimates there, one per draw."""

    path: tuple[float, ...]
    inputs: list[Tensor]
    estimates: list[Tensor]
    error: Estimate


@torch.no_grad()
def optimal_schedules(
    denoiser: Denoiser,
    x: Condition,
    y: State,
    levels: Schedule | Iterable[float],
    calls: int = 6,
    *,
    draws: int = 2,
    generator: torch.Generator | None = None,
    transition: Transition = "renoise",
    score: Score = "error",
) -> dict[int, tuple[Schedule, Estimate]]:
    """{K: (ladder, E_inf)} for K = 1, 2, … `calls`: the best ladder of K of these levels that starts at the highest.

    E_inf is the error of the chain's last estimate, or its CRPS, with its standard error over pairs. Fewer levels than
    `calls` end the front early.

    >>> from biasbound.core.oracle import AffineOracle
    >>> denoiser = AffineOracle(lambda s: 0.1 * s, 0.0)  # the lower the level, the smaller the error
    >>> x, y = denoiser.pairs((8, 1, 16), torch.Generator().manual_seed(0))
    >>> front = optimal_schedules(denoiser, x, y, [0.1, 0.4, 0.9])
    >>> [ladder.sigma for ladder, error in front.values()]
    [(0.9,), (0.1, 0.9), (0.1, 0.4, 0.9)]
    """
    sigma = Schedule(levels.sigma if isinstance(levels, Schedule) else sorted(set(levels))).sigma
    if calls < 1 or draws < 1 or len(x) != len(y) or len(y) == 0:
        raise ValueError(
            f"the front needs pairs, calls and draws: got {len(x)} and {len(y)} fields, {calls} calls, {draws} draws"
        )
    noise = {s: [draw(y, generator) for _ in range(draws)] for s in reversed(sigma)}

    def node(path: tuple[float, ...], inputs: list[Tensor]) -> Node:
        made = [ask(denoiser, y_t, x, path[-1]) for y_t in inputs]
        errors = torch.stack([error_of(denoiser, one, y) for one in made])
        return Node(path, inputs, made, Estimate.of(pair_scores(errors, score), draws))

    def down(before: Node, s: float) -> Node:
        """The chain goes on to level s."""

        def step(y_t: Tensor, y_est: Tensor, eps: Tensor) -> Tensor:
            return descend(y_t, y_est, before.path[-1], s, lambda: eps, transition)

        return node((*before.path, s), list(map(step, before.inputs, before.estimates, noise[s])))

    top = sigma[-1]
    ends = [node((top,), noise[top])]  # the best chains of one length, one per level that they have come down to
    front = {1: (Schedule([top]), ends[0].error)}
    for k in range(2, min(calls, len(sigma)) + 1):
        below = sigma[: len(sigma) - k + 1]
        ends = [min((down(end, s) for end in ends if end.path[-1] > s), key=_mean) for s in below]
        best = min(ends, key=_mean)
        front[k] = (Schedule(best.path[::-1]), best.error)
    return front


def _mean(node: Node) -> float:
    return node.error.mean


def at_most(front: Front, calls: int) -> tuple[Schedule, Estimate]:
    """The ladder of least error with at most that many calls: it never gets worse with more of them."""
    allowed = [k for k in sorted(front) if k <= calls]
    if not allowed:
        raise ValueError(f"a ladder has at least 1 call, got {calls}")
    return min((front[k] for k in allowed), key=lambda one: one[1].mean)


def best_schedule(front: Front) -> Schedule:
    """The ladder with the fewest calls whose error is within one standard error of the least."""
    least = at_most(front, max(front))[1]
    slack = least.stderr if least.pairs > 1 else 0.0
    return next(front[k][0] for k in sorted(front) if front[k][1].mean <= least.mean + slack)


def paired_schedule(
    denoiser: Denoiser,
    x: Condition,
    y: State,
    front: Front,
    *,
    draws: int = 2,
    seed: int = 0,
    transition: Transition = "renoise",
    score: Score = "error",
) -> Schedule:
    """The ladder with the fewest calls that is within one standard error of the least error, pair by pair.

    Ladders of one network err on the same pairs, so that the spread over pairs, which `best_schedule` allows for, hides
    most of what refining gains. Here the standard error is that of the difference of two ladders on the same pairs.
    """

    def errors(ladder: Schedule) -> Tensor:
        noise = torch.Generator().manual_seed(seed)
        return pair_errors(denoiser, x, y, ladder, Measure(draws, transition=transition, generator=noise), score)

    error = {k: errors(ladder) for k, (ladder, _) in front.items()}
    least = min(error.values(), key=lambda values: values.mean().item())

    def close(k: int) -> bool:
        gap = error[k] - least
        return len(gap) < 2 or gap.mean().item() <= gap.std().item() / math.sqrt(len(gap))

    return next(front[k][0] for k in sorted(front) if close(k))


@torch.no_grad()
def pair_errors(
    denoiser: Denoiser, x: Condition, y: State, schedule: Schedule, how: Measure = DEFAULT, score: Score = "error"
) -> Float[Tensor, " B"]:
    """‖M_θ(x) − y‖ per pair, the mean over draws of full samples, or the CRPS of the draws."""
    told: dict[str, Any] = {"generator": how.generator, "like": y, "transition": how.transition}
    made = (sample(denoiser, x, schedule, **told) for _ in range(how.draws))
    return pair_scores(torch.stack([error_of(denoiser, one, y) for one in made]), score)


@torch.no_grad()
def inference_error(
    denoiser: Denoiser,
    x: Condition,
    y: State,
    schedule: Schedule,
    *,
    draws: int = 2,
    generator: torch.Generator | None = None,
    transition: Transition = "renoise",
    score: Score = "error",
) -> Estimate:
    """E_inf of one ladder, ‖M_θ(x) − y‖ over full samples, or their CRPS: what the front compares, for a ladder that is not on it."""
    how = Measure(draws, transition=transition, generator=generator)
    return Estimate.of(pair_errors(denoiser, x, y, schedule, how, score), draws)
