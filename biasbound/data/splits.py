"""How data are divided into training, validation and test parts: by trajectory, or in time.

One trajectory can only be divided in time. Frames next to each other are nearly the same, so a gap is left out between
the parts; without it, validation would begin where training ends.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from biasbound.data.batches import permutation

if TYPE_CHECKING:
    from biasbound.data.trajectories import Trajectories

__all__ = ["Split", "by_trajectory", "divided", "in_time"]

PARTS = ("train", "valid", "test")
HELD_OUT = 0.1  # of the trajectories, for validation and as much for test
IN_TIME = (0.7, 0.15, 0.15)  # a validation part must be long enough to roll out over
GAP = 0.01  # of the frames


@dataclass(frozen=True)
class Split:
    """How data were divided; all values are JSON values."""

    how: Literal["trajectory", "time"]
    fractions: Mapping[str, float] = field(default_factory=dict)
    seed: int | None = None  # of the order of trajectories; None is the stored one
    gap: int = 0  # frames left out between two parts in time

    def __str__(self) -> str:
        """`by trajectory 0.8/0.1/0.1, seed 0`."""
        parts = "/".join(f"{fraction:.3g}" for fraction in self.fractions.values())
        if self.how == "time":
            return f"in time {parts}, gap {self.gap}"
        return f"by trajectory {parts}, {'stored order' if self.seed is None else f'seed {self.seed}'}"

    @property
    def sentence(self) -> str:
        """The same in English."""
        shares = [f"{100 * fraction:.3g} % {part}" for part, fraction in self.fractions.items()]
        parts = " and ".join([", ".join(shares[:-1]), shares[-1]]) if len(shares) > 1 else "".join(shares)
        if self.how == "time":
            gap = f"with {self.gap} frame{'s' if self.gap != 1 else ''} left out between parts"
            return f"The data were divided in time into {parts}, {gap}."
        order = "in stored order" if self.seed is None else f"in the random order of seed {self.seed}"
        return f"The data were divided by trajectory into {parts}, {order}."


def _ends(count: int, fractions: Mapping[str, float]) -> list[int]:
    """⌊count Σ_{j≤i} f_j⌋ for each part i."""
    if min(fractions.values(), default=0) <= 0 or sum(fractions.values()) > 1 + 1e-9:
        raise ValueError(f"split fractions must be above 0 and sum to at most 1: {dict(fractions)}")
    return [int(count * f + 1e-9) for f in np.cumsum([*fractions.values()])]


def by_trajectory(
    data: Trajectories, fractions: Mapping[str, float], seed: int | None = None
) -> dict[str, Trajectories]:
    """Disjoint parts by trajectory, in stored order or in the seed's random order; none may be empty."""
    ends = _ends(len(data), fractions)
    order = np.arange(len(data)) if seed is None else permutation(len(data), seed)
    rows = dict(zip(fractions, np.split(order[: ends[-1]], ends[:-1]), strict=True))
    for part, chosen in rows.items():
        if len(chosen) == 0:
            few = f"{len(data)} trajectories leave none for the part {part!r}, {fractions[part]:g} of them"
            raise ValueError(f"{data.name}: {few}; give more, or a file of its own for each part")
    told = Split("trajectory", dict(fractions), seed)
    return {part: replace(data.select(chosen), division=told) for part, chosen in rows.items()}


def in_time(data: Trajectories, fractions: Mapping[str, float], gap: int = 0) -> dict[str, Trajectories]:
    """Parts of every trajectory in time order, `gap` frames apart; each has at least two frames.

    With U = K − (parts − 1)·gap frames in use, part i begins at ⌊U Σ_{j<i} f_j⌋ + i·gap.
    """
    frames = data.layout.frames
    used = frames - (len(fractions) - 1) * gap
    if gap < 0 or used < 1:
        raise ValueError(f"{data.name}: a gap of {gap} frames does not fit into trajectories of {frames}")
    ends = _ends(used, fractions)
    told, parts = Split("time", dict(fractions), gap=gap), {}
    for i, (part, begin, end) in enumerate(zip(fractions, [0, *ends], ends, strict=False)):
        if end - begin < 2:
            few = f"{frames} frames with a gap of {gap} leave {end - begin} for the part {part!r}"
            raise ValueError(f"{data.name}: {few}, which needs two; give longer trajectories or a larger share")
        parts[part] = replace(data.select(frames=slice(begin + i * gap, end + i * gap)), division=told)
    return parts


def divided(
    data: Trajectories, fractions: tuple[float, float, float] | None = None, *, seed: int = 0, gap: int | None = None
) -> dict[str, Trajectories]:
    """The default parts `train`, `valid` and `test`: by trajectory, or in time where there are fewer than three.

    `fractions` are 0.8, 0.1, 0.1 by trajectory and 0.7, 0.15, 0.15 in time unless given; of fewer than ten
    trajectories, one each is for validation and test. The gap in time is 1 % of the frames, at least 1.
    """
    if len(data) >= len(PARTS):
        one = max(HELD_OUT, 1 / len(data))
        shares = fractions or (1 - 2 * one, one, one)
        return by_trajectory(data, dict(zip(PARTS, shares, strict=True)), seed)
    left = max(1, math.ceil(GAP * data.layout.frames)) if gap is None else gap
    return in_time(data, dict(zip(PARTS, fractions or IN_TIME, strict=True)), left)
