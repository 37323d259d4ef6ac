"""What each unit of a study reads, as one value per stage; a unit's key is made of it, so nothing can be stale in silence.

A stage function gets its job and nothing else of the config. Fields that change how a unit is made, but not what it is,
are marked in their metadata (`manner`) and leave no trace in the key. A field that was added after runs had been made is
marked `later`: at its default it leaves none either, so that these runs stay as they are.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any

from biasbound.core.schedule import Schedule
from biasbound.models.method import LATER, Method
from biasbound.study import config


@dataclass(frozen=True)
class DataJob:
    """The three splits; files of one's own are known by place, size and time of change."""

    data: config.DataConfig
    files: Mapping[str, Any]


@dataclass(frozen=True)
class Training:
    """What a search and a training from scratch have in common."""

    method: Method
    options: Mapping[str, Any]  # of its model, its schedule included where it is known before any search
    task: config.TaskConfig
    network: config.NetworkConfig
    train: config.TrainConfig


@dataclass(frozen=True)
class TrainJob(Training):
    """A training from scratch, or from what a search left."""

    warm_start: bool = False
    search: config.SearchConfig | None = None  # where the ladder grows inside the training
    budget: int | None = None  # training samples, each pass counted; None: the updates of `train`


@dataclass(frozen=True)
class SearchJob(Training):
    """Exploration and ladder, before the training."""

    search: config.SearchConfig


@dataclass(frozen=True)
class FinetuneJob:
    """Unrolled training of a trained model."""

    method: Method
    finetune: config.FinetuneConfig
    train: config.TrainConfig
    budget: int | None = None


@dataclass(frozen=True)
class RolloutJob:
    rollout: config.RolloutConfig
    sampled: Method | None = field(default=None, metadata=LATER)  # where the emulator is not sampled as it was trained


@dataclass(frozen=True)
class EvaluateJob:
    """Scores, by every metric that is registered."""

    dataset: str
    evaluate: config.EvaluateConfig
    metrics: tuple[str, ...]
    sampled: Method | None = field(default=None, kw_only=True, metadata=LATER)  # as of the rollout


@dataclass(frozen=True)
class UntrainedJob(EvaluateJob):
    """The same of a method that has nothing to train, rolled out on the way."""

    method: Method
    task: config.TaskConfig
    rollout: config.RolloutConfig


def identity(value: Any) -> Any:
    """JSON values of all that a result depends on."""
    if isinstance(value, Schedule):
        return list(value.sigma)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: identity(getattr(value, f.name)) for f in fields(value) if not _silent(f, value)}
    if isinstance(value, Mapping):
        return {str(k): identity(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [identity(v) for v in value]
    return value


def _silent(field: Field[Any], of: Any) -> bool:
    """Whether a field leaves no trace: one of manner, or one that keys do not know yet and that says nothing."""
    told = field.metadata
    return "manner" in told or ("later" in told and bool(getattr(of, field.name) == field.default))


def digest(value: Any) -> str:
    """A short name for JSON values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:20]
