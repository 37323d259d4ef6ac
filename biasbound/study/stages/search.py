"""Stage 2: explore the stability thresholds, then the greedy ladder, with everything that was measured on the way."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from biasbound._io import remove, write_text
from biasbound.core.bias import TwoStepTable
from biasbound.core.schedule import Schedule
from biasbound.core.search import Exploration, ForcedTransition
from biasbound.models.method import Method
from biasbound.models.weights import save_tensors
from biasbound.study.config import Config, SearchConfig
from biasbound.study.stages.material import Material
from biasbound.train.explorer import Explorer, ladder
from biasbound.train.observers import JsonlLog
from biasbound.train.options import FitOptions, SearchOptions, TrainOptions
from biasbound.train.trainer import Observer, Trainer

__all__ = ["fit_options", "make_search"]


def fit_options(config: TrainOptions, seed: int, **changes: Any) -> FitOptions:
    """The options of one training from the config's section."""
    own = {f.name: getattr(config, f.name) for f in fields(TrainOptions)}
    return FitOptions(**{**own, "seed": seed, **changes})


def make_search(
    config: Config,
    chosen: Method,
    seed: int,
    material: Material,
    folder: Path,
    observers: Sequence[Observer] = (),
) -> dict[str, Any]:
    """Write schedule.json, landscape.json, exploration.json and θ*(σ_0); returns facts for the record."""
    section = config.search
    budget = {} if section.updates is None else {"updates": section.updates, "epochs": None}
    options = fit_options(config.train, seed, **budget)
    searching = _options(section)
    explorer = Explorer(searching)
    torch.manual_seed(seed)
    model = chosen.model(material.network, material.scale).to(material.device)
    batch, items = material.batches(chosen.window)
    trainer = Trainer(
        model,
        chosen.loss(lambda: explorer.active),
        batch,
        items,
        options,
        folder=folder / "explore",
        observers=[JsonlLog(folder / "log.jsonl"), *observers],
    )
    pairs = material.pairs("valid", section.pairs)
    found = explorer.run(trainer, pairs.x, pairs.y)
    denoisers = explorer.denoisers(trainer, found)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ForcedTransition
        )  # recorded in the schedule, and told from there
        schedule, table = ladder(denoisers, pairs.x, pairs.y, searching)
    if trainer.rank.rank == 0:
        _write(folder, schedule, table, found, explorer, searching)
        save_tensors(
            folder / "start.safetensors",
            denoisers[schedule.sigma[0]].state_dict(),
            {"sigma": schedule.sigma[0]},
        )
        remove(folder / "explore")
    return {
        "updates": trainer.progress.update,
        "levels": len(schedule),
        "forced": len(schedule.meta["forced"]),
        "solved": len(found.solved),
        "stopped": found.stopped,
    }


def _options(section: SearchConfig) -> SearchOptions:
    return SearchOptions(**{f.name: getattr(section, f.name) for f in fields(SearchOptions)})


def _write(
    folder: Path,
    schedule: Schedule,
    table: TwoStepTable,
    found: Exploration[int],
    explorer: Explorer,
    options: SearchOptions,
) -> None:
    biases = [
        {"to": to, "from": start, "mean": bias.mean, "stderr": bias.stderr}
        for to, start, bias in table.matrix()
    ]
    clean = [
        {"sigma": s, "mean": table.clean_error(s).mean, "stderr": table.clean_error(s).stderr}
        for s in table.levels
    ]
    landscape = {
        "tau": options.tau,
        "start": schedule.meta["start"],
        "start_sigma": schedule.sigma[0],
        "levels": table.levels,
        "clean": clean,
        "biases": biases,
    }
    exploration = {
        "levels": found.levels,
        "tau": found.tau,
        "options": asdict(options),
        "stopped": found.stopped,
        "solved": {repr(s): [v.checkpoint, v.bias, v.round] for s, v in found.solved.items()},
        "points": explorer.points,
    }
    write_text(folder / "landscape.json", json.dumps(landscape) + "\n")
    write_text(folder / "exploration.json", json.dumps(exploration) + "\n")
    schedule.save(folder / "schedule.json")
