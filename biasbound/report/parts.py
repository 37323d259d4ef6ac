"""The parts of a study, and what each kind of file in a run folder holds.

The dataclasses are the schemas by which files are read: see `biasbound._io.read_json`. JSON has
neither infinity nor NaN; a null means one of the two, and the type of the field says which.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float
from pydantic import BeforeValidator

from biasbound._io import read_json
from biasbound.models.gradients import GradientRow

CURE = "run the stage that writes it again"
Infinite = Annotated[float, BeforeValidator(lambda v: math.inf if v is None else v)]
Unknown = Annotated[float, BeforeValidator(lambda v: math.nan if v is None else v)]
LogRow = dict[str, int | float | None]  # of log.jsonl: update, loss, lr and what was measured


def read(path: Path, kind: Any, default: Any = None) -> Any:
    """A file of a stage, or the default where there is none."""
    return read_json(path, kind, CURE) if path.exists() else default


@dataclass(frozen=True)
class Run:
    """run.json."""

    dataset: str = ""
    title: str = ""
    version: str = ""


@dataclass(frozen=True)
class Bounds:
    """What a search bounds, of the section `search` in the config of its stage.json."""

    statistic: str = "mean"
    tau_explore: float | None = None


@dataclass(frozen=True)
class StageConfig:
    """The config of a stage.json, as far as a report needs it."""

    search: Bounds | None = None


@dataclass(frozen=True)
class Stage:
    """stage.json: what a unit cost, and which code made it on which machine."""

    stage: str = ""
    unit: str = ""
    key: str | None = None
    seed: int | None = None
    updates: int | None = None
    ledger: int | None = None
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
    config: StageConfig = field(default_factory=StageConfig)


@dataclass(frozen=True)
class Level:
    """Errors and biases at one level, as in bias.json; NaN is what was not measured.

    A bias is a mean of ratios; `pooled` is its ratio of root mean squares, `q95` its 95th percentile over pairs.
    """

    sigma: float
    clean: Unknown = math.nan
    clean_stderr: Unknown = math.nan
    inference: Unknown = math.nan
    inference_stderr: Unknown = math.nan
    own: Unknown = math.nan
    own_stderr: Unknown = math.nan
    own_pooled: Unknown = math.nan
    own_q95: Unknown = math.nan
    two_step: Unknown = math.nan
    two_step_stderr: Unknown = math.nan
    two_step_pooled: Unknown = math.nan
    two_step_q95: Unknown = math.nan
    reb: Unknown = math.nan
    reb_stderr: Unknown = math.nan
    reb_pooled: Unknown = math.nan
    reb_q95: Unknown = math.nan

    def bias(self, kind: str, statistic: str) -> float:
        """Of `own`, `two_step` or `reb`: the number that a search bounds."""
        return float(getattr(self, kind if statistic == "mean" else f"{kind}_{statistic}"))


@dataclass(frozen=True)
class Moment:
    """A line of chain.jsonl: all levels after some updates of the training."""

    update: int
    rows: tuple[Level, ...]


@dataclass(frozen=True)
class RolloutFile:
    """rollout.json; those of earlier versions begin after one given frame."""

    dt: float
    first: int | None = None


@dataclass(frozen=True)
class Rollout:
    """Predictions (M, S, K, C, *N): members, test trajectories, K frames from number `first` of the data on."""

    prediction: Float[np.ndarray, "M S K C *N"]
    dt: float
    first: int | None = None


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
