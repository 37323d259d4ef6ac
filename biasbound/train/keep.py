"""Which weights of a training become the emulator: the last, or those of least validation error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from torch import Tensor

__all__ = ["ERROR", "Best"]

ERROR = "valid_mse_norm"  # what an evaluation calls the error that is compared


class Best:
    """The averaged weights with the lowest error so far; of equal ones the first.

    They are part of every checkpoint, so that a resumed training keeps the same ones.
    """

    def __init__(self) -> None:
        self.error, self.update = math.inf, 0
        self.weights: dict[str, Tensor] = {}
        self._made: tuple[int, Any] | None = None  # the model of an update

    def offer(self, model: Any, metrics: Mapping[str, float], update: int) -> None:
        """Take a model's weights if their error is the lowest; one that is not finite never is."""
        error = metrics.get(ERROR, math.nan)
        if error < self.error:
            self.error, self.update = error, update
            self.weights = {name: value.detach().clone() for name, value in model.state_dict().items()}

    def model(self, averaged: Any) -> Any:
        """A copy of the averaged model with these weights, always the same one; itself where nothing was offered."""
        if not self.weights:
            return averaged
        if self._made is None or self._made[0] != self.update:
            made = deepcopy(averaged)
            made.load_state_dict(self.weights)
            self._made = self.update, made
        return self._made[1]

    def pack(self) -> dict[str, Tensor]:
        """Its tensors, for a checkpoint."""
        return {f"best.{name}": value for name, value in self.weights.items()}

    def to_json(self) -> dict[str, float]:
        """Its numbers, for a checkpoint; empty where nothing was offered."""
        return {"error": self.error, "update": self.update} if self.weights else {}

    def restore(self, tensors: dict[str, Tensor], told: Mapping[str, float]) -> None:
        """From what `pack` and `to_json` gave; takes its tensors out of those of the checkpoint."""
        names = [name for name in tensors if name.startswith("best.")]
        self.weights = {name.removeprefix("best."): tensors.pop(name) for name in names}
        if self.weights:
            self.error, self.update = told["error"], int(told["update"])
