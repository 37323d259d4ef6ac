"""How long the rest of a study takes, from what its units have taken so far."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from biasbound.study.follow import Event

__all__ = ["Clock", "spoken", "stage_of"]

Now = Callable[[], float]


def stage_of(unit: str) -> str:
    """03-train of 03-train/direct/seed-0."""
    return unit.partition("/")[0]


@dataclass
class _Running:
    """A unit at work: when it began, and where it stood when its progress was first heard of."""

    began: float
    first: tuple[float, int] | None = None
    done: int = 0
    total: int = 0


class Clock:
    """Hears events, and knows the seconds left of a unit and of all `units`, as far as they can be told."""

    def __init__(self, units: Iterable[str] = (), jobs: int = 1, now: Now = time.monotonic) -> None:
        self.now, self.jobs = now, jobs
        self.waiting = list(units)
        self.count = len(self.waiting)
        self.per_stage = Counter(map(stage_of, self.waiting))
        self.running: dict[str, _Running] = {}
        self.taken: dict[str, list[float]] = {}  # seconds of finished units, per stage
        self.ended: Counter[str] = Counter()

    def hear(self, event: Event) -> None:
        now = self.now()
        if event.unit in self.waiting:
            self.waiting.remove(event.unit)
        if event.kind in ("done", "failed"):
            gone = self.running.pop(event.unit, None)
            if gone is not None and event.kind == "done":
                self.taken.setdefault(stage_of(event.unit), []).append(now - gone.began)
            self.ended[stage_of(event.unit)] += 1
            return
        here = self.running.setdefault(event.unit, _Running(now))
        if event.kind == "move":
            if here.first is None or event.done < here.first[1]:
                here.first = now, event.done  # one that goes on from a checkpoint does not begin at 0
            here.done, here.total = event.done, event.total

    def left(self, unit: str) -> float | None:
        """Seconds that a running unit needs at its own pace; None while that is unknown."""
        here = self.running.get(unit)
        if here is None or here.first is None or here.done <= here.first[1]:
            return None
        return (self.now() - here.first[0]) / (here.done - here.first[1]) * (here.total - here.done)

    def all_left(self) -> float | None:
        """Seconds for everything that was planned; None while a stage is ahead of which nothing is known."""
        known = {stage: sum(seconds) / len(seconds) for stage, seconds in self.taken.items()}
        for unit, here in self.running.items():
            rest = self.left(unit)
            if rest is not None:
                known.setdefault(stage_of(unit), self.now() - here.began + rest)
        parts = [known.get(stage_of(unit)) for unit in self.waiting] + [self.left(unit) for unit in self.running]
        if not parts or None in parts:
            return None
        return sum(part for part in parts if part is not None) / min(self.jobs, len(parts))

    def number(self) -> int:
        """How many units have begun."""
        return self.count - len(self.waiting)

    def finished(self, stage: str) -> str | None:
        """One line on a stage, once its last planned unit has ended."""
        count = self.per_stage[stage]
        if not count or self.ended[stage] != count:
            return None
        seconds = self.taken.get(stage, [])
        lost = f", {count - len(seconds)} failed" if len(seconds) < count else ""
        return f"{stage}: {count} unit{'s' * (count > 1)}{lost}, {spoken(sum(seconds, 0.0))}"


def spoken(seconds: float) -> str:
    """As people say it: 40 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
