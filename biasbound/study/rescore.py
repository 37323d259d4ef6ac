"""Score kept emulators again, on test data made anew: does the record hold?

A kept folder has `config.yaml`, `results.jsonl` and the emulators of a run (`03-train/…/emulator`), but neither its data
nor its rollouts. Both are made again from the config, the test split alone. Where `kept.json` names the seeds whose emulators
were kept, the rows of the others stand as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from biasbound._io import checked_name, make_folder, read_json, remove, workers, write_json
from biasbound.data.layout import Split
from biasbound.metrics import METRICS
from biasbound.metrics.rows import Row, read_rows, select, write_rows
from biasbound.models.emulator import load
from biasbound.models.method import GUESSES, method
from biasbound.registry import additions, known, restore
from biasbound.study.config import Config
from biasbound.study.folder import STAGES
from biasbound.study.graph import methods_of
from biasbound.study.jobs import EvaluateJob, RolloutJob, UntrainedJob
from biasbound.study.parsing import read_config
from biasbound.study.stages.data import entry_of
from biasbound.study.stages.evaluate import make_evaluate
from biasbound.study.stages.material import Material, open_split
from biasbound.study.stages.place import Place
from biasbound.study.stages.rollout import make_rollout

KEPT = "kept.json"  # {"seeds": […]} of a record that holds emulators of some seeds only
MARK = "rescored.json"  # in a folder that we made, and may remove


@dataclass(frozen=True)
class Verdict:
    """Rows as scored now, and which of the recorded ones have an interval that does not hold the value of now."""

    rows: tuple[Row, ...]
    compared: int
    outside: tuple[Row, ...]


@dataclass(frozen=True)
class Record:
    """A kept folder, read and checked as a whole before anything is made or removed."""

    config: Config
    rows: tuple[Row, ...]
    units: tuple[tuple[str, int], ...]  # labels and seeds
    emulators: tuple[Path, ...]  # one per unit
    alone: tuple[int, ...] = ()  # seeds that have rows, but no emulators


def read_record(folder: Path) -> Record:
    """The record of a folder; its rows name the folders of its emulators, and may be anyone's."""
    config = read_config(folder / "config.yaml")
    config = replace(config, evaluate=replace(config.evaluate, gradients=0))
    rows = read_rows(folder / "results.jsonl")
    for row in rows:
        checked_name(row.method, f"{folder / 'results.jsonl'}, method")
    kept = read_json(folder / KEPT, dict[str, list[int]])["seeds"] if (folder / KEPT).exists() else None
    alone = () if kept is None else tuple(sorted({row.seed for row in rows} - {*kept}))
    rows = [row for row in rows if row.seed not in alone]
    todo = list(dict.fromkeys((row.method, row.seed) for row in rows))
    kinds = methods_of(config.methods)
    emulators = [
        _emulator(folder, kinds[label].emulated.label if label in kinds else label, seed)
        for label, seed in todo
        if label not in GUESSES
    ]
    return Record(config, tuple(rows), tuple(todo), tuple(_with_units(todo, emulators)), alone)


def workplace(record: Path) -> Path:
    """Where the data and scores of a record are made: emptied if an earlier call made it, else it must be new."""
    name = checked_name(record.resolve().name, "the record")
    work = Path("runs") / f"rescored-{name}"
    there = {p.name for p in work.iterdir()} if work.is_dir() else set()
    begun = there <= {f".{MARK}.writing", f".{MARK}.lock"}  # all that a call leaves which is killed before the mark
    if work.is_symlink() or (work.exists() and not (work.is_dir() and (begun or (work / MARK).is_file()))):
        raise ValueError(f"{work} is in the way, and no earlier call made it; move it elsewhere")
    make_folder(work)
    for name in there - {MARK}:  # data may be of another record; the mark stays, for a call that is killed meanwhile
        remove(work / name)
    write_json(work / MARK, {"record": str(record)})
    return work


def rescore(record: Record, work: Path, jobs: int = 1, tell: Callable[[str], None] = lambda name: None) -> Verdict:
    """Make the test data, roll out and score every emulator of a record, `jobs` side by side; rows go to work/results.jsonl."""
    config, recorded, todo = record.config, record.rows, record.units
    data = make_folder(work / "01-data")
    wanted: tuple[Split, ...] = ("test",) if config.data.train is None else ("train", "test")  # a climate is of train
    write_json(data / "splits.json", {split: entry_of(config.data, split, Place(data, jobs=jobs)) for split in wanted})
    found: list[Row] = []
    with workers(jobs, restore, additions()) as pool:
        scored = [
            pool.submit(_scored, config, *unit, work, emulator, select(recorded, method=unit[0], seed=unit[1]))
            for unit, emulator in zip(todo, record.emulators, strict=True)
        ]
        for (label, seed), rows in zip(todo, scored, strict=True):
            found += rows.result()
            tell(f"{label}, seed {seed}")
    write_rows(work / "results.jsonl", found)
    return _verdict(found, recorded)


def _with_units(todo: Sequence[tuple[str, int]], emulators: Sequence[Path]) -> list[Path]:
    """The emulator of every unit; a first guess has none, and takes the units of the data from another."""
    if not emulators:
        raise ValueError("the record has no emulator to score again")
    left = iter(emulators)
    return [emulators[0] if label in GUESSES else next(left) for label, _ in todo]


def _emulator(folder: Path, label: str, seed: int) -> Path:
    """Where a row's emulator is; a missing or damaged one is refused before hours go into the others."""
    places = [folder / STAGES[stage] / label / f"seed-{seed}" / "emulator" for stage in ("finetune", "train")]
    for emulator in places:
        if emulator.is_dir():
            load(emulator)
            return emulator
    raise ValueError(f"{folder} has rows of {label}, seed {seed}, but no emulator in {places[0]} or {places[1]}")


def _scored(config: Config, label: str, seed: int, work: Path, emulator: Path, recorded: Sequence[Row]) -> list[Row]:
    torch.set_num_threads(1)
    material = Material(partial(open_split, work / "01-data"))
    kept = load(emulator)
    material.normalisation, material.mask = kept.normalisation, kept.mask  # without the training data
    rollout, scores = (work / s / label / f"seed-{seed}" for s in ("05-rollout", "06-evaluate"))
    for made in (rollout, scores):
        make_folder(made)
    cost = {name: getattr(recorded[0], name) for name in ("nfe", "updates", "seconds", "ledger")}
    place = Place(rollout, label, seed, {"train": emulator.parent, "rollout": rollout}, shared=material, cost=cost)
    scored = (config.data.dataset, config.evaluate, known(METRICS))
    chosen = methods_of(config.methods).get(label)
    sampled = None if chosen is None or chosen == chosen.emulated else chosen
    job = EvaluateJob(*scored, sampled=sampled)
    if label in GUESSES:
        job = UntrainedJob(*scored, method(label), config.task, config.rollout)
    else:
        make_rollout(RolloutJob(config.rollout, sampled), place)
    make_evaluate(job, replace(place, folder=scores))
    return read_rows(scores / "rows.jsonl")


def _verdict(found: Sequence[Row], recorded: Sequence[Row]) -> Verdict:
    now = {(r.unit, r.metric, r.step): r.value for r in found}
    compared, outside = 0, []
    for row in recorded:
        if row.low is None or row.high is None:
            continue
        compared += 1
        value = now.get((row.unit, row.metric, row.step))
        if value is None or not row.low <= value <= row.high:
            outside.append(row)
    return Verdict(tuple(found), compared, tuple(outside))
