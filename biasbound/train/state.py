"""What a training is made of between two updates, as named tensors and JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Progress", "pack", "unpack"]

NUMBERS = {"bool": torch.bool, "int": torch.int64, "float": torch.float64}


@dataclass
class Progress:
    """What a checkpoint holds beside tensors."""

    update: int = 0
    ledger: int = 0  # training samples that were passed through the network, each pass of each sample
    lowest: float = math.inf  # lowest mean loss of an interval
    order: dict[str, int] = field(default_factory=dict)
    best: dict[str, float] = field(
        default_factory=dict
    )  # error and update of the weights that are kept beside the last
    extra: dict[str, Any] = field(default_factory=dict)  # the caller's own state, JSON values

    def to_json(self) -> dict[str, Any]:
        """JSON has no infinity: a run that has not reported yet has no lowest loss."""
        return asdict(self) | {"lowest": self.lowest if math.isfinite(self.lowest) else None}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Progress:
        return cls(**{**saved, "lowest": saved["lowest"] or math.inf})


def pack(model: nn.Module, average: nn.Module | None, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All tensors of a training: `model.…`, `ema.…`, `optimiser.<parameter>.<slot>`.

    Numbers and lists of an optimiser become tensors too (see `_named`), also the numbers of its
    groups, `optimiser.group<i>.<name>`: some optimisers count their updates there.
    """
    state = {f"model.{k}": v for k, v in model.state_dict().items()}
    if average is not None:
        state |= {f"ema.{k}": v for k, v in average.state_dict().items()}
    kept = optimiser.state_dict()
    for i, slots in kept["state"].items():
        for name, value in slots.items():
            state |= _named(f"optimiser.{i}.{name}", value)
    for i, group in enumerate(kept["param_groups"]):
        for name, value in group.items():
            if type(value) in (int, float):
                state |= _named(f"optimiser.group{i}.{name}", value)
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
    owners: dict[str, dict[str, Tensor]] = {}
    for name, value in parts["optimiser"].items():
        owner, _, slot = name.partition(".")
        owners.setdefault(owner, {})[slot] = value
    groups = optimiser.state_dict()["param_groups"]
    for i, group in enumerate(groups):
        group.update(_values(owners.pop(f"group{i}", {})))
    slots = {int(i): _values(named) for i, named in owners.items()}
    optimiser.load_state_dict({"state": slots, "param_groups": groups})


def _named(name: str, value: Any) -> dict[str, Tensor]:
    """A value as tensors: `name`, `name:int`, or `name[]` (how many), `name[0]`, `name[1]`, …"""
    if isinstance(value, Tensor):
        return {name: value}
    kind = type(value).__name__
    if kind in NUMBERS:
        return {f"{name}:{kind}": torch.tensor(value, dtype=NUMBERS[kind])}
    if value is None:
        return {f"{name}:none": torch.empty(0)}
    if kind == "list":
        found = {f"{name}[]": torch.tensor(len(value))}
        for i, item in enumerate(value):
            found |= _named(f"{name}[{i}]", item)
        return found
    raise ValueError(
        f"the optimiser keeps {name} as a {kind}, which a checkpoint cannot hold: "
        "use tensors, numbers, lists of them or None"
    )


def _values(named: Mapping[str, Tensor]) -> dict[str, Any]:
    """The inverse of `_named` for all slots of a parameter."""

    def value(name: str) -> Any:
        if name in named:
            return named[name]
        if f"{name}[]" in named:
            return [value(f"{name}[{i}]") for i in range(int(named[f"{name}[]"]))]
        kind = next((k for k in NUMBERS if f"{name}:{k}" in named), None)
        return None if kind is None else named[f"{name}:{kind}"].item()

    slots = dict.fromkeys(name.partition("[")[0].partition(":")[0] for name in named)
    return {slot: value(slot) for slot in slots}
