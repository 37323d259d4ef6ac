"""What people see while a study runs: one bar per unit on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TimeRemainingColumn

from biasbound.study.follow import Event, Tell

QUIET = 10.0  # seconds between lines about one unit


@contextmanager
def watching(quiet: bool = False) -> Iterator[Tell]:
    """A viewer on stderr; a quiet one shows nothing."""
    if quiet:
        yield lambda event: None
    elif sys.stderr.isatty():
        with Progress(
            "{task.description}",
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            "{task.fields[note]}",
            TimeRemainingColumn(),
            console=Console(stderr=True),
            speed_estimate_period=60,
        ) as progress:
            yield _Bars(progress)
    else:
        yield _Lines()


class _Bars:
    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.tasks: dict[str, TaskID] = {}

    def __call__(self, event: Event) -> None:
        bars = self.progress
        if event.unit not in self.tasks:
            self.tasks[event.unit] = bars.add_task(event.unit, total=None, note="")
        task = self.tasks[event.unit]
        if event.kind == "move":
            bars.update(task, completed=event.done, total=event.total, note=event.note)
        elif event.kind != "start":
            bars.remove_task(self.tasks.pop(event.unit))
            mark = "[green]✓[/]" if event.kind == "done" else "[red]✗[/]"
            bars.console.print(mark, event.unit, event.note, style=None, highlight=False)


class _Lines:
    def __init__(self) -> None:
        self.last: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        if event.kind == "move" and now - self.last.get(event.unit, now - QUIET / 2) < QUIET:
            self.last.setdefault(event.unit, now)
            return
        self.last[event.unit] = now
        place = f" {event.done} of {event.total}" if event.kind == "move" else ""
        said = {"start": "begins", "move": "at", "done": "done", "failed": "FAILED"}[event.kind]
        note = f", {event.note}" if event.note else ""
        print(f"{event.unit}: {said}{place}{note}", file=sys.stderr, flush=True)
