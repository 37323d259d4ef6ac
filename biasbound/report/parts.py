"""The parts of a study, and what each kind of file in a run folder holds.

The dataclasses are the schemas by which files are read: see `biasbound._io.read_json`. JSON has
neither infinity nor NaN; a null means one of the two, and the type of the field says which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float
from pydantic import BeforeValidator, Field

from biasbound.core.schedule import Schedule
from biasbound.models.gradients import GradientRow

__all__ = [
    "Exploration",
    "Landscape",
    "LandscapeFile",
    "Level",
    "LogRow",
    "Model",
    "Moment",
    "Point",
    "Rollout",
    "RolloutFile",
    "Run",
    "Search",
    "Stage",
]

Infinite = Annotated[float, BeforeValidator(lambda v: math.inf if v is None else v)]
Unknown = Annotated[float, BeforeValidator(lambda v: math.nan if v is None else v)]
LogRow = dict[str, int | float | None]  # of log.jsonl: update, loss, lr and what was measured


@dataclass(frozen=True)
class Run:
    """run.json."""

    dataset: str = ""
    title: str = ""
    version: str = ""


@dataclass(frozen=True)
class Stage:
    """stage.json: what a unit cost, and which code made it on which machine."""

    stage: str = ""
    unit: str = ""
    key: str | None = None
    seed: int | None = None
    updates: int | None = None
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    version: str | None = None
    commit: str | None = None
    dirty: bool | None = None
    python: str | None = None
    torch: str | None = None
    machine: str | None = None
    cores: int | None = None
    threads: int | None = None


@dataclass(frozen=True)
class Point:
    """A level that was measured in a round of the exploration."""

    round: int
    sigma: float
    own: Infinite  # own-prediction bias
    clean: Infinite  # clean-input error
    update: int | None = None


@dataclass(frozen=True)
class Exploration:
    """exploration.json: the grid of levels, what was measured on it, and which levels are solved."""

    levels: tuple[float, ...] = ()
    tau: float | None = None
    solved: dict[float, Any] = field(default_factory=dict)
    points: tuple[Point, ...] = ()


@dataclass(frozen=True)
class Measured:
    """The clean-input error of a level."""

    sigma: float
    mean: Infinite
    stderr: Infinite


@dataclass(frozen=True)
class Jump:
    """The two-step bias of a jump from a level down to another."""

    to: float
    start: Annotated[float, Field(alias="from")]
    mean: Infinite
    stderr: Infinite


@dataclass(frozen=True)
class LandscapeFile:
    """landscape.json."""

    tau: float
    start: str
    start_sigma: float
    levels: tuple[float, ...]
    clean: tuple[Measured, ...]
    biases: tuple[Jump, ...]


@dataclass(frozen=True)
class Landscape:
    """What Algorithm 2 saw: solved levels from low to high, their clean-input errors, and the
    two-step bias of every jump."""

    tau: float
    start: str
    start_sigma: float
    levels: tuple[float, ...]
    clean: Mapping[float, tuple[float, float]]  # σ → (mean, standard error)
    biases: Mapping[tuple[float, float], tuple[float, float]]  # (σ_to, σ_from) → the same

    def bias(self, to: float, start: float) -> float:
        """𝓑^(2S)(σ_to, σ_from)."""
        return self.biases[to, start][0]


@dataclass(frozen=True)
class Search:
    """One schedule search: 02-search/<label>/seed-<s>."""

    label: str
    seed: int
    schedule: Schedule | None = None
    landscape: Landscape | None = None
    exploration: Exploration = field(default_factory=Exploration)
    dataset: str = ""  # set where a study holds several runs


@dataclass(frozen=True)
class Level:
    """Errors and biases at one level of a chain, as in bias.json; NaN is what was not measured."""

    sigma: float
    clean: Unknown = math.nan
    clean_stderr: Unknown = math.nan
    inference: Unknown = math.nan
    inference_stderr: Unknown = math.nan
    own: Unknown = math.nan
    own_stderr: Unknown = math.nan
    two_step: Unknown = math.nan
    two_step_stderr: Unknown = math.nan
    reb: Unknown = math.nan
    reb_stderr: Unknown = math.nan


@dataclass(frozen=True)
class Moment:
    """A line of chain.jsonl: all levels after some updates of the training."""

    update: int
    rows: tuple[Level, ...]


@dataclass(frozen=True)
class RolloutFile:
    """rollout.json."""

    dt: float


@dataclass(frozen=True)
class Rollout:
    """Predictions (M, S, K, C, *N): members, test trajectories, frames 1 … K."""

    prediction: Float[np.ndarray, "M S K C *N"]
    dt: float


@dataclass(frozen=True)
class Model:
    """One trained method: what its training, rollout and evaluation left behind."""

    label: str
    seed: int
    log: tuple[LogRow, ...] = ()
    chain: tuple[Moment, ...] = ()
    bias: tuple[Level, ...] = ()  # low → high, on test pairs
    gradients: tuple[GradientRow, ...] = ()
    rollout: Rollout | None = None
    dataset: str = ""  # set where a study holds several runs
