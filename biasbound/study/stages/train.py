"""Stages 3 and 4: the training that every method gets, and Proxy Unrolled Training of a trained one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from biasbound._io import remove, write_text
from biasbound.core.bias import bias_curve
from biasbound.core.denoise import NetDenoiser
from biasbound.core.schedule import Schedule
from biasbound.models.artifact import Model
from biasbound.models.emulator import Emulator, load
from biasbound.models.method import Method
from biasbound.models.weights import load_tensors
from biasbound.study.config import Config
from biasbound.study.stages.material import Material, planes, seeded
from biasbound.study.stages.search import fit_options
from biasbound.train.observers import JsonlLog, read_rows
from biasbound.train.options import FitOptions
from biasbound.train.trainer import Observer, Trainer, distributed

__all__ = ["make_finetune", "make_train"]


def make_train(
    config: Config,
    chosen: Method,
    seed: int,
    material: Material,
    folder: Path,
    searched: Path | None,
    observers: Sequence[Observer] = (),
) -> dict[str, Any]:
    """Train a method and write its emulator; `searched` is the folder of its search, where it has one."""
    schedule = chosen.schedule()
    if searched is not None:
        schedule = Schedule.load(searched / "schedule.json")
    elif schedule is not None and config.baselines.cap is not None:
        schedule = schedule.capped(config.baselines.cap)
    torch.manual_seed(seed)
    model = chosen.model(material.network, material.scale).to(material.device)
    if searched is not None and config.search.warm_start:
        model.load_state_dict(load_tensors(searched / "start.safetensors")[0])
    options = fit_options(config.train, seed)
    return _fit(config, chosen, model, schedule, options, material, folder, observers)


def make_finetune(
    config: Config,
    chosen: Method,
    seed: int,
    material: Material,
    folder: Path,
    trained: Path,
    observers: Sequence[Observer] = (),
) -> dict[str, Any]:
    """Proxy Unrolled Training, from the emulator that training left in `trained`."""
    start, section = load(trained / "emulator"), config.finetune
    start.model.to(material.device)
    _, items = material.batches(1)
    updates = section.updates or max(1, fit_options(config.train, seed).total(items) // 5)
    options = fit_options(
        config.train, seed, updates=updates, epochs=None, lr=section.lr, lr_final=0.0, warmup=0
    )
    chosen = replace(
        chosen, unroll=section.unroll, proxy_steps=section.proxy_steps, detach=section.detach
    )
    if start.schedule is not None and section.proxy_steps > start.schedule.top:
        raise ValueError(
            f"finetune.proxy_steps {section.proxy_steps} is beyond the schedule's {len(start.schedule)} levels"
        )
    return _fit(config, chosen, start.model, start.schedule, options, material, folder, observers)


def _fit(
    config: Config,
    chosen: Method,
    model: Model,
    schedule: Schedule | None,
    options: FitOptions,
    material: Material,
    folder: Path,
    observers: Sequence[Observer],
) -> dict[str, Any]:
    batch, items = material.batches(chosen.window)
    trainer = Trainer(
        model,
        chosen.loss(None if schedule is None else lambda: schedule),
        batch,
        items,
        options,
        folder=folder / "train",
        observers=[JsonlLog(folder / "log.jsonl"), *observers],
        evaluate=_measured(config, schedule, material, folder),
        evaluate_every=max(1, options.total(items) // config.train.evaluations),
    )
    trainer.run()
    emulator = _emulator(trainer.averaged, schedule, config, material, chosen, trainer)
    if trainer.rank.rank == 0:
        remove(folder / "emulator")  # of an earlier attempt, killed before it was recorded
        emulator.save(folder / "emulator")
        remove(folder / "train")
    return {
        "updates": trainer.progress.update,
        "nfe": emulator.nfe,
        "parameters": sum(p.numel() for p in trainer.averaged.parameters()),
    }


def _emulator(
    model: nn.Module,
    schedule: Schedule | None,
    config: Config,
    material: Material,
    chosen: Method | None = None,
    trainer: Trainer | None = None,
) -> Emulator:
    meta: dict[str, Any] = {"dataset": config.data.dataset}
    if chosen is not None and trainer is not None:
        meta |= {
            "method": chosen.label,
            "seed": trainer.options.seed,
            "updates": trainer.progress.update,
        }
    assert isinstance(model, Model)
    return Emulator(
        model=model,
        normalisation=material.normalisation,
        channels=material.train.channels,
        dt=material.train.dt,
        schedule=schedule,
        transition=config.rollout.transition,
        conditions=material.train.conditions,
        meta=meta,
    )


def _measured(
    config: Config, schedule: Schedule | None, material: Material, folder: Path
) -> Callable[[nn.Module, int], Mapping[str, float]]:
    """What is measured during a training, on valid pairs: one-step MSE and, along a chain, the biases."""
    pairs = material.pairs("valid", config.train.pairs)

    def measure(model: nn.Module, update: int) -> Mapping[str, float]:
        emulator = _emulator(model, schedule, config, material)
        y_est = emulator.advance(pairs.frames[:, 0], planes(pairs), seeded(update))
        error = (y_est - pairs.y).square().mean().item()
        if schedule is not None:
            assert isinstance(model, NetDenoiser)
            curve = bias_curve(
                model,
                pairs.x,
                pairs.y,
                schedule,
                draws=1,
                generator=seeded(update),
                transition=config.rollout.transition,
            )
            if distributed().rank == 0:
                _remember(folder / "chain.jsonl", update, [row.as_dict() for row in curve])
        return {"valid_mse_norm": error}

    return measure


def _remember(path: Path, update: int, rows: list[dict[str, Any]]) -> None:
    """Add a line; those of an earlier attempt that went further are dropped."""
    kept = [r for r in (read_rows(path) if path.exists() else []) if r["update"] < update]
    lines = [*kept, {"update": update, "rows": rows}]
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))
