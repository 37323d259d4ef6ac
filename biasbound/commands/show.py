"""What a study will cost, and where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..config import Config

__all__ = ["dry_run", "status"]


def dry_run(path: Path, config: Config, units: Sequence[Any]) -> None:
    """Stages, parameters, updates, operations and memory; nothing is written."""
    from ..pipeline.plan import human, plan
    from ..rundir import RunDir

    run = RunDir(path, config)
    planned = {p.unit.name: p for p in plan(config, units)}
    print(f"{path}: {len(units)} units")
    print(
        f"{'unit':<44} {'state':<7} {'parameters':>11} {'updates':>10} {'operations':>12} {'memory':>9}"
    )
    for unit in units:
        p = planned.get(unit.name)
        cost = (
            ""
            if p is None
            else (
                f" {p.parameters:>11,} {p.updates:>10,} {human(p.flops):>9} FLOP {human(float(p.bytes)):>7}B"
            )
        )
        print(f"{unit.name:<44} {run.state(unit):<7}{cost}")
    total = sum(p.flops for p in planned.values())
    print(
        f"all trainings: {human(total)} FLOP; the largest needs {human(float(max((p.bytes for p in planned.values()), default=0)))}B"
    )


def status(path: Path) -> None:
    """Where a run stands, a line a unit."""
    from ..pipeline.graph import study_units
    from ..rundir import open_run
    from ..track import read_rows

    run = open_run(path)
    units = study_units(run.config)
    count: dict[str, int] = {}
    for unit in units:
        state, note = run.state(unit), ""
        count[state] = count.get(state, 0) + 1
        record, log = run.record(unit), run.folder(unit) / "log.jsonl"
        if record is not None:
            note = f"{record['wall_seconds']:.0f} s"
        elif state == "begun" and log.exists() and (rows := read_rows(log)):
            note = f"at update {rows[-1]['update']}"
        print(f"{unit.name:<44} {state:<7} {note}")
    print(f"{path}: " + ", ".join(f"{n} {state}" for state, n in count.items()))
    if set(count) != {"done"}:
        print(f"next: biasbound run {path}")
