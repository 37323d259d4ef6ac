"""What a user asks of a fit, and what is chosen for it: plain values that the folder of a fit keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Prefer = Literal["accuracy", "rollout", "ensemble"]
MINUTES = 10.0


@dataclass(frozen=True)
class Request:
    """How long, and for what."""

    minutes: float | None = None
    """time allowed, from reading the file to the report; by default ten minutes"""
    updates: int | None = None
    """updates of each training, instead of a time"""
    prefer: Prefer = "accuracy"
    """what the better model is better at, on validation data: the error of one step (accuracy), the error after ten
    (rollout), or the CRPS of ten steps with eight members (ensemble)"""
    network: str = "unet"
    """a registered network, or package.module:name"""
    history: int = 1
    """frames that are given"""
    seed: int = 0
    """seed of weights, batches and noise"""

    def __post_init__(self) -> None:
        if self.minutes is not None and self.updates is not None:
            raise ValueError("give the time of a fit by --minutes or its --updates, not both")
        if self.minutes is not None and not self.minutes > 0:
            raise ValueError(f"--minutes must be above 0, got {self.minutes:g}")
        for name in ("updates", "history"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1, got {getattr(self, name)}")

    @property
    def seconds(self) -> float | None:
        """The time allowed; None where updates are given."""
        return None if self.updates is not None else 60 * (self.minutes or MINUTES)


@dataclass(frozen=True)
class Trial:
    """A short training of a direct model, and its root mean square errors over one step, persistence being 1."""

    what: str
    residual: bool
    lr: float
    symmetries: tuple[str, ...]
    network: Mapping[str, Any]
    updates: int
    train: float
    valid: float

    @property
    def parted(self) -> float:
        """How many times the error on validation data is that on training data."""
        return self.valid / max(self.train, 1e-12)


@dataclass(frozen=True)
class Choice:
    """What the trials decided, kept in fit.json: the same command goes on from it."""

    residual: bool
    network: Mapping[str, Any]
    lr: float
    batch: int
    updates: int
    symmetries: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("direct", "diffusion")  # what the network can be part of
    seconds_per_update: float = 0.0
    trials: tuple[Trial, ...] = ()
    words: tuple[str, ...] = field(default_factory=tuple)  # why, for people
