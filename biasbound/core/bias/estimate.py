"""A Monte Carlo estimate with its standard error, and how to pool estimates over batches."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from jaxtyping import Float
from torch import Tensor

__all__ = ["Estimate", "pooled"]


@dataclass(frozen=True)
class Estimate:
    """Mean over pairs (x, y), each first averaged over its noise draws.

    The standard error assumes independent pairs. Pairs from one trajectory are correlated, and the
    true error is then larger. A single pair has an infinite standard error, because it says
    nothing about the spread over pairs.
    """

    mean: float
    stderr: float
    pairs: int
    draws: int

    @classmethod
    def of(cls, values: Float[Tensor, " B"], draws: int) -> Estimate:
        """From one value per pair. An infinite value (zero clean error) gives an infinite mean."""
        values = values.double()
        if bool(values.isnan().any()):
            raise ValueError("cannot average values that include NaN")
        n, mean = len(values), values.mean().item()
        if n < 2 or not math.isfinite(mean):
            return cls(mean, math.inf, n, draws)
        return cls(mean, math.sqrt(values.var().item() / n), n, draws)

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.stderr:.2g}"


def _merge(a: Estimate, b: Estimate) -> Estimate:
    """Chan's update of mean and sum of squares, so that batches can be streamed."""
    n = a.pairs + b.pairs
    if not math.isfinite(a.mean) or not math.isfinite(b.mean):
        mean = a.mean + b.mean
        if math.isnan(mean):
            raise ValueError("cannot pool estimates of +∞ and −∞")
        return Estimate(mean, math.inf, n, a.draws)
    gap = b.mean - a.mean
    squares = sum(e.stderr**2 * e.pairs * (e.pairs - 1) for e in (a, b) if e.pairs > 1)
    squares += gap**2 * a.pairs * b.pairs / n
    return Estimate(a.mean + gap * b.pairs / n, math.sqrt(squares / (n - 1) / n), n, a.draws)


def pooled(estimates: Iterable[Estimate]) -> Estimate:
    """The estimate over all pairs of several disjoint batches, as if measured in one batch."""
    every = list(estimates)
    if not every:
        raise ValueError("no estimates to pool: no pairs were given")
    if len({e.draws for e in every}) > 1:
        raise ValueError("estimates with different numbers of noise draws cannot be pooled")
    return reduce(_merge, every)
