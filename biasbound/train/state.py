"""What a training is made of between two updates, as named tensors and JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Progress", "pack", "unpack"]


@dataclass
class Progress:
    """What a checkpoint holds beside tensors."""

    update: int = 0
    lowest: float = math.inf  # lowest mean loss of an interval
    order: dict[str, int] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)  # the caller's own state, JSON values

    def to_json(self) -> dict[str, Any]:
        """JSON has no infinity: a run that has not reported yet has no lowest loss."""
        return asdict(self) | {"lowest": self.lowest if math.isfinite(self.lowest) else None}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Progress:
        return cls(**{**saved, "lowest": saved["lowest"] or math.inf})


def pack(model: nn.Module, average: nn.Module | None, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All tensors of a training: `model.…`, `ema.…` and `optimiser.<parameter>.<slot>`."""
    state = {f"model.{k}": v for k, v in model.state_dict().items()}
    if average is not None:
        state |= {f"ema.{k}": v for k, v in average.state_dict().items()}
    for i, slots in optimiser.state_dict()["state"].items():
        state |= {f"optimiser.{i}.{name}": value for name, value in slots.items()}
    return state


def unpack(
    tensors: Mapping[str, Tensor], model: nn.Module, average: nn.Module | None, optimiser: torch.optim.Optimizer
) -> None:
    """Put back what `pack` gave; a RuntimeError says that the model is another."""
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "ema": {}, "optimiser": {}}
    for name, value in tensors.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = value
    model.load_state_dict(parts["model"])
    if average is not None:
        average.load_state_dict(parts["ema"])
    slots: dict[int, dict[str, Tensor]] = {}
    for name, value in parts["optimiser"].items():
        i, _, slot = name.partition(".")
        slots.setdefault(int(i), {})[slot] = value
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": slots, "param_groups": groups})
