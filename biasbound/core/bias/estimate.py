"""A Monte Carlo estimate with its standard error, and how to pool estimates over batches."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Estimate", "Statistic", "bias_ratio", "divide", "pooled"]


Statistic = Literal["mean", "pooled", "q95"]


@dataclass(frozen=True)
class Estimate:
    """Mean over pairs (x, y), each first averaged over its noise draws.

    The standard error assumes independent pairs. Pairs from one trajectory are correlated, and the true error is then
    larger. A single pair has an infinite standard error, because it says nothing about the spread over pairs.

    A bias has two more statistics, because a mean of ratios hides a tail: `pooled`, the ratio of the root mean squares
    over all pairs and draws, and `q95`, the 95th percentile of the ratio over pairs.
    """

    mean: float
    stderr: float
    pairs: int
    draws: int
    pooled: float | None = None
    q95: float | None = None

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

    @classmethod
    def of_ratio(cls, error: Float[Tensor, "R B"], clean: Float[Tensor, "R B"], power: int = 1) -> Estimate:
        """A bias, from the errors of every draw and pair."""
        ratio = bias_ratio(error, clean, power)
        squares = [e.double().square().mean().reshape(1) for e in (error, clean)]
        pooled = divide(squares[0], squares[1], 1.0).item() ** (power / 2)
        return replace(cls.of(ratio, len(error)), pooled=pooled, q95=ratio.double().quantile(0.95).item())

    def value(self, statistic: Statistic) -> float:
        """The number that a bound is put on; an estimate that is no bias has its mean alone."""
        found = self.mean if statistic == "mean" else getattr(self, statistic)
        return self.mean if found is None else float(found)

    def as_dict(self, name: str) -> dict[str, float | None]:
        """Flat JSON values; infinities become null, because JSON has none."""
        told = {name: self.mean, f"{name}_stderr": self.stderr}
        if self.pooled is not None and self.q95 is not None:
            told |= {f"{name}_pooled": self.pooled, f"{name}_q95": self.q95}
        return {k: v if math.isfinite(v) else None for k, v in told.items()}

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


def divide(numerator: Float[Tensor, " B"], clean: Float[Tensor, " B"], zero_over_zero: float) -> Float[Tensor, " B"]:
    """numerator / clean per pair; 0/0 as told, anything else over 0 is infinite."""
    return torch.where((numerator == 0) & (clean == 0), zero_over_zero, numerator / clean)


def bias_ratio(error: Float[Tensor, "R B"], clean: Float[Tensor, "R B"], power: int = 1) -> Float[Tensor, " B"]:
    """E_ε‖error‖^p / E_ε‖clean‖^p per pair.

    Where the clean error is zero, the ratio is 1 if the other error is zero too (the chain is no
    worse than its denoiser), and ∞ otherwise.
    """
    if power not in (1, 2):
        raise ValueError(f"power must be 1 (norms) or 2 (squared norms) in a bias, got {power}")
    return divide(error.pow(power).mean(0), clean.pow(power).mean(0), 1.0)
