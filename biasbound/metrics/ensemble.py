"""Scores of ensembles: members (M, S, K, C, *N) against truth (S, K, C, *N).

A trajectory counts as broken from the step on at which its first member breaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from biasbound.core.crps import crps
from biasbound.metrics.arrays import Array, broken_frames, check, double, require_finite

__all__ = ["RankHistogram", "crps_frames", "rank_histogram", "spread_and_error", "spread_skill"]


def _members(members: Array, truth: Array) -> Iterator[tuple[Tensor, Tensor, Bool[Tensor, " K"]]]:
    """For each trajectory: members (M, K, C, *N), truth, and which frames are broken.

    Broken frames of the members are 0.
    """
    if members.ndim != truth.ndim + 1:
        raise ValueError(
            "an ensemble must be (M, S, K, C, *N), members first, but this one is "
            f"{tuple(members.shape)} beside a truth {tuple(truth.shape)}"
        )
    check(members[0], truth)
    for s in range(truth.shape[0]):
        x, y = double(members[:, s]), double(truth[s])
        require_finite(y, s)
        lost = torch.stack([broken_frames(member) for member in x]).any(0)
        yield torch.where(lost.reshape(-1, *[1] * (y.ndim - 1)), 0.0, x), y, lost


def crps_frames(members: Array, truth: Array, fair: bool = True) -> Float64[Tensor, "S K"]:
    """Continuous ranked probability score (`core.crps.crps`) over channels and grid, for each trajectory and frame.

    Broken frames: +∞.
    """
    table = [
        torch.where(lost, torch.inf, crps(x - y, fair).flatten(1).mean(1)) for x, y, lost in _members(members, truth)
    ]
    return torch.stack(table)


def spread_and_error(members: Array, truth: Array) -> Float64[Tensor, "S K 2"]:
    """Spread and error per trajectory and frame.

    The spread is (1 + 1/M) × the members' unbiased variance, the error the squared error of their
    mean. Broken frames: +∞.
    """
    count = members.shape[0]
    if count < 2:
        raise ValueError("spread needs at least 2 members")
    table = []
    for x, y, lost in _members(members, truth):
        spread = (1 + 1 / count) * x.var(0, correction=1).flatten(1).mean(1)
        error = (x.mean(0) - y).square().flatten(1).mean(1)
        table.append(torch.where(lost[:, None], torch.inf, torch.stack([spread, error], 1)))
    return torch.stack(table)


def spread_skill(members: Array, truth: Array) -> Float64[Tensor, " K"]:
    """√(⟨spread⟩/⟨squared error of the ensemble mean⟩) at each step.

    It is 1 if truth and members are exchangeable. Both means are over trajectories, channels and
    grid; the spread is corrected for the number of members. NaN where a trajectory is broken by
    then, and where spread and error are both 0.
    """
    spread, error = spread_and_error(members, truth).mean(0).unbind(1)
    return (spread / error).sqrt()


@dataclass(frozen=True)
class RankHistogram:
    """How often the truth had each rank among the members."""

    counts: tuple[int, ...]  # M + 1
    left_out: int  # frames, over all trajectories, in which a member was broken


def rank_histogram(members: Array, truth: Array, seed: int = 0) -> RankHistogram:
    """Rank 0 … M of the truth among M members at every frame, channel and point.

    The histogram is flat if truth and members are exchangeable. Among equal values the rank is
    drawn at random, from `seed`. Frames in which a member is broken have no rank: they are left
    out, and their number is returned.
    """
    generator = torch.Generator().manual_seed(seed)
    counts = torch.zeros(members.shape[0] + 1, dtype=torch.int64)
    left_out = 0
    for x, y, lost in _members(members, truth):
        x, y = x[:, ~lost], y[~lost]
        left_out += int(lost.sum())
        ties = (x == y).sum(0)
        chance = torch.rand(y.shape, generator=generator, dtype=torch.float64)
        rank = (x < y).sum(0) + (chance * (ties + 1)).floor().long()
        counts += torch.bincount(rank.flatten(), minlength=len(counts))
    return RankHistogram(tuple(counts.tolist()), left_out)
