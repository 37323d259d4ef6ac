"""What each unit of a study reads, as one value per stage; a unit's key is made of it, so nothing can be stale in silence.

A stage function gets its job and nothing else of the config. Fields that change how a unit is made, but not what it is,
are marked in their metadata and leave no trace in the key.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from biasbound.core.schedule import Schedule
from biasbound.models.method import Method
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


@dataclass(frozen=True)
class EvaluateJob:
    """Scores, by every metric that is registered."""

    dataset: str
    evaluate: config.EvaluateConfig
    metrics: tuple[str, ...]


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
        kept = [f.name for f in fields(value) if not f.metadata.get("manner")]
        return {name: identity(getattr(value, name)) for name in kept}
    if isinstance(value, Mapping):
        return {str(k): identity(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [identity(v) for v in value]
    return value


def digest(value: Any) -> str:
    """A short name for JSON values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:20]
