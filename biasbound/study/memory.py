"""The memory of a study's trainings and rollouts, before anything is computed."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import torch

from biasbound.core.schedule import log_uniform
from biasbound.data.batches import Batch
from biasbound.data.layout import Layout
from biasbound.models.method import Method
from biasbound.models.model import Model, Settings
from biasbound.nets import NetSpec
from biasbound.study.config import Config
from biasbound.study.folder import Unit
from biasbound.study.graph import methods_of
from biasbound.study.stages.material import network_for, task_of
from biasbound.study.stages.search import fit_options
from biasbound.train.footprint import of_step, of_update

__all__ = ["rollout_bytes", "training_bytes"]


@dataclass(frozen=True)
class _Empty(NetSpec):
    """A network that is built without values."""

    def build(self, noisy: bool = True) -> Any:
        with torch.device("meta"):
            return super().build(noisy)


def _model(config: Config, chosen: Method, layout: Layout) -> Model:
    """The model of a method, without values; a ladder that is still to be found has a few levels."""
    task = task_of(config.task, layout)
    found = network_for(config.network.of(chosen.network), layout, task, config.data.conditions)
    spec = _Empty(**{f.name: getattr(found, f.name) for f in fields(found)})
    made = config.baselines
    settings = Settings(chosen.chain(made.levels, made.cap) or log_uniform(3), refinements=made.refinements)
    return chosen.build(spec, task, 1.0, chosen.options(settings)).to("meta")


def training_bytes(config: Config, unit: Unit, layout: Layout) -> int:
    """Of a training of these data, at its highest; a network in bf16 is taken to be in float32."""
    chosen, tuning = unit.job.method, config.finetune
    model = _model(config, chosen, layout)
    if unit.stage == "finetune":
        model.recipe = chosen.recipe(tuning.unroll, tuning.proxy_steps, tuning.detach)
    window = model.frame.task.window(model.recipe.unroll) + 1, *layout.shape[2:]

    def data(index: Any) -> Batch:
        planes = len(config.data.conditions), *layout.grid
        return Batch(*(torch.empty(len(index), *shape, device="meta") for shape in (window, planes)))

    return of_update(model, data, fit_options(config.train, 0))


def rollout_bytes(config: Config, units: Iterable[Unit], layout: Layout) -> dict[str, int]:
    """Of each rollout over test data of this layout, by the name of its unit; left out where a network has to see values."""
    found: dict[str, int] = {}
    known: dict[str, int | None] = {}
    methods = methods_of(config.methods)  # a label leaves out where a schedule file is
    for unit in units:
        if unit.stage == "rollout":
            if unit.label not in known:
                known[unit.label] = _rolled(config, methods[unit.label], layout)
            if (size := known[unit.label]) is not None:
                found[unit.name] = size
    return found


def _rolled(config: Config, chosen: Method, layout: Layout) -> int | None:
    wanted = config.rollout
    rows = min(wanted.trajectories or layout.trajectories, layout.trajectories) * wanted.members
    try:
        model = _model(config, chosen, layout)
        frames = torch.empty(min(wanted.batch, rows), model.frame.task.past, *layout.shape[2:], device="meta")
        planes = torch.empty(len(frames), len(config.data.conditions), *layout.grid, device="meta")
        return of_step(model, model.frame.task.given(frames, planes), rows)
    except (ValueError, RuntimeError):
        return None
