"""The commands that work on a study: each takes a run folder up to its stage and says what to do next.

    biasbound run | search | train | finetune | rollout | evaluate | report  [RUN] [--preset P] [--section.field V]

What is done and unchanged is skipped. Changed settings that would throw finished work away are refused until --redo.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from biasbound.cli.show import dry_run
from biasbound.cli.streams import columns
from biasbound.cli.wish import STUDY_COMMANDS, Wish
from biasbound.metrics.rows import read_rows
from biasbound.report.tables import demo_table
from biasbound.study.checks import about
from biasbound.study.execute import Manner, collect, make_units
from biasbound.study.folder import RunDir, Unit, open_run, require_place, save_config
from biasbound.study.graph import study_units
from biasbound.study.plan import require_possible
from biasbound.study.view import watching


@dataclass
class Result:
    """What a command has to show at its end: for scripts, as JSON."""

    run: Path
    made: list[str] = field(default_factory=list)
    there: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    results: Path | None = None  # every number, as rows
    page: Path | None = None


def study(wish: Wish) -> int:
    """Do what one of `STUDY_COMMANDS` asks for; returns the exit code."""
    stage = STUDY_COMMANDS[wish.verb][0]
    units = study_units(wish.config, wish.methods, "evaluate" if stage == "report" else stage)
    manner = Manner(**wish.manner)  # refused before anything is made
    first = int(os.environ.get("RANK", "0")) == 0  # under torchrun the first process alone speaks and keeps the folder
    if first and wish.warning:
        print(f"warning: {wish.warning}", file=sys.stderr)
    require_possible(wish.config)
    require_place(wish.run)
    if wish.figures:
        from biasbound.report.figures import known_figures

        with about("--figure"):
            known_figures(wish.figures)
    if wish.dry:
        dry_run(wish.run, wish.config, units, manner)
        return 0
    if not first:
        outcome = make_units(RunDir(wish.run, wish.config), units, manner, lambda event: None)
        return 2 if outcome.failed else 0
    known = (wish.run / "run.json").exists()
    run = open_run(wish.run, wish.config)
    result = Result(run.path)
    with run.writing():
        if wish.verb == "report":
            if known:
                _stale(run, "a report makes none of them: give these settings to `run --redo`")
            _report(run, wish, result)
        else:
            if known:  # what is stale is refused, or thrown away when told to, its results too
                run.discard(_stale(run, None if wish.redo else "give --redo to make them again, or another folder"))
                collect(run, study_units(run.config))
                save_config(run)
            _make(run, wish, units, manner, result)
            if wish.verb == "run" and not result.failed:
                _report(run, wish, result)
    if wish.json:
        print(json.dumps(asdict(result), default=str))
    elif not wish.quiet:
        _next(wish, bool(result.failed))
    return 2 if result.failed else 0


def _stale(run: RunDir, cure: str | None) -> list[Unit]:
    """The units that these settings make stale; with a `cure` they are refused by name."""
    stale = [unit for unit in study_units(run.config) if run.state(unit) == "stale"]
    if stale and cure:
        names = ", ".join(unit.name for unit in stale)
        raise ValueError(f"these settings make {len(stale)} finished units of {run.path} stale ({names}): {cure}")
    return stale


def _make(run: RunDir, wish: Wish, units: Sequence[Unit], manner: Manner, result: Result) -> None:
    say = _sayer(wish)
    say(f"{run.path}: {len(units)} units of {wish.source}, methods {', '.join(wish.methods)}")
    waiting = [unit.name for unit in units if run.state(unit) != "done"]
    with watching(wish.quiet, waiting, manner.jobs) as tell:
        outcome = make_units(run, units, manner, tell)
    result.made, result.there, result.failed = outcome.made, outcome.there, outcome.failed
    say(f"{run.path}: {len(outcome.made)} units made, {len(outcome.there)} were there already")
    if any(unit.stage == "evaluate" for unit in units):
        result.results = collect(run, study_units(run.config))
        if result.results is not None:
            say(f"{result.results}: written")
            if not wish.json:
                print(demo_table(read_rows(result.results)).text(columns()))
    for name, problem in outcome.failed.items():
        print(f"biasbound: {name} failed: {problem}", file=sys.stderr)


def _sayer(wish: Wish) -> Callable[[str], None]:
    """Prints what a quiet command leaves out."""

    def say(text: str) -> None:
        if not wish.quiet:
            print(text, flush=True)

    return say


def _report(run: RunDir, wish: Wish, result: Result) -> None:
    """Tables, figures and the page of what is there; `run` makes them once, `report` whenever asked."""
    from biasbound.report.write import write_report

    units = study_units(run.config)
    done = tuple(u for u in units if u.stage == "evaluate" and run.state(u) == "done")
    unit = Unit("report", inputs=done)
    say, page = _sayer(wish), run.folder(unit) / "index.html"
    result.page = None if wish.figures else page
    if wish.verb == "run" and run.state(unit) == "done":
        say(f"{page}: is there already")
        return
    result.results = results = collect(run, units) if done else None
    started = time.process_time()
    written = write_report(run.path, run.folder(unit), figures=wish.figures or None, page=not wish.figures)
    for path in written:
        if path.suffix in (".html", ".md", ".tex") or wish.figures:
            say(f"{path}: written")
    if results is not None and wish.verb == "report" and not wish.figures and not wish.json:
        print(demo_table(read_rows(results)).text(columns()))
    if not wish.figures:
        run.finish(unit, {"cpu_seconds": round(time.process_time() - started, 3)})


def _next(wish: Wish, failed: bool) -> None:
    after = STUDY_COMMANDS[wish.verb][2]
    if failed:
        print(f"next: mend what failed, then give the same command again; it goes on in {wish.run}")
    elif after == "open":
        print(f"next: open {wish.run / '07-report' / 'index.html'}")
    else:
        print(f"next: biasbound {after} {wish.run}")


def compare(given: argparse.Namespace) -> None:
    """One table, common figures and one page of several runs."""
    from biasbound.report.write import write_comparison

    for path in write_comparison(given.folders, given.out):
        if path.suffix != ".pdf":  # each figure is there twice
            print(f"{path}: written")
    print(f"next: open {given.out / 'index.html'}")
