"""What is given and what is wanted: the one place that knows how a window of frames becomes pairs (x, y).

A task turns a window x^{k−h+1} … x^{k+1+u} of frames, with channels that only inform (Mach number, mask), into the
condition x of a network and its targets y¹, y², …, and says what follows from an answer. Losses, models, the trainer
and the rollout loop ask the task and know no order of channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from biasbound.core.noise import Condition, State
from biasbound.registry import home

__all__ = ["TASKS", "Forecast", "Planes", "Task", "Window"]

Window = Float[Tensor, "B W C *N"]
Planes = Float[Tensor, "B P *N"]


@runtime_checkable
class Task(Protocol):
    """A small frozen value; its fields are JSON values, under its name in `TASKS`.

    Fields called `grid` and `periodic` are those of the data: a study fills them in.
    """

    @property
    def advances(self) -> bool:
        """Whether an answer is the next frame, so that answers can follow one another; else every frame stands alone."""

    @property
    def baseline(self) -> str:
        """The model of `MODELS` that answers with the first guess: what a table compares all others with."""

    @property
    def past(self) -> int:
        """Frames that the first condition is made of."""

    def window(self, unroll: int = 0) -> int:
        """Frames of a window after its first one, for a loss with `unroll` targets beyond the first."""

    def given(self, frames: Window, planes: Planes) -> Condition:
        """x of the first target, from the frames that come before it (later ones are not looked at)."""

    def wanted(self, frames: Window) -> list[State]:
        """y¹, y², … of a whole window."""

    def guess(self, x: Condition, channels: int) -> State:
        """The first guess of y from x alone, which the residual target starts from."""

    def follow(self, x: Condition, y: State) -> Condition:
        """x of the next target, from the answer to this one."""

    def inputs(self, channels: int) -> int:
        """Channels of x that are made of the emulated state's `channels`."""


@dataclass(frozen=True)
class Forecast:
    """The next frame from the last `history` frames; x holds the newest frame first, then what only informs."""

    advances: ClassVar[bool] = True
    baseline: ClassVar[str] = "persistence"
    history: int = 1

    def __post_init__(self) -> None:
        if self.history < 1:
            raise ValueError(f"task.history counts the frames that are given: at least 1, not {self.history}")

    @property
    def past(self) -> int:
        return self.history

    def window(self, unroll: int = 0) -> int:
        return self.history + unroll

    def given(self, frames: Window, planes: Planes) -> Condition:
        past = [frames[:, j] for j in reversed(range(self.history))]
        parts = [*past, planes] if planes.shape[1] else past
        return torch.cat(parts, 1) if len(parts) > 1 else parts[0]

    def wanted(self, frames: Window) -> list[State]:
        return list(frames[:, self.history :].unbind(1))

    def guess(self, x: Condition, channels: int) -> State:
        return x[:, :channels]

    def follow(self, x: Condition, y: State) -> Condition:
        c = y.shape[1]
        kept = x[:, : c * (self.history - 1)], x[:, c * self.history :]
        parts = [y, *(part for part in kept if part.shape[1])]
        return torch.cat(parts, 1) if len(parts) > 1 else y

    def inputs(self, channels: int) -> int:
        return channels * self.history


# Values are classes, or texts `module:Class` of ours that are imported when first asked for.
TASKS: dict[str, Any] = home(
    "tasks",
    {
        "forecast": Forecast,
        "superresolve": "biasbound.models.tasks.superresolve:Superresolve",
        "reconstruct": "biasbound.models.tasks.reconstruct:Reconstruct",
    },
)
