r"""For every number of calls, the ladder of least predicted error, from the measurements of Algorithm 2 alone.

A jump from σ_i down to σ_j hands over an estimate with an error. From a clean-input estimate it raises the error at σ_j by
the two-step bias 𝓑(j, i); from one whose error is REB(i) times that, the part that was added grows in proportion. If it is
independent of the error at σ_j itself, squares add up:

    REB²(j) = 1 + (𝓑(j, i)² − 1) REB²(i),    REB(top) = 1,    E_inf = E_clean(σ_0) REB(σ_0).

With two calls this is no approximation. REB(j) rises with REB(i), so the best chain to every level is found from the best
chains to the levels above it, and no ladder has to be sampled: N(N − 1)/2 biases serve every number of calls. The greedy
rule takes σ_0 as given and the fewest calls that τ allows; here σ_0 is chosen with the other levels, and τ is not needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from biasbound.core.bias import Estimate
from biasbound.core.schedule import Schedule

__all__ = ["predicted_error", "predicted_schedules"]


class Chain(NamedTuple):
    """Levels from the top down to the last one, and REB² there."""

    path: tuple[float, ...]
    square: float

    def down(self, to: float, bias: float) -> Chain:
        """One jump further, to a lower level, of this two-step bias."""
        excess = max(bias**2 - 1, 0.0)  # a measured bias may be a little below 1
        return Chain((*self.path, to), 1 + excess * self.square)


def predicted_error(
    ladder: Schedule,
    clean_error: Callable[[float], Estimate | float],
    two_step_bias: Callable[[float, float], Estimate | float],
) -> float:
    """E_clean(σ_0) REB(σ_0) of one ladder, by the recursion above.

    >>> predicted_error(Schedule([0.1, 0.4, 0.9]), lambda s: s, lambda to, start: 1.0)
    0.1
    """
    *lower, top = ladder.sigma
    chain = Chain((top,), 1.0)
    for to in reversed(lower):
        chain = chain.down(to, _mean(two_step_bias(to, chain.path[-1])))
    return _mean(clean_error(ladder.sigma[0])) * math.sqrt(chain.square)


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
    known = {(to, start): _mean(two_step_bias(to, start)) for to in sigma for start in sigma if to < start}
    clean = {s: _mean(clean_error(s)) for s in sigma}

    def down(chain: Chain, to: float) -> Chain:
        return chain.down(to, known[to, chain.path[-1]])

    def error(chain: Chain) -> float:
        return clean[chain.path[-1]] * math.sqrt(chain.square)

    ends = [Chain((sigma[-1],), 1.0)]
    found = {1: ends[0]}
    for k in range(2, min(calls, len(sigma)) + 1):
        below = sigma[: len(sigma) - k + 1]
        ends = [min((down(c, s) for c in ends if c.path[-1] > s), key=lambda c: c.square) for s in below]
        found[k] = min(ends, key=error)
    return {k: (Schedule(c.path[::-1], {"method": "predicted"}), error(c)) for k, c in found.items()}


def _mean(value: Estimate | float) -> float:
    return value.mean if isinstance(value, Estimate) else float(value)
