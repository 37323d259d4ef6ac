"""The commands that work on a study: each takes a run folder up to its stage and says what to do next.

    biasbound run | search | train | finetune | rollout | evaluate | report  [RUN] [--preset P] [--section.field V]

What is done and unchanged is skipped. Changed settings that would throw finished work away are refused until --redo.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence

from biasbound.cli.show import dry_run
from biasbound.cli.wish import STUDY_COMMANDS, Wish
from biasbound.metrics.rows import read_rows
from biasbound.report.tables import demo_table, table1
from biasbound.study.execute import Manner, collect, make_units
from biasbound.study.folder import RunDir, Unit, open_run, save_config
from biasbound.study.graph import study_units
from biasbound.study.plan import require_possible
from biasbound.study.view import watching


def study(wish: Wish) -> int:
    """Do what one of `STUDY_COMMANDS` asks for; returns the exit code."""
    stage = STUDY_COMMANDS[wish.verb][0]
    units = study_units(wish.config, wish.methods, "evaluate" if stage == "report" else stage)
    manner = Manner(**wish.manner)  # refused before anything is made
    first = int(os.environ.get("RANK", "0")) == 0  # under torchrun the first process alone speaks and keeps the folder
    if first and wish.warning:
        print(f"warning: {wish.warning}", file=sys.stderr)
    require_possible(wish.config)
    if wish.dry:
        dry_run(wish.run, wish.config, units, manner)
        return 0
    if not first:
        outcome = make_units(RunDir(wish.run, wish.config), units, manner, lambda event: None)
        return 2 if outcome.failed else 0
    known = (wish.run / "run.json").exists()
    run = open_run(wish.run, wish.config)
    code = 0
    with run.writing():
        if wish.verb == "report":
            if known:
                _stale(run, "a report makes none of them: give these settings to `run --redo`")
            _report(run, wish)
        else:
            if known:  # what is stale is refused, or thrown away when told to, its results too
                run.discard(_stale(run, None if wish.redo else "give --redo to make them again, or another folder"))
                collect(run, study_units(run.config))
                save_config(run)
            code = _make(run, wish, units, manner)
            if wish.verb == "run" and code == 0:
                _report(run, wish)
    _next(wish, code)
    return code


def _stale(run: RunDir, cure: str | None) -> list[Unit]:
    """The units that these settings make stale; with a `cure` they are refused by name."""
    stale = [unit for unit in study_units(run.config) if run.state(unit) == "stale"]
    if stale and cure:
        names = ", ".join(unit.name for unit in stale)
        raise ValueError(f"these settings make {len(stale)} finished units of {run.path} stale ({names}): {cure}")
    return stale


def _make(run: RunDir, wish: Wish, units: Sequence[Unit], manner: Manner) -> int:
    print(f"{run.path}: {len(units)} units of {wish.source}, methods {', '.join(wish.methods)}", flush=True)
    with watching() as tell:
        outcome = make_units(run, units, manner, tell)
    print(f"{run.path}: {len(outcome.made)} units made, {len(outcome.there)} were there already")
    if any(unit.stage == "evaluate" for unit in units):
        path = collect(run, study_units(run.config))
        if path is not None:
            print(f"{path}: written")
            print(demo_table(read_rows(path)).text())
    for name, problem in outcome.failed.items():
        print(f"biasbound: {name} failed: {problem}", file=sys.stderr)
    return 2 if outcome.failed else 0


def _report(run: RunDir, wish: Wish) -> None:
    """Tables, figures and the page of what is there; `run` makes them once, `report` whenever asked."""
    from biasbound.report.write import write_report

    units = study_units(run.config)
    done = tuple(u for u in units if u.stage == "evaluate" and run.state(u) == "done")
    unit = Unit("report", inputs=done)
    if wish.verb == "run" and run.state(unit) == "done":
        print(f"{run.folder(unit) / 'index.html'}: is there already")
        return
    results = collect(run, units) if done else None
    started = time.process_time()
    written = write_report(run.path, run.folder(unit), figures=wish.figures or None, page=not wish.figures)
    for path in written:
        if path.suffix in (".html", ".md", ".tex") or wish.figures:
            print(f"{path}: written")
    if results is not None and wish.verb == "report" and not wish.figures:
        print(table1(read_rows(results)).text())
    if not wish.figures:
        run.finish(unit, {"cpu_seconds": round(time.process_time() - started, 3)})


def _next(wish: Wish, code: int) -> None:
    after = STUDY_COMMANDS[wish.verb][2]
    if code:
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
