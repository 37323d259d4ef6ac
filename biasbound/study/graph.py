"""Which units a study is made of, and what each reads.

data ─┬─ search ─ train ─ finetune ─ rollout ─ evaluate      (adaptive-proxy; without -proxy no finetune)
      ├─ train ─ rollout ─ evaluate                           (every other method; adaptive where its ladder grows)
      └─ evaluate                                             (the task's first guess, which all are compared with)
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

from torch import nn

from biasbound._io import listed
from biasbound.core.denoise import PREDICTIONS
from biasbound.metrics import METRICS
from biasbound.models.method import Method, method
from biasbound.models.model import MODELS, Frame, Settings, make
from biasbound.models.task import TASKS
from biasbound.registry import find, known
from biasbound.study.checks import about
from biasbound.study.config import Config
from biasbound.study.folder import STAGES, Unit
from biasbound.study.jobs import DataJob, EvaluateJob, FinetuneJob, RolloutJob, SearchJob, TrainJob, UntrainedJob
from biasbound.train.optimisers import OPTIMISERS


def methods_of(methods: Iterable[Any]) -> dict[str, Method]:
    """Methods, as `method` reads them, by their labels; two different ones that share a label are refused."""
    found: dict[str, Method] = {}
    for told in methods:
        with about("methods"):
            made = method(told)
        if found.setdefault(made.label, made) != made:
            raise ValueError(f"two methods are both called {made.label}: rename one of their schedule files")
    return found


def study_units(config: Config, methods: Sequence[str] | None = None, upto: str = "evaluate") -> list[Unit]:
    """Every unit of the study up to a stage, each after those that it reads; `methods` are labels."""
    last = list(STAGES).index(upto)
    data = data_unit(config)  # once: a folder of many files takes time to look through
    if last == 0:
        return [data]
    known_ones = methods_of(config.methods)
    chosen = known_ones.values() if methods is None else [known_ones[label] for label in methods]
    with about("task.name"):
        task = find(TASKS, config.task.name)
    if not task.advances and (unrolled := [each.label for each in chosen if each.recipe(1).unroll]):
        raise ValueError(
            f"the task {config.task.name} answers every frame from its own observation, so {', '.join(unrolled)} has "
            "nothing to unroll: leave it out"
        )
    wanted = [unit_of(config, each, seed, data) for seed in config.seeds for each in chosen]
    wanted.append(unit_of(config, method(task.baseline), config.seeds[0], data))
    return [unit for unit in closure(wanted) if list(STAGES).index(unit.stage) <= last]


def closure(units: Iterable[Unit]) -> list[Unit]:
    """The units and all that they read, each once, inputs first."""
    found: dict[str, Unit] = {}

    def visit(unit: Unit) -> None:
        for other in unit.inputs:
            visit(other)
        found.setdefault(unit.name, unit)

    for unit in units:
        visit(unit)
    return list(found.values())


def unit_of(config: Config, chosen: Method, seed: int, data: Unit) -> Unit:
    """The last unit of a method: its evaluation."""
    scored = (config.data.dataset, config.evaluate, known(METRICS))
    if not find(MODELS, chosen.model).trained:
        job = UntrainedJob(*scored, chosen, config.task, config.rollout)
        return Unit("evaluate", job, chosen.label, seed, (data,))
    emulator = trained(config, chosen, seed, data)
    sampled = None if chosen == chosen.emulated else chosen
    rollout = Unit("rollout", RolloutJob(config.rollout, sampled), chosen.label, seed, (data, emulator))
    return Unit("evaluate", EvaluateJob(*scored, sampled=sampled), chosen.label, seed, (data, emulator, rollout))


def trained(config: Config, chosen: Method, seed: int, data: Unit) -> Unit:
    """The unit that makes a method's emulator; of a budget, search and fine-tuning take their shares."""
    chosen = chosen.emulated
    base, budget, grows = chosen.trained, config.train.budget, config.search.mode == "grow"
    tuning = round(budget * config.finetune.share) if budget and chosen.finetune else 0
    search = config.search if base.searched and grows else None
    inputs = (data, search_unit(config, base.explored, seed, data)) if base.searched and not grows else (data,)
    explored = config.search.updates or 0 if base.searched and not grows else 0  # updates of an exploration of its own
    own = _left(budget, tuning + explored * config.train.batch)
    warm = base.searched and not grows and config.search.warm_start
    job = TrainJob(**_training(config, base), warm_start=warm, search=search, budget=own)
    # With a budget the training before a fine-tuning is shorter than that of the method without one: a unit of its own.
    train = Unit("train", job, chosen.label if tuning else base.label, seed, inputs)
    if not chosen.finetune:
        return train
    tuned = FinetuneJob(chosen, config.finetune, config.train, tuning or None)
    return Unit("finetune", tuned, chosen.label, seed, (data, train))


def _left(budget: int | None, spent: int) -> int | None:
    if budget is not None and spent >= budget:
        raise ValueError(f"train.budget {budget} leaves nothing to train: search and fine-tuning take {spent} of it")
    return None if budget is None else budget - spent


def search_unit(config: Config, base: Method, seed: int, data: Unit) -> Unit:
    """Exploration and ladder of a method."""
    if config.train.budget is not None and config.search.updates is None:
        raise ValueError("give search.updates: with train.budget a separate search takes them from it")
    start = find(PREDICTIONS, base.prediction).start if config.search.start == "auto" else config.search.start
    section = replace(config.search, start=start, warm_start=False)  # a warm start is the training's
    return Unit("search", SearchJob(**_training(config, base), search=section), base.label, seed, (data,))


def _training(config: Config, base: Method) -> dict[str, Any]:
    made = config.baselines
    with about("train.optimiser"):
        find(OPTIMISERS, config.train.optimiser)  # refused before anything is made
    settings = Settings(
        schedule=base.chain(made.levels, made.cap),
        transition=base.transition or config.rollout.transition,  # type: ignore[arg-type]
        refinements=made.refinements,
        sigma_min=made.sigma_min,
    )
    own = {"task": config.task, "network": config.network.of(base.network), "train": config.train}
    return {"method": base, "options": {**base.options(settings), **_given(config, base)}, **own}


def _given(config: Config, base: Method) -> dict[str, Any]:
    """Options of its model that the config gives."""
    with about("baselines.options"):
        for name in config.baselines.options:
            find(MODELS, name)
    found = config.baselines.options.get(base.model, {})
    taken = set(signature(find(MODELS, base.model)).parameters) - {"net", "frame", "schedule"}
    if unknown := sorted(found.keys() - taken):
        raise ValueError(
            f"baselines.options.{base.model} has no {unknown[0]}; it has {', '.join(sorted(taken)) or 'none'}"
        )
    try:
        if found:
            make(base.model, nn.Identity(), Frame(1), found)  # refused before anything is trained
    except (ValueError, TypeError) as error:
        raise ValueError(f"baselines.options.{base.model} {found}: {error}") from None
    return found


def data_unit(config: Config) -> Unit:
    """The data; files of one's own are known by their place, size and time of change."""
    data = config.data
    marks = {name: _mark(path, name) for name in ("train", "valid", "test") if (path := getattr(data, name))}
    return Unit("data", DataJob(data, marks))


def _mark(path: str, name: str) -> list[Any]:
    place = Path(path).expanduser().resolve()
    if not place.exists():
        raise ValueError(f"data.{name}: there is no data file {path}")
    if place.is_dir():  # its own size and time do not change with what the files in it hold
        inside = listed(place)
        return [str(place), [[p.relative_to(place).as_posix(), *_version(p)] for p in inside]]
    return [str(place), *_version(place)]


def _version(file: Path) -> list[int]:
    told = file.stat()
    return [told.st_size, told.st_mtime_ns]
