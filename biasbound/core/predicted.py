r"""For every number of calls, the ladder of least predicted error, from the measurements of Algorithm 2 alone.

A jump from σ_i down to σ_j hands over an estimate with an error. From a clean-input estimate it raises the squared error at
σ_j by (𝓑(j, i)² − 1) E_clean(j)², with the two-step bias 𝓑(j, i). What was added by the jumps before it has passed one
denoiser already, and passes the next almost whole: lower levels correct finer scales. So take nothing of it as lost,

    E_inf²(σ_0) = E_clean(σ_0)² + Σ (𝓑(j, i)² − 1) E_clean(j)²  over the jumps i → j,

which is an upper bound where errors are independent and no level amplifies what it is handed. With two calls it is no
approximation. The sum is one over jumps, so that the best ladder is a shortest path and none has to be sampled: N(N − 1)/2
biases serve every number of calls. The greedy rule takes σ_0 as given and the fewest calls that τ allows; here σ_0 is chosen
with the other levels, and τ is not needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

from biasbound.core.bias import Estimate
from biasbound.core.schedule import Schedule

__all__ = ["predicted_error", "predicted_schedules"]


class Chain(NamedTuple):
    """Levels from the top down to the last one, and the squared error that its jumps added."""

    path: tuple[float, ...]
    added: float


def predicted_error(
    ladder: Schedule,
    clean_error: Callable[[float], Estimate | float],
    two_step_bias: Callable[[float, float], Estimate | float],
) -> float:
    """E_inf(σ_0) of one ladder, by the sum above.

    >>> predicted_error(Schedule([0.1, 0.4, 0.9]), lambda s: s, lambda to, start: 1.0)
    0.1
    """
    jumps = pairwise(ladder.sigma)
    added = sum(_added(_mean(clean_error(to)), _mean(two_step_bias(to, start))) for to, start in jumps)
    return math.sqrt(_mean(clean_error(ladder.sigma[0])) ** 2 + added)


def predicted_schedules(
    levels: Schedule | Iterable[float],
    clean_error: Callable[[float], Estimate | float],
    two_step_bias: Callable[[float, float], Estimate | float],
    calls: int = 6,
) -> dict[int, tuple[Schedule, float]]:
    """{K: (ladder, predicted E_inf)} for K = 1, 2, … `calls`, each the best of K of these levels that starts at the top.

    `two_step_bias(sigma_to, sigma_from)` is asked once for every two levels.

    >>> errors = {0.1: 1.0, 0.4: 2.0, 0.9: 4.0}
    >>> found = predicted_schedules(errors, errors.get, lambda to, start: 1 + 0.1 * start / to)
    >>> [ladder.sigma for ladder, _ in found.values()]
    [(0.9,), (0.1, 0.9), (0.1, 0.4, 0.9)]
    """
    if calls < 1:
        raise ValueError(f"a ladder has at least 1 call, got {calls}")
    sigma = Schedule(levels.sigma if isinstance(levels, Schedule) else sorted(set(levels))).sigma
    clean = {s: _mean(clean_error(s)) for s in sigma}
    jump = {
        (to, start): _added(clean[to], _mean(two_step_bias(to, start)))
        for to in sigma
        for start in sigma
        if to < start
    }

    def down(chain: Chain, to: float) -> Chain:
        return Chain((*chain.path, to), chain.added + jump[to, chain.path[-1]])

    def error(chain: Chain) -> float:
        return math.sqrt(clean[chain.path[-1]] ** 2 + chain.added)

    ends = [Chain((sigma[-1],), 0.0)]  # the best chains of one length, one per level that they have come down to
    found = {1: ends[0]}
    for k in range(2, min(calls, len(sigma)) + 1):
        below = sigma[: len(sigma) - k + 1]
        ends = [min((down(c, s) for c in ends if c.path[-1] > s), key=lambda c: c.added) for s in below]
        found[k] = min(ends, key=error)
    return {k: (Schedule(c.path[::-1], {"method": "predicted"}), error(c)) for k, c in found.items()}


def _added(clean: float, bias: float) -> float:
    return max(bias**2 - 1, 0.0) * clean**2  # a measured bias may be a little below 1


def _mean(value: Estimate | float) -> float:
    return value.mean if isinstance(value, Estimate) else float(value)
