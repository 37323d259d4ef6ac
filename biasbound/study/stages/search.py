"""Stage 2: explore the stability thresholds, then the greedy ladder, with everything that was measured on the way."""

import math
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from biasbound._io import plain, remove, write_json
from biasbound.core.bias import Estimate, TwoStepTable
from biasbound.core.ladder import grid, ladder
from biasbound.core.options import SearchOptions
from biasbound.core.schedule import Schedule
from biasbound.core.search import Exploration, ForcedTransition
from biasbound.models.weights import save_tensors
from biasbound.study.jobs import SearchJob
from biasbound.study.stages.material import task_of
from biasbound.study.stages.place import Place
from biasbound.train.explorer import Explorer
from biasbound.train.grow import Grown
from biasbound.train.options import FitOptions, TrainOptions
from biasbound.train.trainer import Trainer


def fit_options(config: TrainOptions, seed: int, **changes: Any) -> FitOptions:
    """The options of one training from the config's section."""
    own = {f.name: getattr(config, f.name) for f in fields(TrainOptions)}
    return FitOptions(**{**own, "seed": seed, **changes})


def make_search(job: SearchJob, place: Place) -> dict[str, Any]:
    """Write schedule.json, landscape.json, exploration.json and θ*(σ_0); returns facts for the record."""
    material, folder, task = place.material, place.folder, task_of(job.task, place.material.train.layout)
    budget = {} if job.search.updates is None else {"updates": job.search.updates, "epochs": None}
    options = SearchOptions(**{f.name: getattr(job.search, f.name) for f in fields(SearchOptions)})
    torch.manual_seed(place.seed)
    spec = material.network(job.network, task)
    told = {**job.options, "schedule": grid(options)}
    made: Any = job.method.build(spec, task, material.scale(task), told, material.mask)
    batch, items = material.batches(task.window(), job.train.symmetries)
    trainer = Trainer(
        made.to(material.device),
        batch,
        items,
        fit_options(job.train, place.seed, **budget),
        folder=folder / "explore",
        observers=place.followers(job.train.tensorboard),
    )
    x, y = material.pairs("valid", job.search.pairs, task)
    explorer = Explorer(options)
    found = explorer.run(trainer, x, y)
    denoisers = explorer.denoisers(trainer, found)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForcedTransition)  # recorded in the schedule, and told from there
        schedule, table = ladder(denoisers, x, y, options, start=made.rule.start, transition=made.transition)
    if trainer.rank.rank == 0:
        _write(folder, schedule, table, found, explorer)
        start = denoisers[schedule.sigma[0]].state_dict()
        save_tensors(folder / "start.safetensors", start, {"sigma": schedule.sigma[0]})
        remove(folder / "explore")
    return {
        "updates": trainer.progress.update,
        "ledger": trainer.progress.ledger,
        "levels": len(schedule),
        "forced": len(schedule.meta["forced"]),
        "solved": len(found.solved),
        "stopped": found.stopped,
    }


def _write(folder: Path, schedule: Schedule, table: TwoStepTable, found: Exploration[int], explorer: Explorer) -> None:
    exploration = {
        "levels": found.levels,
        "tau": found.tau,
        "options": plain(explorer.options),
        "stopped": found.stopped,
        "solved": {repr(s): [v.checkpoint, v.bias, v.round] for s, v in found.solved.items()},
        "points": explorer.points,
    }
    write_json(
        folder / "landscape.json", _landscape(schedule, table, explorer.options.tau, explorer.options.statistic), None
    )
    write_json(folder / "exploration.json", exploration, None)
    schedule.save(folder / "schedule.json")


def _landscape(schedule: Schedule, table: TwoStepTable, tau: float, statistic: str) -> dict[str, Any]:
    """Every two-step bias between the levels, which of its statistics τ bounds, and the clean errors of the levels."""
    biases = [{"to": to, "from": start, **told_of(bias)} for to, start, bias in table.matrix()]
    return {
        "tau": tau,
        "statistic": statistic,
        "start": schedule.meta["start"],
        "start_sigma": schedule.sigma[0],
        "levels": table.levels,
        "clean": [{"sigma": s, **told_of(table.clean_error(s))} for s in table.levels],
        "biases": biases,
    }


def told_of(found: Estimate) -> dict[str, float | None]:
    """Mean, standard error and, of a bias, its other statistics; a single pair has no error, and JSON no infinity."""
    told = {name: getattr(found, name) for name in ("mean", "stderr", "pooled", "q95")}
    return {k: v if v is None or math.isfinite(v) else None for k, v in told.items() if v is not None}


def _point(ladder: Schedule, error: Estimate) -> dict[str, Any]:
    return {"calls": len(ladder), "sigma": ladder.sigma, **told_of(error)}


def write_growth(grown: Grown, folder: Path, rank: int = 0) -> None:
    """Write schedule.json, landscape.json, growth.json and front.json of a ladder that grew."""
    if rank != 0:
        return
    front = [_point(*found) for _, found in sorted(grown.front.items())]
    told = {"chosen": len(grown.schedule), "front": front, "greedy": _point(*grown.greedy), "score": grown.score}
    write_json(folder / "landscape.json", _landscape(grown.schedule, grown.table, grown.tau, grown.statistic), None)
    write_json(folder / "growth.json", {"tau": grown.tau, "c": grown.growth.c, "rounds": grown.growth.history}, None)
    write_json(folder / "front.json", told, None)
    grown.schedule.save(folder / "schedule.json")
