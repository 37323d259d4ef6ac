"""What people see while a study runs: one bar per unit on a terminal, a line now and then elsewhere.

Both tell the time left, of a unit and in all, and end every stage with one line.
"""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID

from biasbound.study.clock import Clock, spoken, stage_of
from biasbound.study.follow import Event, Tell

QUIET = 10.0  # seconds between lines about one unit


@contextmanager
def watching(quiet: bool = False, units: Iterable[str] = (), jobs: int = 1) -> Iterator[Tell]:
    """A viewer on stderr of these units, as many at a time as there are jobs; a quiet one shows nothing."""
    clock = Clock(units, jobs)
    if quiet:
        yield lambda event: None
    elif sys.stderr.isatty():
        with Progress(
            "{task.description}",
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            "{task.fields[note]}",
            console=Console(stderr=True),
        ) as progress:
            yield _Bars(progress, clock)
    else:
        yield _Lines(clock)


class _Bars:
    """A bar per running unit, and one for all of them where their number is known."""

    def __init__(self, progress: Progress, clock: Clock) -> None:
        self.progress, self.clock = progress, clock
        self.tasks: dict[str, TaskID] = {}
        self.whole = progress.add_task("all units", total=clock.count, note="") if clock.count else None

    def __call__(self, event: Event) -> None:
        bars, clock = self.progress, self.clock
        clock.hear(event)
        if event.unit not in self.tasks:
            self.tasks[event.unit] = bars.add_task(escape(event.unit), total=None, note="")
        task = self.tasks[event.unit]
        if event.kind == "move":
            note = _joined(event.note, _left(clock.left(event.unit)))
            bars.update(task, completed=event.done, total=event.total, note=escape(note))
        elif event.kind != "start":
            bars.remove_task(self.tasks.pop(event.unit))
            mark = "[green]✓[/]" if event.kind == "done" else "[red]✗[/]"
            bars.console.print(mark, escape(event.unit), escape(event.note), style=None, highlight=False)
            if line := clock.finished(stage_of(event.unit)):
                bars.console.print(escape(line), style="bold", highlight=False)
        if self.whole is not None:
            bars.update(self.whole, completed=sum(clock.ended.values()), note=_left(clock.all_left()))


class _Lines:
    """A line when a unit begins and ends, and now and then between."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.last: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        now, clock = time.monotonic(), self.clock
        clock.hear(event)
        if event.kind == "move" and now - self.last.get(event.unit, now - QUIET / 2) < QUIET:
            self.last.setdefault(event.unit, now)
            return
        self.last[event.unit] = now
        place = f" {event.done} of {event.total}" if event.kind == "move" else ""
        if event.kind == "start" and clock.count:
            place = f", unit {clock.number()} of {clock.count}"
        said = {"start": "begins", "move": "at", "done": "done", "failed": "FAILED"}[event.kind]
        left = (_left(clock.left(event.unit)), _left(clock.all_left(), " in all")) if event.kind == "move" else ()
        print(_joined(f"{event.unit}: {said}{place}", event.note, *left), file=sys.stderr, flush=True)
        if event.kind in ("done", "failed") and (line := clock.finished(stage_of(event.unit))):
            print(line, file=sys.stderr, flush=True)


def _left(seconds: float | None, of: str = "") -> str:
    return "" if seconds is None else f"{spoken(seconds)} left{of}"


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
