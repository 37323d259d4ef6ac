r"""The exact front: for every number of calls the ladder of least measured inference error, by dynamic programming.

With the truth at hand, the error of a chain can be measured instead of bounded. Let ŷ_k[j] be the estimate after k calls,
the last of them at level j, along the best ladder of that length that ends there:

    ŷ_1[T] = y_est(ε_T, σ_T),    e_k[j] = min_{i > j} E‖y_est(√ᾱ_j ŷ_{k−1}[i] + σ_j ε_j, σ_j) − y‖

Every level has one noise per pair and draw, whatever comes before it, so that ladders are compared on the same noise. The
result is exact where a better estimate stays better after one more call; it needs levels² × calls / 2 denoiser calls.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from biasbound.core.bias import Estimate, error_norm
from biasbound.core.denoise import Denoiser, ask
from biasbound.core.noise import Condition, State, draw, renoise
from biasbound.core.schedule import Schedule

__all__ = ["best_schedule", "optimal_schedules"]


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
) -> dict[int, tuple[Schedule, Estimate]]:
    """{K: (ladder, E_inf)} for K = 1, 2, … `calls`: the best ladder of K of these levels that starts at the highest.

    E_inf is the error of the chain's last estimate with its standard error over pairs. Fewer levels than `calls` end the
    front early.
    """
    sigma = Schedule(levels.sigma if isinstance(levels, Schedule) else sorted(set(levels))).sigma
    if calls < 1 or draws < 1 or len(x) != len(y) or len(y) == 0:
        raise ValueError(
            f"the front needs pairs, calls and draws: got {len(x)} and {len(y)} fields, {calls} calls, {draws} draws"
        )
    noise = {s: [draw(y, generator) for _ in range(draws)] for s in reversed(sigma)}

    def after(before: list[Tensor], s: float) -> list[Tensor]:
        """Estimates at level s after those of a level above, one per draw."""
        return [ask(denoiser, renoise(b, s, eps), x, s) for b, eps in zip(before, noise[s], strict=True)]

    def error(estimates: list[Tensor]) -> Estimate:
        return Estimate.of(torch.stack([error_norm(e - y) for e in estimates]).mean(0), draws)

    top = sigma[-1]
    first = [ask(denoiser, eps, x, top) for eps in noise[top]]
    # level → ladder from the top down, estimates, their error
    ends: dict[float, tuple[tuple[float, ...], list[Tensor], Estimate]] = {top: ((top,), first, error(first))}
    front = {1: (Schedule([top]), ends[top][2])}
    for k in range(2, min(calls, len(sigma)) + 1):
        longer: dict[float, tuple[tuple[float, ...], list[Tensor], Estimate]] = {}
        for s in sigma[: len(sigma) - k + 1]:
            tried = ((path, after(made, s)) for level, (path, made, _) in ends.items() if level > s)
            measured = ((path, made, error(made)) for path, made in tried)
            path, made, found = min(measured, key=lambda one: one[2].mean)
            longer[s] = ((*path, s), made, found)
        ends = longer
        path, _, found = min(ends.values(), key=lambda one: one[2].mean)
        front[k] = (Schedule(path[::-1]), found)
    return front


def best_schedule(front: dict[int, tuple[Schedule, Estimate]]) -> Schedule:
    """The ladder with the fewest calls whose error is within one standard error of the least."""
    least = min((found for _, found in front.values()), key=lambda found: found.mean)
    slack = least.stderr if least.pairs > 1 else 0.0
    return next(front[k][0] for k in sorted(front) if front[k][1].mean <= least.mean + slack)
