"""How to search, as plain values: no torch here, so that a command line knows them at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["SearchOptions"]


@dataclass(frozen=True)
class SearchOptions:
    """How to search. τ is the paper's; the exploration may be stricter, to leave room for the jumps."""

    mode: Literal["grow", "separate"] = "separate"
    """grow: the ladder grows inside the training; separate: explore, then train (the paper's)"""
    tau: float = 1.05
    """bound on the biases"""
    tau_explore: float | None = None
    """bound on the own-prediction biases; by default tau"""
    power: Literal[1, 2] = 1
    """what τ bounds: 1, ratios of norms; 2, ratios of squared norms (the authors' code)"""
    statistic: Literal["mean", "pooled", "q95"] = "mean"
    """what τ bounds: the mean of the ratios over pairs (paper), the ratio of root mean squares, or the 95th percentile"""
    levels: int = 24
    """levels of the exploration grid"""
    sigma_min: float = 1e-3
    """lowest level of the grid"""
    sigma_max: float = 10**-1e-4
    """highest level of the grid, where every chain begins"""
    over: Literal["ratio", "sigma"] = "ratio"
    """the grid is uniform in log(σ/√ᾱ) (ratio), or in log σ as in the paper (sigma)"""
    solved: Literal["leave", "stay"] = "leave"
    """separate: solved levels leave the training (paper), or stay, and the last network is measured"""
    ahead: int | None = None
    """levels below the lowest solved one, or below the frontier, that are trained; by default all"""
    rounds: int = 10
    """measurements during the exploration or growth"""
    patience: int | None = None
    """rounds without a new level before it stops"""
    draws: int = 2
    """noise draws per bias"""
    start: Literal["auto", "sigma", "error"] = "auto"
    """separate: σ_0 is the lowest solved level, or that of least error; auto: as suits the prediction"""
    seed: int = 0
    """seed of the noise in the measurements"""
    warm: float | None = None
    """grow: share of the budget that trains the top level, whose error gives the levels below it and the scale c; by default
    0.5 for the scaled prediction, which predicts from x there as a direct model does, and 0.15 for all others"""
    band: float = 0.05
    """grow: share of the samples of that time for levels below the top, so that none is new to the network later"""
    tried: float = 0.4
    """grow: share of the samples of the rounds for the levels that are tried below the ladder"""
    share: float = 0.6
    """grow: share of the budget after which the ladder is fixed"""
    lowest: float = 0.8
    """grow: share of the samples for σ_0 once the ladder is fixed"""
    top: float = 0.15
    """grow: least share of the samples for the top level"""
    rule: Literal["greedy", "best", "paired"] = "greedy"
    """grow: the final ladder is the greedy one, or the fewest calls within one standard error of the least error: of that
    error over pairs (best), or of the difference between two ladders, pair by pair (paired)"""
    calls: int = 6
    """grow: longest ladder of the exact front; with 1, unless the rule is greedy, all samples train the top level"""
    score: Literal["error", "crps"] = field(default="error", metadata={"later": True})
    """grow: what ladders are compared by: the error of a sample, or the CRPS of `draws` samples, where the answer is a
    distribution; then all levels of the grid are trained until the ladder is fixed, and the front chooses it"""

    def __post_init__(self) -> None:
        for name in ("tau", "tau_explore"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 1):
                raise ValueError(f"{name} bounds a bias, which is 1 at best: give at least 1, got {value}")
        if self.levels < 2:
            raise ValueError(f"the exploration grid needs at least 2 levels, got {self.levels}")
        if not 0 < self.sigma_min < self.sigma_max < 1:
            raise ValueError(
                f"the grid needs 0 < sigma_min < sigma_max < 1, got {self.sigma_min} and {self.sigma_max}"
            )
        if not 0 <= (self.warm or 0) <= self.share <= 1 or not 0 < self.lowest < 1 or not 0 <= self.top < 1:
            raise ValueError(
                f"a growth needs 0 ≤ warm ≤ share ≤ 1 and shares of the samples in (0, 1), got {self.warm}, {self.share}, "
                f"lowest {self.lowest} and top {self.top}"
            )
        if not 0 < self.tried < 1:
            raise ValueError(f"tried is a share of the samples, between 0 and 1, got {self.tried}")
        for name in ("rounds", "draws", "patience", "ahead", "calls"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.score == "crps" and self.draws < 2:
            raise ValueError("score crps compares samples with each other: give at least 2 draws")

    @property
    def tau_own(self) -> float:
        """The bound on own-prediction biases."""
        return self.tau_explore or self.tau
