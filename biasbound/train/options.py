"""How to train, as plain values: no torch here, so that a command line knows them at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["FitOptions", "TrainOptions", "learning_rate"]


@dataclass(frozen=True)
class TrainOptions:
    """How to train. Defaults suit the mini networks; the paper's are noted where they differ."""

    updates: int | None = None
    """budget in updates"""
    epochs: float | None = None
    """budget in passes over the data, instead of updates"""
    batch: int = 64
    """windows per update, over all processes"""
    accumulate: int = field(default=1, metadata={"manner": True})
    """parts that a batch is computed in, one after the other: less memory for the same update"""
    lr: float = 1e-3
    """learning rate; paper 1e-4"""
    lr_final: float = 0.0
    """learning rate at the end of a cosine; paper 1e-6"""
    warmup: int = 0
    """updates of linear warm-up"""
    optimiser: str = "adam"
    """soap, muon, adamw or adam (paper), or package.module:name"""
    weight_decay: float = 0.0
    """weight decay; all but adam keep it apart from the gradient"""
    clip: float | None = 1.0
    """largest norm of the gradient; paper none"""
    ema: float | None = 0.999
    """decay of the averaged weights; paper none"""
    keep: Literal["last", "best"] = "last"
    """weights that become the emulator: the last (paper), or those of least validation error among the evaluations; a
    grown ladder is fixed first, and a fine-tuning keeps its last"""
    log_every: int = 50
    """updates between two reports"""
    checkpoint_every: int = field(default=500, metadata={"manner": True})
    """updates between two checkpoints"""
    explode: float = 1e3
    """stop when the loss is this many times its lowest"""
    precision: Literal["float32", "bf16"] = "float32"
    """of the network while it trains; bf16 is for GPUs, and levels, noise and weights stay in float32"""
    recompute: bool = field(default=False, metadata={"manner": True})
    """compute activations again for the gradient instead of keeping them: less memory for a third more time"""
    compile: bool = field(default=False, metadata={"manner": True})
    """compile the network with torch.compile; left out where there is no C++ compiler"""
    shard: bool = field(default=False, metadata={"manner": True})
    """under torchrun: divide weights, gradients and optimiser state among the processes, for networks that do not fit"""

    def __post_init__(self) -> None:
        if (self.updates is None) == (self.epochs is None):
            raise ValueError("give the training budget either in updates or in epochs")
        for name in ("batch", "accumulate", "log_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.recompute and self.compile:
            raise ValueError("recompute is for networks that are not compiled: leave one of compile and recompute out")
        if (self.updates or self.epochs or 0) <= 0 or not self.lr > 0 or self.warmup < 0:
            raise ValueError("the budget and lr must be above 0, and warmup not below")
        if self.weight_decay < 0 or (self.clip is not None and not self.clip > 0):
            raise ValueError("weight_decay must not be below 0, and clip must be above 0 or none")
        if self.ema is not None and not 0 <= self.ema < 1:
            raise ValueError(f"ema is a decay in [0, 1), got {self.ema}")

    def total(self, items: int) -> int:
        """The budget in updates, for that many items of data."""
        return self.updates or max(1, round((self.epochs or 0) * (items // self.batch)))

    def afforded(self, samples: int, passes: float) -> int:
        """The updates that a budget of training samples pays for, each with so many passes; the last may go beyond it."""
        return max(1, round(samples / (self.batch * passes)))


@dataclass(frozen=True)
class FitOptions(TrainOptions):
    """The options of one training: with its seed."""

    seed: int = 0


def learning_rate(options: TrainOptions, update: int, total: int) -> float:
    """Linear warm-up, then a cosine from lr to lr_final; `update` counts from 0."""
    if update < options.warmup:
        return options.lr * (update + 1) / options.warmup
    progress = (update - options.warmup) / max(1, total - options.warmup)
    return options.lr_final + (options.lr - options.lr_final) * (1 + math.cos(math.pi * min(progress, 1))) / 2
