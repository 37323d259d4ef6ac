"""How to search, as plain values: no torch here, so that a command line knows them at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["SearchOptions"]


@dataclass(frozen=True)
class SearchOptions:
    """How to search. τ is the paper's; the exploration may be stricter, to leave room for the jumps."""

    tau: float = 1.05
    """τ, the bound on every bias of the schedule; paper 1.05"""
    tau_explore: float | None = None
    """bound on a level's own bias during the exploration; default: tau"""
    levels: int = 24
    """levels of the exploration grid"""
    sigma_min: float = 1e-3
    """its lowest level"""
    sigma_max: float = 10**-1e-4
    """its highest level"""
    over: Literal["ratio", "sigma"] = "ratio"
    """the grid is uniform in log(σ/√ᾱ), or in log σ as in the paper"""
    solved: Literal["leave", "stay"] = "leave"
    """solved levels leave the training (paper), or stay, and the last network is measured"""
    ahead: int | None = None
    """levels below the lowest solved one that are trained; by default all, also where nothing can be learned yet"""
    rounds: int = 10
    """measurements during the exploration"""
    patience: int | None = None
    """rounds without a newly solved level before it stops"""
    draws: int = 2
    """noise draws per bias"""
    start: Literal["auto", "sigma", "error"] = "auto"
    """σ_0: lowest solved level, or that of least error; auto: the latter for x₀-prediction alone"""
    seed: int = 0
    """seed of the noise in the measurements"""

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
        for name in ("rounds", "draws", "patience", "ahead"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")

    @property
    def tau_own(self) -> float:
        """The bound on own-prediction biases."""
        return self.tau_explore or self.tau
