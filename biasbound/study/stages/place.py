"""What a stage function is given beside its job: where to write, what to read, and who follows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from biasbound.flows.generate import Spread
from biasbound.study.stages.material import Material
from biasbound.train.observers import JsonlLog, TensorBoard
from biasbound.train.trainer import Observer

Progress = Callable[[str, int, int], None]  # what, how many are done, of how many


def silent(what: str, done: int, total: int) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Place:
    """One unit at work."""

    folder: Path
    label: str = ""
    seed: int = 0
    inputs: Mapping[str, Path] = field(default_factory=dict)  # folders of what it reads, by stage
    observers: Sequence[Observer] = ()
    jobs: int = 1
    spread: Spread | None = None  # computes blocks of data elsewhere
    progress: Progress = silent
    cost: Mapping[str, Any] = field(default_factory=dict)  # of an emulator, as `About` names it
    shared: Material | None = None

    @property
    def material(self) -> Material:
        assert self.shared is not None
        return self.shared

    def followers(self, tensorboard: bool) -> list[Observer]:
        """Those of a training: its log, and whoever else listens."""
        logs: list[Observer] = [JsonlLog(self.folder / "log.jsonl")]
        return [*logs, *([TensorBoard(self.folder / "tensorboard")] if tensorboard else []), *self.observers]

    def emulator(self) -> Path:
        """The emulator that a rollout or an evaluation is of."""
        stage = "finetune" if "finetune" in self.inputs else "train"
        return self.inputs[stage] / "emulator"
