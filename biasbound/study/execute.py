"""Make the units of a study: skip what is done, go on with what has begun, side by side where nothing waits.

Every process computes on the same number of threads whatever `jobs` is, so that results do not depend on it. A unit that
fails takes only those with it that read it; the others go on, and the failure is told at the end.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from biasbound._io import remove, shown
from biasbound.metrics.rows import read_rows, write_rows
from biasbound.registry import additions, find, restore
from biasbound.study.engines import ENGINES, TRIES, Engine, Terms, spread
from biasbound.study.folder import TRAININGS, RunDir, Unit
from biasbound.study.follow import Event, Follower, Spent, Tell
from biasbound.study.stages.data import make_data
from biasbound.study.stages.evaluate import make_evaluate
from biasbound.study.stages.material import Material, open_split
from biasbound.study.stages.place import Place
from biasbound.study.stages.rollout import make_rollout
from biasbound.study.stages.search import make_search
from biasbound.study.stages.train import make_finetune, make_train
from biasbound.train.ranks import agreed, distributed

FAILURES = (ValueError, OSError, ArithmeticError, ImportError)


@dataclass(frozen=True)
class Manner:
    """How to compute; the results do not depend on it, `threads` and `device` aside."""

    jobs: int = 1
    threads: int = 1
    device: str = "cpu"
    executor: str = "local"
    engine: Engine | None = None  # that computes the blocks of data, where they are not computed here

    def __post_init__(self) -> None:
        for name in ("jobs", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1, not {getattr(self, name)}")
        if not _usable(self.device):
            raise ValueError(f"--device {self.device!r} is not here: use cpu")
        find(ENGINES, self.executor)


def _usable(device: str) -> bool:
    """Whether torch computes there; a GPU is only counted, because taking hold of it is for the workers."""
    try:
        place = torch.device(device)
        if place.type in ("cpu", "meta"):
            return device == "cpu"  # torch takes cpu:5 for it
        if place.type == "cuda":
            return (place.index or 0) < torch.cuda.device_count()
        torch.zeros(1, device=place).item()
    except (RuntimeError, AssertionError):
        return False
    return True


@dataclass
class Outcome:
    """What was made, what was there already, and what failed and why."""

    made: list[str] = field(default_factory=list)
    there: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


STAGE: dict[str, Callable[[Any, Place], dict[str, Any]]] = {
    "data": make_data,
    "search": make_search,
    "train": make_train,
    "finetune": make_finetune,
    "rollout": make_rollout,
    "evaluate": make_evaluate,
}

_materials: dict[tuple[str, str, str], Material] = {}  # of this process: units of a study share it


def _material(run: RunDir, data: Unit, device: str) -> Material:
    name = (str(run.path), data.key, device)
    if name not in _materials:
        _materials.clear()  # of another study
        _materials[name] = Material(partial(open_split, run.folder(data)), device)
    return _materials[name]


def make_unit(run: RunDir, unit: Unit, tell: Tell, manner: Manner) -> None:
    """Make one unit in this process, whatever an earlier attempt left."""
    torch.set_num_threads(manner.threads)
    rank = distributed(manner.device)
    if rank.rank != 0:
        if unit.stage in TRAININGS:
            STAGE[unit.stage](unit.job, _place(run, unit, tell, manner, Spent(run.folder(unit))))
        return
    tell(Event("start", unit.name))
    folder = run.begin(unit)
    started, spent = datetime.now(UTC).isoformat(timespec="seconds"), Spent(folder)
    facts = STAGE[unit.stage](unit.job, _place(run, unit, tell, manner, spent))
    told = {"threads": manner.threads, "processes": rank.world, "device": manner.device}
    run.finish(unit, {**told, "started": started, **spent.facts(), **facts})
    tell(Event("done", unit.name, note=_summary(facts)))


def _place(run: RunDir, unit: Unit, tell: Tell, manner: Manner, spent: Spent) -> Place:
    inputs = {other.stage: other for other in unit.inputs}

    def progress(split: str, done: int, total: int) -> None:
        tell(Event("move", unit.name, done, total, f"{split} trajectories"))
        spent.note()

    return Place(
        folder=run.folder(unit),
        label=unit.label,
        seed=unit.seed,
        inputs={stage: run.folder(other) for stage, other in inputs.items()},
        observers=[Follower(unit, tell, spent)],
        jobs=max(manner.jobs, manner.threads),
        spread=None if manner.engine is None else partial(spread, manner.engine, stage="data"),
        progress=progress,
        cost=_cost(run, unit) if unit.stage == "evaluate" else {},
        shared=_material(run, inputs["data"], manner.device) if "data" in inputs else None,
    )


def _cost(run: RunDir, unit: Unit) -> dict[str, Any]:
    """Network calls per step of an emulator; updates, CPU seconds and training samples of all its trainings."""
    records, todo = [], [u for u in unit.inputs if u.stage in TRAININGS]
    while todo:
        now = todo.pop()
        records.append(run.record(now) or {})
        todo += [u for u in now.inputs if u.stage in TRAININGS]
    if not records:  # nothing was trained
        return {"nfe": 0, "updates": 0, "seconds": 0.0, "ledger": 0}
    updates, seconds, ledger = (sum(r[name] for r in records) for name in ("updates", "cpu_seconds", "ledger"))
    rolled = next((run.record(u) or {} for u in unit.inputs if u.stage == "rollout"), {})
    return {
        "nfe": rolled.get("nfe", records[0]["nfe"]),
        "updates": updates,
        "seconds": round(seconds, 3),
        "ledger": ledger,
    }


def _summary(facts: Mapping[str, Any]) -> str:
    shown = ("levels", "forced", "updates", "nfe", "parameters", "frames", "broken", "rows")
    return ", ".join(f"{facts[k]:,} {k.replace('nfe', 'NFE')}" for k in shown if k in facts)


def make_units(run: RunDir, units: Sequence[Unit], manner: Manner, tell: Tell) -> Outcome:
    """Make every unit that is not done; `units` stand after what they read."""
    outcome, several = Outcome(), distributed(manner.device).world > 1
    # The first process of several looks for all: another machine may see its files later.
    found = [unit.name for unit in units if run.state(unit) == "done"] if distributed().rank == 0 else []
    outcome.there = agreed(found)
    todo = [unit for unit in units if unit.name not in outcome.there]
    first = [unit for unit in todo if unit.stage == "data"]
    rest = [unit for unit in todo if unit.stage != "data"]
    here = manner.executor == "local"
    if here:
        _in_turn(run, first, manner, tell, outcome)
    if here and (manner.jobs == 1 or len(rest) < 2 or several):  # several train each unit together
        _in_turn(run, rest, manner, tell, outcome)
    elif todo:
        terms = Terms(run.path, manner.jobs, run.config.execute, partial(restore, additions()))
        with find(ENGINES, manner.executor)(terms) as engine:
            if not here:
                run = replace(run, path=run.path.resolve())  # jobs start in other folders
                _in_turn(run, first, replace(manner, engine=engine), tell, outcome)
            _side_by_side(run, rest, manner, tell, outcome, engine)
        if not outcome.failed:
            remove(run.path / ".jobs")  # logs of jobs are kept where one failed
    return outcome


def _doomed(unit: Unit, failed: Mapping[str, str]) -> bool:
    return any(other.name in failed or _doomed(other, failed) for other in unit.inputs)


def _in_turn(run: RunDir, units: Sequence[Unit], manner: Manner, tell: Tell, outcome: Outcome) -> None:
    for unit in units:
        if _doomed(unit, outcome.failed):
            continue
        failure = ""
        try:
            make_unit(run, unit, tell, manner)
        except FAILURES as error:
            failure = _sentence(error)
        if failure := agreed(failure):  # what the first process could not make, the others cannot read
            _fail(unit, failure, tell, outcome)
        else:
            outcome.made.append(unit.name)


def _sentence(error: BaseException) -> str:
    return shown(" ".join(str(error).split()))


def _fail(unit: Unit, why: str, tell: Tell, outcome: Outcome) -> None:
    outcome.failed[unit.name] = why
    tell(Event("failed", unit.name, note=why))


_one_at_a_time = threading.Lock()


def _made(run: RunDir, unit: Unit, manner: Manner, tell: Tell) -> str:
    """Make a unit as a job; returns in one sentence why it failed, or nothing."""
    with _one_at_a_time:  # a Dask worker may have several threads
        try:
            if (
                run.state(unit) != "done"
            ):  # an engine may compute a job twice, when it lost what the first one returned
                make_unit(run, unit, tell, manner)
        except FAILURES as error:
            return _sentence(error)
    return ""


def _side_by_side(
    run: RunDir, units: Sequence[Unit], manner: Manner, tell: Tell, outcome: Outcome, engine: Engine
) -> None:
    """As many at a time as the engine has room for; a unit starts when all that it reads is there."""
    waiting, running, tries = list(units), dict[Any, Unit](), Counter[str]()
    while waiting or running:
        pending = {u.name for u in (*waiting, *running.values())}
        waiting = [u for u in waiting if not _doomed(u, outcome.failed)]
        for unit in list(waiting):
            if len(running) < engine.room and not pending & {u.name for u in unit.inputs}:
                waiting.remove(unit)
                tries[unit.name] += 1
                running[engine.submit(partial(_made, run, unit, manner), unit.name, unit.stage)] = unit
        finished = engine.finished(list(running))
        for event in engine.news():
            tell(event)
        for handle in finished:
            unit = running.pop(handle)
            try:
                failure = handle.result()
            except Exception as error:
                if not engine.lost(error):
                    raise
                if tries[unit.name] < TRIES:
                    waiting.insert(0, unit)  # it goes on from its last checkpoint
                    continue
                failure = f"its job died {TRIES} times; the last time: {_sentence(error)}"
            if failure:
                _fail(unit, failure, tell, outcome)
            else:
                outcome.made.append(unit.name)
    for event in engine.news():
        tell(event)


def collect(run: RunDir, units: Sequence[Unit]) -> Path | None:
    """All rows of the evaluations that are done, in the order of the study, as results.jsonl; None for none."""
    done = [u for u in units if u.stage == "evaluate" and run.state(u) == "done"]
    path = run.path / "results.jsonl"
    if not done:
        remove(path)  # rows of other settings must not stand beside this config
        return None
    write_rows(path, [row for unit in done for row in read_rows(run.folder(unit) / "rows.jsonl")])
    return path
