"""Stages 3 and 4: the training that every method gets, and unrolled fine-tuning of a trained one."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from biasbound._io import read_lines, remove, write_lines
from biasbound.core.bias import Measure, bias_curve
from biasbound.core.ladder import grid
from biasbound.core.mask import error_of
from biasbound.core.schedule import Schedule
from biasbound.models.diffusion import chain_of
from biasbound.models.emulator import Emulator, load
from biasbound.models.method import Method
from biasbound.models.model import Model
from biasbound.models.weights import load_tensors
from biasbound.study.config import SearchConfig, TrainConfig
from biasbound.study.jobs import FinetuneJob, TrainJob
from biasbound.study.stages.material import seeded, task_of
from biasbound.study.stages.place import Place
from biasbound.study.stages.search import fit_options, write_growth
from biasbound.train.grow import Grower
from biasbound.train.options import FitOptions
from biasbound.train.ranks import distributed
from biasbound.train.trainer import Trainer


def make_train(job: TrainJob, place: Place) -> dict[str, Any]:
    """Train a method and write its emulator; a searched one takes its ladder from its search, or grows it."""
    material, options = place.material, dict(job.options)
    task = task_of(job.task, material.train.layout)
    searched = place.inputs.get("search")
    if searched is not None:
        options["schedule"] = Schedule.load(searched / "schedule.json")
    elif job.search is not None:
        options["schedule"] = Schedule([grid(job.search).sigma[-1]])
    torch.manual_seed(place.seed)
    spec = material.network(job.network, task)
    model = job.method.build(spec, task, material.scale(task), options, material.mask).to(material.device)
    if searched is not None and job.warm_start:
        model.load_state_dict(load_tensors(searched / "start.safetensors")[0])
    fit = _within(fit_options(job.train, place.seed), job.budget, model)
    return _fit(job.method, model, job.train, fit, place, job.search)


def make_finetune(job: FinetuneJob, place: Place) -> dict[str, Any]:
    """Unrolled training, from the emulator that training left."""
    start, section = load(place.inputs["train"] / "emulator"), job.finetune
    model = start.model.to(place.material.device)
    _, items = place.material.batches(model.frame.task.window(), job.train.symmetries)
    updates = section.updates or max(1, fit_options(job.train, place.seed).total(items) // 5)
    # An unrolled loss asks about batches of many sizes: to compile code for them takes longer than a fine-tuning.
    rates = {"lr": section.lr, "lr_final": section.lr_final, "warmup": 0, "keep": "last", "compile": False}
    model.recipe = job.method.recipe(section.unroll, section.proxy_steps, section.detach)
    if start.schedule is not None and section.proxy_steps > start.schedule.top:
        raise ValueError(
            f"finetune.proxy_steps {section.proxy_steps} is beyond the schedule's {len(start.schedule)} levels"
        )
    fit = fit_options(job.train, place.seed, updates=updates, epochs=None, **rates)
    fit = _within(fit, job.budget, model)
    # The optimiser starts anew, and its first steps know next to nothing of the curvature.
    fit = replace(fit, warmup=round(section.warmup * (fit.updates or 0)))
    return _fit(job.method, model, job.train, fit, place)


def _within(options: FitOptions, budget: int | None, model: Model) -> FitOptions:
    """As many updates as a budget of training samples pays for."""
    if budget is None:
        return options
    passes = model.passes(model.recipe, model.calls)
    return replace(options, updates=options.afforded(budget, passes), epochs=None)


def _fit(
    method: Method,
    model: Model,
    train: TrainConfig,
    options: FitOptions,
    place: Place,
    search: SearchConfig | None = None,
) -> dict[str, Any]:
    folder, task = place.folder, model.frame.task
    batch, items = place.material.batches(task.window(model.recipe.unroll), train.symmetries)
    trainer = Trainer(
        model,
        batch,
        items,
        options,
        folder=folder / "train",
        observers=place.followers(train.tensorboard),
        evaluate=_measured(train, place),
        evaluate_every=max(1, options.total(items) // train.evaluations),
    )
    if search is None:
        trainer.run()
    else:
        x, y = place.material.pairs("valid", search.pairs, task)
        write_growth(Grower(search, trainer, x, y).run(), folder, trainer.rank.rank)
    spent = {"updates": trainer.progress.update, "ledger": trainer.progress.ledger}
    data = place.material.train
    emulator = Emulator(
        model=trainer.kept,
        normalisation=place.material.normalisation,
        channels=data.channels,
        dt=data.dt,
        conditions=data.conditions,
        meta={"dataset": data.layout.name, "method": method.label, "seed": options.seed, **spent},
    )
    if trainer.rank.rank == 0:
        remove(folder / "emulator")  # of an earlier attempt, killed before it was recorded
        emulator.save(folder / "emulator")
        remove(folder / "train")
    return {**spent, "nfe": emulator.nfe, "parameters": sum(p.numel() for p in model.parameters())}


def _measured(train: TrainConfig, place: Place) -> Callable[[nn.Module, int], Mapping[str, float]]:
    """What is measured during a training, on valid pairs: one-step MSE and, along a chain, the biases."""
    pairs: dict[str, Any] = {}

    @torch.no_grad()
    def measure(model: Any, update: int) -> Mapping[str, float]:
        if not pairs:
            pairs["x"], pairs["y"] = place.material.pairs("valid", train.pairs, model.frame.task)
        x, y = pairs["x"], pairs["y"]
        error = error_of(model, model.advance(x, seeded(update)), y).square().mean().item()
        if (chain := chain_of(model)) is not None:
            how = Measure(draws=1, generator=seeded(update), transition=chain.transition)
            rows = [row.as_dict() for row in bias_curve(chain, x, y, chain.schedule, how)]
            if distributed().rank == 0:
                _remember(place, update, rows)
        return {"valid_mse_norm": error}

    return measure


def _remember(place: Place, update: int, rows: list[dict[str, Any]]) -> None:
    """Add a line; those of an earlier attempt that went further are dropped."""
    path = place.folder / "chain.jsonl"
    before: list[dict[str, Any]] = read_lines(path, torn=True) if path.exists() else []
    write_lines(path, [*(r for r in before if r["update"] < update), {"update": update, "rows": rows}])
