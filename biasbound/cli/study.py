"""The commands that work on a study: each takes a run folder up to its stage and says what to do next.

    biasbound run | search | train | finetune | rollout | evaluate | report  [RUN] [--preset P] [--section.field V]

What is done and unchanged is skipped. Changed settings that would throw finished work away are refused until --redo.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from biasbound.cli.show import dry_run, rescored
from biasbound.cli.wish import STUDY_COMMANDS, Wish, wish_of
from biasbound.study.parsing import to_yaml


def study(verb: str, argv: Sequence[str]) -> int:
    """Run one of `STUDY_COMMANDS`; returns the exit code."""
    if verb == "evaluate" and argv and _is_record(Path(argv[0])):
        return rescored(Path(argv[0]), argv[1:])
    wish = wish_of(verb, list(argv))
    if wish.shown:
        print(to_yaml(wish.config), end="")
        return 0
    from biasbound.study.execute import Manner
    from biasbound.study.folder import open_run, save_config

    units = _units(wish)
    if wish.dry:
        dry_run(wish.run, wish.config, units)
        return 0
    manner = Manner(**wish.manner)  # refused before anything is made
    if int(os.environ.get("RANK", "0")) > 0:  # under torchrun the first process alone keeps the folder
        return _help(wish, units, manner)
    known = (wish.run / "run.json").exists()
    run = open_run(wish.run, wish.config)
    code = 0
    with run.writing():
        if verb == "report":
            if known:
                _stale(run, "a report makes none of them: give these settings to `run --redo`")
            _report(run, wish)
        else:
            if known:
                _settle(run, wish)
                save_config(run)
            code = _make(run, wish, units, manner)
            if verb == "run" and code == 0:
                _report(run, wish)
    _next(wish, code)
    return code


def _is_record(folder: Path) -> bool:
    """Whether a folder holds kept emulators with their rows, and is no run."""
    kept = all((folder / name).exists() for name in ("config.yaml", "results.jsonl"))
    return kept and not (folder / "run.json").exists()


def _help(wish: Wish, units: Sequence[Any], manner: Any) -> int:
    """Take part in the trainings of another process."""
    from biasbound.study.execute import make_units
    from biasbound.study.folder import RunDir

    run = RunDir(wish.run, wish.config)
    outcome = make_units(run, units, manner, lambda event: None)
    return 2 if outcome.failed else 0


def _units(wish: Wish) -> list[Any]:
    from biasbound.study.graph import study_units

    stage = STUDY_COMMANDS[wish.verb][0]
    return study_units(wish.config, wish.methods, "evaluate" if stage == "report" else stage)


def _stale(run: Any, cure: str | None) -> list[Any]:
    """The units that these settings make stale; with a `cure` they are refused by name."""
    from biasbound.study.graph import study_units

    stale = [unit for unit in study_units(run.config) if run.state(unit) == "stale"]
    if stale and cure:
        names = ", ".join(unit.name for unit in stale)
        raise ValueError(f"these settings make {len(stale)} finished units of {run.path} stale ({names}): {cure}")
    return stale


def _settle(run: Any, wish: Wish) -> None:
    """Refuse settings that make finished work stale, or throw it away when told to, its results too."""
    from biasbound.study.execute import collect
    from biasbound.study.graph import study_units

    cure = None if wish.redo else "give --redo to make them again, or another folder"
    run.discard(_stale(run, cure))
    collect(run, study_units(run.config))


def _make(run: Any, wish: Wish, units: Sequence[Any], manner: Any) -> int:
    from biasbound.study.execute import collect, make_units
    from biasbound.study.graph import study_units
    from biasbound.study.view import watching

    print(f"{run.path}: {len(units)} units of {wish.source}, methods {', '.join(wish.methods)}", flush=True)
    with watching() as tell:
        outcome = make_units(run, units, manner, tell)
    print(f"{run.path}: {len(outcome.made)} units made, {len(outcome.there)} were there already")
    if any(unit.stage == "evaluate" for unit in units):
        path = collect(run, study_units(run.config))
        if path is not None:
            print(f"{path}: written")
            _table(path)
    for name, problem in outcome.failed.items():
        print(f"biasbound: {name} failed: {problem}", file=sys.stderr)
    return 2 if outcome.failed else 0


def _table(path: Path) -> None:
    from biasbound.metrics.rows import read_rows
    from biasbound.report.tables import demo_table

    print(demo_table(read_rows(path)).text())


def _report(run: Any, wish: Wish) -> None:
    """Tables, figures and the page of what is there; `run` makes them once, `report` whenever asked."""
    import time

    from biasbound.metrics.rows import read_rows
    from biasbound.report.tables import table1
    from biasbound.report.write import write_report
    from biasbound.study.execute import collect
    from biasbound.study.folder import Unit
    from biasbound.study.graph import study_units

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


def compare(paths: Sequence[Path], out: Path) -> None:
    """One table, common figures and one page of several runs."""
    from biasbound.report.write import write_comparison

    for path in write_comparison(list(paths), out):
        if path.suffix != ".pdf":  # each figure is there twice
            print(f"{path}: written")
    print(f"next: open {out / 'index.html'}")
