"""Bootstrap intervals over trajectories."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["Interval", "bootstrap"]


@dataclass(frozen=True)
class Interval:
    """A value with the ends of its bootstrap interval, NaN where there is none."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"


def _mean(values: Float[Tensor, "B S"]) -> Float[Tensor, " B"]:
    return values.mean(1)


def bootstrap(
    values: Float[Tensor, "S ..."],
    statistic: Callable[[Tensor], Tensor] = _mean,
    *,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap of a statistic over trajectories, one value (or row) each.

    Trajectories are drawn with replacement `draws` times; `statistic` maps the draws (B, S, …) to
    (B,), by default by the mean. The result depends on nothing but the values and `seed`. A single
    trajectory has no interval, and neither has a value that is not finite (a broken trajectory):
    both ends are NaN then, and the value stays what it is.
    """
    if not 0 < level < 1 or draws < 1:
        raise ValueError(
            f"a bootstrap needs a level between 0 and 1 and at least one draw, got level={level} and draws={draws}"
        )
    if values.ndim < 1 or len(values) == 0:
        raise ValueError("there is no trajectory to draw from")
    values = values.double()
    value = float(statistic(values[None])[0])
    if len(values) < 2 or not math.isfinite(value):
        return Interval(value, math.nan, math.nan)
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randint(len(values), (draws, len(values)), generator=generator)
    drawn = statistic(values[chosen])
    if not bool(drawn.isfinite().all()):
        return Interval(value, math.nan, math.nan)
    tail = (1 - level) / 2
    ends = torch.quantile(drawn, torch.tensor([tail, 1 - tail], dtype=torch.float64))
    return Interval(value, float(ends[0]), float(ends[1]))
