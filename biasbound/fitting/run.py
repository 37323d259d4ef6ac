"""From a file of trajectories to an emulator with its scores and report: a study whose config is found by trials.

    OUT/fit.json        what was asked, what the trials decided, who won and why
    OUT/emulator/       the better model, with its card
    OUT/01-data … 07-report/   the study behind it, as `biasbound run` leaves it

The same request in the same folder goes on where it stopped.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from biasbound._io import lock, read_json, remove, write_json
from biasbound.core.schedule import Schedule
from biasbound.data.describe import describe
from biasbound.data.formats import save
from biasbound.data.trajectories import Trajectories
from biasbound.fitting.compare import Standing, decided, standing
from biasbound.fitting.probe import Probe, network_fields
from biasbound.fitting.request import Choice, Request
from biasbound.metrics.rows import Row, read_rows
from biasbound.models.emulator import Emulator, load
from biasbound.report.tables import demo_table
from biasbound.report.write import write_report
from biasbound.study.config import (
    Config,
    DataConfig,
    EvaluateConfig,
    FinetuneConfig,
    NetworkConfig,
    RolloutConfig,
    SearchConfig,
    TaskConfig,
    TrainConfig,
)
from biasbound.study.execute import Manner, collect, make_units
from biasbound.study.folder import RunDir, Unit, open_run
from biasbound.study.follow import Tell
from biasbound.study.graph import study_units
from biasbound.study.stages.data import found
from biasbound.study.stages.material import Material, task_of

Say = Callable[[str], None]
SPLITS = ("train", "valid", "test")
SEARCH: dict[str, Any] = {
    "mode": "grow", "statistic": "pooled", "levels": 10, "rounds": 4, "ahead": 4, "rule": "best", "pairs": 256,
}  # fmt: skip


@dataclass(frozen=True)
class Fitted:
    """What a fit ends with."""

    emulator: Emulator
    chosen: str  # its label
    why: str
    scores: tuple[Row, ...]  # of every method, on test data
    standings: Mapping[str, Standing]  # on validation data
    choice: Choice
    folder: Path | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def schedule(self) -> Schedule | None:
        """The noise levels of its chain; None for a direct model."""
        return self.emulator.schedule

    @property
    def page(self) -> Path | None:
        """The report as a page; None where the folder was a temporary one."""
        return None if self.folder is None else self.folder / "07-report" / "index.html"

    @property
    def report(self) -> str:
        """What happened, in words, and the table of scores on test data."""
        words = [*self.notes, *self.choice.words, self.why]
        return "\n".join([*(f"- {word}" for word in words), "", demo_table(list(self.scores)).text()])

    def __str__(self) -> str:
        return self.report


@dataclass(frozen=True)
class _Kept:
    """fit.json."""

    request: Request
    choice: Choice
    chosen: str = ""
    why: str = ""
    standings: Mapping[str, Standing] = field(default_factory=dict)


def fit_files(
    data: DataConfig, request: Request, out: Path, *, say: Say, tell: Tell, manner: Manner | None = None
) -> Fitted:
    """Fit to the files that a data section names."""
    started = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    with lock(out / ".fit.lock"):
        material, task = _material(data, manner or Manner()), TaskConfig(history=request.history)
        kept = _kept(out, request)
        if kept is None:
            chosen = Probe(material, task_of(task), request, say).choose(started)
            kept = _Kept(request, chosen)
            write_json(out / "fit.json", asdict(kept))
        for word in kept.choice.words:
            say(word)
        config = config_of(kept.choice, request, data)
        run = open_run(out, config)
        with run.writing():
            rows = _study(run, config, manner or Manner(), say, tell)
            kept = _decided(run, config, material, kept, say)
        return _fitted(kept, out, rows, material)


def fit_arrays(
    train: Trajectories,
    valid: Trajectories | None,
    test: Trajectories | None,
    request: Request,
    out: Path | None,
    *,
    say: Say,
    tell: Tell,
    manner: Manner | None = None,
) -> Fitted:
    """Fit to trajectories in memory or on disk; they are written beside the study, as native files."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="biasbound-fit-") as temporary:
            told: dict[str, Any] = {"say": say, "tell": tell, "manner": manner}
            return replace(fit_arrays(train, valid, test, request, Path(temporary) / "fit", **told), folder=None)
    out.mkdir(parents=True, exist_ok=True)
    parts = {"train": train, **({"valid": valid, "test": test or valid} if valid is not None else {})}
    files: dict[str, Any] = {}
    for name, part in parts.items():
        files[name] = str(out / f"{name}.h5")
        if not Path(files[name]).exists():
            save(part, files[name])
    data = DataConfig(dataset=train.layout.name, conditions=train.conditions, **files)
    return fit_files(data, request, out, say=say, tell=tell, manner=manner)


def planned(data: DataConfig, request: Request) -> list[str]:
    """What a fit would do, after a look at all of the data and a second of updates."""
    started, material = time.perf_counter(), _material(data, Manner())
    probe = Probe(material, task_of(TaskConfig(history=request.history)), request, lambda text: None)
    updates, pace, parameters = probe.plan(started)
    lines = [describe(material.train), *_notes(material)]
    lines += [
        f"{name}: {len(getattr(material, name))} × {getattr(material, name).layout.frames} frames" for name in SPLITS
    ]
    each = f"{updates:,} updates of {probe.batch} windows in each training, {1000 * pace:.3g} ms each"
    return [*lines, f"{each}; {parameters:,} parameters"]


def config_of(choice: Choice, request: Request, data: DataConfig) -> Config:
    """The study behind a fit: a direct model and a grown ladder, each with all of the ledger."""
    target = "-residual" if choice.residual else ""
    grown = f"adaptive-scaled{target}"
    tuned = (f"{grown}-proxy",) if request.prefer == "rollout" else ()
    members = 8 if request.prefer == "ensemble" else 2
    train = TrainConfig(
        updates=choice.updates,
        budget=choice.updates * choice.batch,
        batch=choice.batch,
        lr=choice.lr,
        optimiser="soap",
        keep="best",
        evaluations=20,
        pairs=256,
        symmetries=choice.symmetries,
    )
    return Config(
        title=f"{data.dataset}, fitted",
        methods=(f"direct{target}", grown, *tuned),
        seeds=(request.seed,),
        data=data,
        task=TaskConfig(history=request.history),
        network=NetworkConfig(name=request.network, **network_fields(request.network, choice.network)),
        search=SearchConfig(**SEARCH),
        train=train,
        finetune=FinetuneConfig(lr=2e-4),
        rollout=RolloutConfig(members=members, trajectories=32),
        evaluate=EvaluateConfig(steps=(1, 10)),
    )


def _material(data: DataConfig, manner: Manner) -> Material:
    return Material(lambda split: found(data, split).open(), manner.device)


def _kept(out: Path, request: Request) -> _Kept | None:
    """What an earlier attempt at the same request left."""
    path = out / "fit.json"
    if not path.exists():
        return None
    found: _Kept = read_json(path, _Kept, "give another folder with --out")
    if found.request != request:
        raise ValueError(f"{out} holds a fit with other settings; give the same ones, or another folder with --out")
    return found


def _study(run: RunDir, config: Config, manner: Manner, say: Say, tell: Tell) -> list[Row]:
    """Make what is not there yet: trainings, rollouts, scores and the page."""
    units = study_units(config)
    outcome = make_units(run, units, manner, tell)
    if outcome.failed:
        name, problem = next(iter(outcome.failed.items()))
        raise ValueError(f"{run.path / name}: {problem}; give the same command again to go on")
    results = collect(run, units)
    report = Unit("report", inputs=tuple(u for u in units if u.stage == "evaluate"))
    if run.state(report) != "done":
        begun = time.process_time()
        write_report(run.path, run.folder(report))
        run.finish(report, {"cpu_seconds": round(time.process_time() - begun, 3)})
    assert results is not None
    return read_rows(results)


def _decided(run: RunDir, config: Config, material: Material, kept: _Kept, say: Say) -> _Kept:
    """Keep the better model as OUT/emulator."""
    places = _emulators(run, config)
    if not kept.chosen:
        standings = {label: standing(load(place), material) for label, place in places.items()}
        chosen, why = decided(standings, kept.request.prefer)
        kept = replace(kept, chosen=chosen, why=why, standings=standings)
    final = run.path / "emulator"
    remove(final)
    best = load(places[kept.chosen])
    told = {"chosen": kept.why, "data": list(_notes(material))}
    replace(best, meta={**best.meta, **told}).save(final)
    write_json(run.path / "fit.json", asdict(kept))
    say(kept.why)
    return kept


def _emulators(run: RunDir, config: Config) -> dict[str, Path]:
    """The folder of each trained method's emulator."""
    units = [unit for unit in study_units(config) if unit.stage == "evaluate"]
    found = {}
    for unit in units:
        made = next((one for one in reversed(unit.inputs) if one.stage in ("finetune", "train")), None)
        if made is not None:
            found[unit.label] = run.folder(made) / "emulator"
    return found


def _fitted(kept: _Kept, out: Path, rows: list[Row], material: Material) -> Fitted:
    found = tuple(rows), kept.standings, kept.choice, out, _notes(material)
    return Fitted(load(out / "emulator"), kept.chosen, kept.why, *found)


def _notes(material: Material) -> tuple[str, ...]:
    """What was done on reading, and how the data were divided."""
    train = material.train
    return (*train.notes, *((train.division.sentence,) if train.division is not None else ()))
