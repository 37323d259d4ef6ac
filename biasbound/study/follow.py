"""What a viewer hears of a unit, and the time that it takes over all attempts."""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from biasbound._io import read_json, write_json
from biasbound.study.folder import Unit
from biasbound.train.trainer import Report


@dataclass(frozen=True)
class Event:
    """Something that a viewer may show: a unit started, moved, ended or failed."""

    kind: str  # "start", "move", "done", "failed"
    unit: str
    done: int = 0
    total: int = 0
    note: str = ""


Tell = Callable[[Event], None]


@dataclass(frozen=True)
class Times:
    """spent.json: seconds of earlier attempts."""

    wall: float = 0.0
    cpu: float = 0.0


class Spent:
    """Wall and CPU seconds of a unit over all attempts at it; killed ones count up to their last note."""

    EVERY = 5.0

    def __init__(self, folder: Path) -> None:
        self.path = folder / "spent.json"
        before = read_json(self.path, Times, f"remove {self.path}") if self.path.exists() else Times()
        self.start = time.perf_counter() - before.wall, _cpu() - before.cpu
        self.last = time.perf_counter()

    def now(self) -> dict[str, float]:
        return {"wall": time.perf_counter() - self.start[0], "cpu": _cpu() - self.start[1]}

    def note(self) -> None:
        if time.perf_counter() - self.last > self.EVERY:
            self.last = time.perf_counter()
            write_json(self.path, self.now(), None)

    def facts(self) -> dict[str, float]:
        self.path.unlink(missing_ok=True)
        return {f"{k}_seconds": round(v, 3) for k, v in self.now().items()}


def _cpu() -> float:
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


class Follower:
    """A training's observer that tells a viewer and keeps the time spent."""

    def __init__(self, unit: Unit, tell: Tell, spent: Spent) -> None:
        self.unit, self.tell, self.spent = unit, tell, spent

    def start(self, update: int, total: int) -> None:
        self.tell(Event("move", self.unit.name, update, total))

    def report(self, report: Report) -> None:
        note = f"loss {report.loss:.3g}"
        if "valid_mse_norm" in report.metrics:
            note += f", valid MSE {report.metrics['valid_mse_norm']:.3g}"
        self.tell(Event("move", self.unit.name, report.update, report.total, note))
        self.spent.note()

    def stop(self) -> None:
        pass
