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

from biasbound._io import read_json, remove, write_json
from biasbound.core.schedule import Schedule
from biasbound.data.describe import describe
from biasbound.data.formats import save
from biasbound.data.splits import divided
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
from biasbound.study.stages.data import found, usable
from biasbound.study.stages.material import Material, task_of

Say = Callable[[str], None]
SPLITS = ("train", "valid", "test")
SEARCH: dict[str, Any] = {
    "mode": "grow", "statistic": "pooled", "levels": 10, "rounds": 4, "ahead": 4, "rule": "paired", "pairs": 96,
}  # fmt: skip


@dataclass(frozen=True)
class Fitted:
    """What a fit ends with.

    Made by hand here, because a fit takes seconds at least:

    >>> from biasbound.models.model import Frame, make
    >>> from biasbound.models.normalise import Normalisation
    >>> still = Emulator(make("persistence", None, Frame(1), {}), Normalisation((0.0,), (1.0,)), ("u",), 0.1)
    >>> fitted = Fitted(still, "persistence", "there was no other", (), {}, Choice(False, {}, 1e-3, 32, 100))
    >>> fitted.schedule is None, fitted.page is None  # no chain of levels, and no folder
    (True, True)
    """

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
    def words(self) -> tuple[str, ...]:
        """What happened, a sentence each."""
        return (*self.notes, *self.choice.words, self.why)

    @property
    def report(self) -> str:
        """What happened, in words, and the table of scores on test data."""
        return "\n".join([*(f"- {word}" for word in self.words), "", demo_table(list(self.scores)).text()])

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
    how = manner or Manner()
    return _fit(data, _material(data, how), request, out, Watch(say, tell, how))


def fit_arrays(
    parts: Mapping[str, Trajectories],
    request: Request,
    out: Path | None,
    *,
    say: Say,
    tell: Tell,
    manner: Manner | None = None,
) -> Fitted:
    """Fit to trajectories in memory or on disk, `train` and perhaps `valid` and `test`.

    They are written into the folder of the fit as native files, so that the same call can go on there.
    """
    if out is None:
        with tempfile.TemporaryDirectory(prefix="biasbound-fit-") as temporary:
            found = fit_arrays(parts, request, Path(temporary) / "fit", say=say, tell=tell, manner=manner)
            return replace(found, folder=None)
    whole = {**parts} if "valid" in parts else divided(parts["train"])
    whole.setdefault("test", whole["valid"])
    files: dict[str, Any] = {name: str(out / "arrays" / f"{name}.h5") for name in SPLITS}
    train, how = whole["train"], manner or Manner()
    data = DataConfig(dataset=train.layout.name, conditions=train.conditions, **files)

    def keep() -> None:
        (out / "arrays").mkdir(exist_ok=True)
        for name, file in files.items():
            if not Path(file).exists():
                save(whole[name], file)

    return _fit(data, Material(whole.__getitem__, how.device), request, out, Watch(say, tell, how), keep)


@dataclass(frozen=True)
class Watch:
    """Who hears of a fit, and how it computes."""

    say: Say
    tell: Tell
    manner: Manner


def _fit(
    data: DataConfig,
    material: Material,
    request: Request,
    out: Path,
    watch: Watch,
    keep: Callable[[], None] = lambda: None,
) -> Fitted:
    started = time.perf_counter()
    kept = _kept(out, request)
    if kept is None:
        task = task_of(TaskConfig(history=request.history), material.train.layout)
        kept = _Kept(request, Probe(material, task, request, watch.say).choose(started))
    for word in kept.choice.words:
        watch.say(word)
    config = config_of(kept.choice, request, data)
    run = open_run(out, config)
    with run.writing():
        if not (out / "fit.json").exists():
            write_json(out / "fit.json", asdict(kept))
        keep()
        rows = _study(run, config, watch)
        kept = _decided(run, config, material, kept, rows, watch.say)
    found = tuple(rows), kept.standings, kept.choice, out, _notes(material)
    return Fitted(load(out / "emulator"), kept.chosen, kept.why, *found)


def planned(data: DataConfig, request: Request) -> list[str]:
    """What a fit would do, after a look at all of the data and a second of updates."""
    started, material = time.perf_counter(), _material(data, Manner())
    task = task_of(TaskConfig(history=request.history), material.train.layout)
    probe = Probe(material, task, request, lambda text: None)
    updates, pace, parameters = probe.plan(started)
    lines = [describe(material.train), *_notes(material)]
    parts = {name: getattr(material, name) for name in SPLITS}
    lines += [f"{name}: {len(part)} × {part.layout.frames} frames" for name, part in parts.items()]
    each = f"{updates:,} updates of {probe.batch} windows in each training, {1000 * pace:.3g} ms each"
    return [*lines, f"{each}; {parameters:,} parameters"]


def config_of(choice: Choice, request: Request, data: DataConfig) -> Config:
    """The study behind a fit: a direct model and a grown ladder, each with all of the ledger."""
    target = "-residual" if choice.residual else ""
    grown = f"adaptive-scaled{target}"
    methods = (f"direct{target}",) if "direct" in choice.kinds else ()
    if "diffusion" in choice.kinds:
        methods += (grown, *((f"{grown}-proxy",) if request.prefer == "rollout" else ()))
    members = 8 if request.prefer == "ensemble" else 2
    train = TrainConfig(
        updates=choice.updates,
        budget=choice.updates * choice.batch,
        batch=choice.batch,
        lr=choice.lr,
        optimiser="soap",
        keep="best",
        evaluations=12,
        pairs=96,
        symmetries=choice.symmetries,
    )
    return Config(
        title=f"{data.dataset}, fitted",
        methods=methods,
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
    return Material(lambda split: usable(found(data, split).open()), manner.device)


def _kept(out: Path, request: Request) -> _Kept | None:
    """What an earlier attempt at the same request left."""
    path = out / "fit.json"
    if not path.exists():
        return None
    found: _Kept = read_json(path, _Kept, "give another folder with --out")
    if found.request != request:
        raise ValueError(f"{out} holds a fit with other settings; give the same ones, or another folder with --out")
    return found


def _study(run: RunDir, config: Config, watch: Watch) -> list[Row]:
    """Make what is not there yet: trainings, rollouts, scores and the page."""
    units = study_units(config)
    outcome = make_units(run, units, watch.manner, watch.tell)
    if outcome.failed:
        name, problem = next(iter(outcome.failed.items()))
        raise ValueError(f"{run.path / name}: {problem}; mend that, then give the same command again: it goes on")
    results = collect(run, units)
    report = Unit("report", inputs=tuple(u for u in units if u.stage == "evaluate"))
    if run.state(report) != "done":
        begun = time.process_time()
        write_report(run.path, run.folder(report))
        run.finish(report, {"cpu_seconds": round(time.process_time() - begun, 3)})
    assert results is not None
    return read_rows(results)


def _decided(run: RunDir, config: Config, material: Material, kept: _Kept, rows: list[Row], say: Say) -> _Kept:
    """Keep the better model as OUT/emulator."""
    places = _emulators(run, config)
    if not kept.chosen:
        standings = {label: standing(load(place), material) for label, place in places.items()}
        chosen, why = decided(standings, kept.request.prefer)
        kept = replace(kept, chosen=chosen, why=why, standings=standings)
    final = run.path / "emulator"
    remove(final)
    best = load(places[kept.chosen]).scored(rows)
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


def _notes(material: Material) -> tuple[str, ...]:
    """What was done on reading, and how the data were divided."""
    train = material.train
    return (*train.notes, *((train.division.sentence,) if train.division is not None else ()))
