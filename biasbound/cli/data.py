"""`biasbound data …`: make, look at and convert trajectories.

A command that cannot do what was asked raises one sentence and leaves the disk as it was; `biasbound.cli` turns it
into exit code 2.
"""

import argparse
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from biasbound._io import cores
from biasbound.cli.reading import reading
from biasbound.data.describe import describe
from biasbound.data.formats import load, save
from biasbound.flows.flow import settings_of, source
from biasbound.flows.generate import generate
from biasbound.registry import allow


def _source(given: argparse.Namespace) -> Any:
    """The source that the options describe."""
    changes: dict[str, Any] = {}
    for text in given.set:
        name, sign, value = text.partition("=")
        if not sign:
            raise ValueError(f"--set takes NAME=VALUE, got {text!r}")
        changes[name] = _value(value)
    if given.trajectories is not None:
        changes["trajectories"] = given.trajectories
    allow([given.flow])
    return source(given.flow, given.size, given.split, given.seed, **settings_of(changes))


def _value(text: str) -> Any:
    """A JSON value, or else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def make(given: argparse.Namespace) -> None:
    """Generate a split of a flow, with a bar on a terminal."""
    source = _source(given)
    counted = ("{task.description}", BarColumn(), MofNCompleteColumn())
    timed = ("trajectories, elapsed", TimeElapsedColumn(), "remaining", TimeRemainingColumn())
    # Blocks may take minutes: estimate from the whole run, not from its last 30 seconds.
    bar = Progress(*counted, *timed, console=Console(stderr=True), speed_estimate_period=1e9)
    with bar if sys.stderr.isatty() else nullcontext():
        task = bar.add_task(given.flow, total=source.layout.trajectories)
        written = generate(
            source,
            given.out,
            jobs=cores() if given.jobs is None else given.jobs,
            dtype=given.dtype,
            overwrite=given.force,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    size = " × ".join(map(str, source.layout.shape))
    print(f"{given.out}: {size} {'written' if written else 'is there already'}")


def _load(path: Path, given: argparse.Namespace) -> Any:
    return load(path, reading(given), **({} if given.momentum is None else {"momentum": given.momentum}))


def info(given: argparse.Namespace) -> None:
    """Describe a file, and draw a trajectory of it if asked."""
    trajectories = _load(given.file, given)
    print(describe(trajectories))
    if given.plot is not None:
        from biasbound.report.pictures import draw, save_picture

        save_picture(draw(trajectories, given.trajectory), given.plot, given.force)
        print(f"{given.plot}: picture of trajectory {given.trajectory}")


def convert(given: argparse.Namespace) -> None:
    """Read in any format, write in another."""
    allow([given.format or ""])
    trajectories = _load(given.source, given)
    save(trajectories, given.target, format=given.format, overwrite=given.force)
    size = " × ".join(map(str, trajectories.shape))
    print(f"{given.target}: {size} written")
