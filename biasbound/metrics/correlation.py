"""Pearson correlation with the truth, and the time for which it stays high."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from biasbound.metrics.arrays import Array, per_frame
from biasbound.metrics.intervals import bootstrap

__all__ = ["CorrelationTime", "correlation_frames", "correlation_time", "share"]

Of = Callable[[Tensor], Tensor]  # (K, C, *N) → (K, C', *N): which quantity is compared


def _pearson(a: Float64[Tensor, "K n"], b: Float64[Tensor, "K n"]) -> Float64[Tensor, " K"]:
    """Correlation of each row; 0 where one of the two is constant, 1 where they are equal."""
    flat = (a.amax(1) == a.amin(1)) | (b.amax(1) == b.amin(1))
    same = (a == b).all(1)
    # Scaled before and after centring, so that no square overflows or underflows.
    rows = []
    for x in (a, b):
        x = x / x.abs().amax(1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
        x = x - x.mean(1, keepdim=True)
        rows.append(x / x.abs().amax(1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny))
    x, y = rows
    found = (x * y).sum(1) / ((x * x).sum(1) * (y * y).sum(1)).sqrt()
    return torch.where(same, 1.0, torch.where(flat, 0.0, found.clamp(-1, 1)))


def correlation_frames(pred: Array, truth: Array, of: Of | None = None) -> Float64[Tensor, "S K"]:
    """Pearson correlation over all channels and grid points, for each trajectory and frame.

    `of` maps frames (K, C, *N) to what is correlated, for instance `vorticity`; without it the
    field itself is. The correlation is 0 from a trajectory's first non-finite frame on, and where
    one of the two is constant (1 if they are equal).
    """

    def score(a: Tensor, b: Tensor) -> Tensor:
        if of is not None:
            a, b = of(a).double(), of(b).double()
        found = _pearson(a.flatten(1).nan_to_num(), b.flatten(1))
        return torch.where(a.flatten(1).isfinite().all(1), found, 0.0)

    return per_frame(pred, truth, score, 0.0)


@dataclass(frozen=True)
class CorrelationTime:
    """The high-correlation time over trajectories."""

    mean: float
    low: float  # ends of the bootstrap interval of the mean
    high: float
    worst: float  # mean of the worst 10 %
    best: float  # mean of the best 10 %
    per_trajectory: tuple[float, ...]
    never_failed: int  # trajectories above the threshold to the end, whose time is the cap
    cap: float  # K · dt
    threshold: float

    def __str__(self) -> str:
        return f"{self.mean:.4g} ({self.worst:.4g}, {self.best:.4g})"


def share(values: Float64[Tensor, "B S"], part: float) -> Float64[Tensor, " B"]:
    """Mean of the lowest (part > 0) or highest (part < 0) ⌊|part| S⌋ of S values, at least one."""
    count = max(1, int(abs(part) * values.shape[1]))
    return values.topk(count, dim=1, largest=part < 0).values.mean(1)


def correlation_time(
    pred: Array, truth: Array, dt: float, threshold: float = 0.8, *, of: Of | None = None, seed: int = 0
) -> CorrelationTime:
    """k · dt of each trajectory's first frame k (from 1) whose correlation is below `threshold`.

    A trajectory that never fails counts with the cap K · dt, as does one that fails at the last
    frame; `never_failed` tells how many did not fail. A later return above the threshold changes
    nothing. A broken trajectory fails where it breaks, if not before. `seed` is that of the
    bootstrap interval.
    """
    if not 0 < threshold <= 1 or not dt > 0:
        raise ValueError(f"a correlation time needs 0 < threshold ≤ 1 and dt > 0, got {threshold} and {dt}")
    below = correlation_frames(pred, truth, of) < threshold
    frames, failed = below.shape[1], below.any(1)
    steps = torch.where(failed, below.int().argmax(1) + 1, frames)
    times = steps.double() * dt
    found = bootstrap(times, seed=seed)
    return CorrelationTime(
        mean=found.mean,
        low=found.low,
        high=found.high,
        worst=float(share(times[None], 0.1)[0]),
        best=float(share(times[None], -0.1)[0]),
        per_trajectory=tuple(times.tolist()),
        never_failed=int((~failed).sum()),
        cap=frames * dt,
        threshold=threshold,
    )
