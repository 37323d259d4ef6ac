"""How to search and how to train, as plain values: no torch here, so that a command line knows them at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["FitOptions", "SearchOptions", "TrainOptions", "learning_rate", "start_rule"]


@dataclass(frozen=True)
class TrainOptions:
    """How to train. Defaults suit the mini networks; the paper's are noted where they differ."""

    updates: int | None = None
    """budget in updates, or"""
    epochs: float | None = None
    """in passes over the data"""
    batch: int = 64
    """over all processes"""
    lr: float = 1e-3
    """paper 1e-4"""
    lr_final: float = 0.0
    """paper 1e-6, at the end of a cosine"""
    warmup: int = 0
    """updates of linear warm-up"""
    optimiser: Literal["adam", "adamw"] = "adam"
    weight_decay: float = 0.0
    clip: float | None = 1.0
    """norm of the gradient; paper none"""
    ema: float | None = 0.999
    """decay of the averaged weights; paper none"""
    log_every: int = 50
    checkpoint_every: int = 500
    explode: float = 1e3
    """stop when the loss is this many times its lowest"""
    precision: Literal["float32", "bf16"] = "float32"
    compile: bool = False

    def __post_init__(self) -> None:
        if (self.updates is None) == (self.epochs is None):
            raise ValueError("give the training budget either in updates or in epochs")
        for name in ("batch", "log_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if (self.updates or self.epochs or 0) <= 0 or not self.lr > 0 or self.warmup < 0:
            raise ValueError("the budget and lr must be above 0, and warmup not below")
        if self.ema is not None and not 0 <= self.ema < 1:
            raise ValueError(f"ema is a decay in [0, 1), got {self.ema}")

    def total(self, items: int) -> int:
        """The budget in updates, for that many items of data."""
        return self.updates or max(1, round((self.epochs or 0) * (items // self.batch)))


@dataclass(frozen=True)
class FitOptions(TrainOptions):
    """The options of one training: with its seed."""

    seed: int = 0


def learning_rate(options: TrainOptions, update: int, total: int) -> float:
    """Linear warm-up, then a cosine from lr to lr_final; `update` counts from 0."""
    if update < options.warmup:
        return options.lr * (update + 1) / options.warmup
    progress = (update - options.warmup) / max(1, total - options.warmup)
    return (
        options.lr_final
        + (options.lr - options.lr_final) * (1 + math.cos(math.pi * min(progress, 1))) / 2
    )


@dataclass(frozen=True)
class SearchOptions:
    """How to search. τ is the paper's; the exploration may be stricter, to leave room for the jumps."""

    tau: float = 1.05
    tau_explore: float | None = None
    """default: tau"""
    levels: int = 24
    """of the exploration grid"""
    sigma_min: float = 1e-3
    sigma_max: float = 10**-1e-4
    over: Literal["ratio", "sigma"] = (
        "ratio"  # the grid is uniform in log(σ/√ᾱ), or in log σ as in the paper
    )
    solved: Literal["leave", "stay"] = "leave"
    """solved levels leave the training (paper), or stay, and the last network is measured"""
    ahead: int | None = None
    """levels below the lowest solved one that are trained; by default all, also where nothing can be learned yet"""
    rounds: int = 10
    """measurements during the exploration"""
    patience: int | None = None
    """rounds without a newly solved level before it stops"""
    draws: int = 2
    """noise draws a bias"""
    start: Literal["auto", "sigma", "error"] = "auto"
    """σ_0: lowest solved level, or that of least error; auto: the latter for x₀-prediction alone"""
    seed: int = 0
    """of the noise in the measurements"""

    def __post_init__(self) -> None:
        for name in ("tau", "tau_explore"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 1):
                raise ValueError(
                    f"{name} bounds a bias, which is 1 at best: give at least 1, got {value}"
                )
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


def start_rule(start: Literal["auto", "sigma", "error"], x0: bool) -> Literal["sigma", "error"]:
    """What "auto" means: x₀-prediction is stable at every level, so that the lowest says nothing."""
    if start == "auto":
        return "error" if x0 else "sigma"
    return start
