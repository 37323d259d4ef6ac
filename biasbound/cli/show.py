"""What a study will cost, where it stands, and whether a record holds."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from biasbound._io import cores, read_lines
from biasbound.cli.kinds import count
from biasbound.cli.streams import columns
from biasbound.registry import allow
from biasbound.report.tables import table1
from biasbound.study.config import Config
from biasbound.study.execute import Manner
from biasbound.study.folder import RunDir, open_run
from biasbound.study.graph import study_units
from biasbound.study.memory import rollout_bytes
from biasbound.study.parsing import ConfigParser
from biasbound.study.plan import human, layout_of, plan
from biasbound.study.preview import seconds, splits_of, told
from biasbound.study.rescore import read_record, rescore, workplace
from biasbound.train.observers import LogLine


def dry_run(path: Path, config: Config, units: Sequence[Any], manner: Manner) -> None:
    """Data, stages, parameters, updates, operations, memory and time; nothing is written."""
    splits = None
    if config.data.train is not None:
        splits = splits_of(config.data)
        print("\n".join(told(splits)))
    run = RunDir(path, config)
    planned = {p.unit.name: p for p in plan(config, units)}
    rolled = rollout_bytes(config, units, layout_of(config, "test"))
    print(f"{path}: {len(units)} units")
    print(f"{'unit':<44} {'state':<7} {'parameters':>11} {'updates':>10} {'operations':>12} {'memory':>9}")
    for unit in units:
        cost = ""
        if p := planned.get(unit.name):
            cost = f" {p.parameters:>11,} {p.updates:>10,} {human(p.flops):>9} FLOP {human(float(p.bytes)):>7}B"
        elif unit.name in rolled:
            cost = f"{'':39}{human(float(rolled[unit.name])):>7}B"
        print(f"{unit.name:<44} {run.state(unit):<7}{cost}")
    total = sum((p.flops for p in planned.values()), 0.0)
    largest = max((float(p.bytes) for p in planned.values()), default=0.0)
    print(f"all trainings: {human(total)} FLOP; the largest needs {human(largest)}B")
    todo = [p for p in planned.values() if run.state(p.unit) != "done"]
    if took := seconds(config, todo, splits, manner.threads):
        wall = max(sum(took) / manner.jobs, *took)
        print(
            f"about {_duration(wall)} of training on this machine, {manner.jobs} at a time; scores and pages come on top"
        )
    elif todo:
        print("an update is too large to be timed here in passing")


def _duration(seconds: float) -> str:
    """Two digits are as much as an estimate has."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.2g} {unit}"
    return f"{max(1, round(seconds))} s"


def status(given: argparse.Namespace) -> None:
    """Where a run stands, one line per unit."""
    path: Path = given.folder
    run = open_run(path)
    units = study_units(run.config)
    count: dict[str, int] = {}
    rows: list[LogLine]
    for unit in units:
        state, note = run.state(unit), ""
        count[state] = count.get(state, 0) + 1
        record, log = run.record(unit), run.folder(unit) / "log.jsonl"
        if record is not None:
            note = f"{record['wall_seconds']:.0f} s"
        elif state == "begun" and log.exists() and (rows := read_lines(log, LogLine, torn=True)):
            note = f"at update {rows[-1]['update']}"
        print(f"{unit.name:<44} {state:<7} {note}")
    print(f"{path}: " + ", ".join(f"{n} {state}" for state, n in count.items()))
    if set(count) != {"done"}:
        print(f"next: biasbound run {path}")


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def rescored(folder: Path, argv: Sequence[str] = ()) -> int:
    """Score the kept emulators of a record on test data made anew; 0 if their intervals hold the new values."""
    parser = ConfigParser(
        prog="biasbound evaluate RECORD", description="Score kept emulators again, on test data made anew."
    )
    parser.add_argument("--jobs", type=count, default=cores(), help="emulators scored side by side (default: cores)")
    parser.add_argument("--network", default="", help="package.module:name of emulators with a network of your own")
    given = parser.parse_args(list(argv))
    allow([given.network])
    jobs = Manner(given.jobs).jobs
    record = read_record(folder)  # all of it is read before anything of an earlier call is removed
    work = workplace(folder)
    print(f"{folder}: a record; its test data are made again in {work}", flush=True)
    if record.alone:
        print(f"emulators of {_seeds(record.alone)} were not kept; their rows are not compared", flush=True)
    verdict = rescore(record, work, jobs, tell=lambda name: print(f"scored {name}", flush=True))
    print(table1(verdict.rows).text(columns()))
    inside = verdict.compared - len(verdict.outside)
    print(f"{inside} of {verdict.compared} recorded intervals hold the value of now")
    for row in verdict.outside[:10]:
        print(f"outside: {row.method}, seed {row.seed}, {row.metric} at {row.step}: {row.low} … {row.high}")
    return 2 if verdict.outside else 0
