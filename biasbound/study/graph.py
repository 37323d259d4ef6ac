"""Which units a study is made of, and what the result of each hangs on.

data ─┬─ search ─ train ─ finetune ─ rollout ─ evaluate      (adaptive-proxy; without -proxy no finetune)
      └─ train ─ rollout ─ evaluate                           (every other method)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from biasbound.models.method import Method, method
from biasbound.study.config import Config
from biasbound.study.folder import STAGES, Unit
from biasbound.study.parsing import plain
from biasbound.train.options import start_rule

__all__ = ["base_of", "closure", "study_units", "trained", "unit_of"]

# Fields that change how a unit is made, but not what it is.
MANNER = ("checkpoint_every", "compile")


def base_of(label: str) -> Method:
    """The method whose training a label starts from: itself, or that without -proxy."""
    return method(label.removesuffix("-proxy"))


def study_units(
    config: Config, methods: Sequence[str] | None = None, upto: str = "evaluate"
) -> list[Unit]:
    """Every unit of the study up to a stage, each after those that it reads."""
    last = list(STAGES).index(upto)
    data = data_unit(config)  # once: a folder of many files takes time to look through
    wanted = [
        unit_of(config, label, seed, data)
        for seed in config.seeds
        for label in (methods or config.methods)
    ]
    every = closure(wanted) if last > 0 else [data]
    return [unit for unit in every if list(STAGES).index(unit.stage) <= last]


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


def unit_of(config: Config, label: str, seed: int, data: Unit) -> Unit:
    """The last unit of a method: its evaluation."""
    emulator = trained(config, label, seed, data)
    rollout = Unit("rollout", label, seed, {"rollout": plain(config.rollout)}, (data, emulator))
    return Unit("evaluate", label, seed, {"evaluate": plain(config.evaluate)}, (data, rollout))


def trained(config: Config, label: str, seed: int, data: Unit) -> Unit:
    """The unit that makes a method's emulator."""
    chosen, base = method(label), base_of(label)
    inputs: tuple[Unit, ...] = (data,)
    if base.base == "adaptive":
        inputs = (data, search_unit(config, base.explored(), seed, data))
    settings = {
        "method": _without(replace(base, **_baseline(config, base)), "lowest"),
        "network": plain(config.network),
        "train": _result(config.train),
    }
    if base.base in ("linear", "cosine", "sigmoid", "log-uniform"):
        settings["cap"] = config.baselines.cap
    if base.base == "adaptive":
        settings["warm_start"] = config.search.warm_start
    train = Unit("train", base.label, seed, settings, inputs)
    if not chosen.proxy:
        return train
    tuning = {"finetune": plain(config.finetune), "train": _result(config.train)}
    return Unit("finetune", label, seed, tuning, (data, train))


def search_unit(config: Config, base: Method, seed: int, data: Unit) -> Unit:
    """Exploration and ladder of a method."""
    search = _without(config.search, "ahead")
    del search["warm_start"]  # which is the training's
    search["start"] = start_rule(config.search.start, base.prediction == "x0")
    settings = {
        "method": _without(base, "lowest"),
        "network": plain(config.network),
        "search": search,
        "train": _result(config.train),
    }
    return Unit("search", base.label, seed, settings, (data,))


def data_unit(config: Config) -> Unit:
    """The data; files of one's own are known by their place, size and time of change."""
    data = config.data
    marks = {
        name: _mark(path) for name in ("train", "valid", "test") if (path := getattr(data, name))
    }
    return Unit("data", settings={"data": plain(data), "files": marks})


def _mark(path: str) -> list[Any]:
    place = Path(path).expanduser().resolve()
    if not place.exists():
        raise ValueError(f"there is no data file {path}")
    if place.is_dir():  # its own size and time do not change with what the files in it hold
        inside = sorted(p for p in place.rglob("*") if p.is_file())
        return [str(place), [[p.relative_to(place).as_posix(), *_version(p)] for p in inside]]
    return [str(place), *_version(place)]


def _version(file: Path) -> list[int]:
    told = file.stat()
    return [told.st_size, told.st_mtime_ns]


def _baseline(config: Config, base: Method) -> dict[str, Any]:
    """What the config says about this kind of method."""
    made = config.baselines
    if base.base == "refiner":
        return {"refinements": made.refinements, "sigma_min": made.sigma_min}
    return {"levels": made.levels} if base.base not in ("unet", "adaptive") else {}


def _without(told: Any, name: str) -> dict[str, Any]:
    """Plain fields, without one that is None: runs from before it existed keep their keys."""
    return {k: v for k, v in plain(told).items() if k != name or v is not None}


def _result(section: Any) -> dict[str, Any]:
    return {k: v for k, v in plain(section).items() if k not in MANNER}
