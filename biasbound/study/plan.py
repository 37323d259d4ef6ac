"""What a study will cost, before anything is computed: parameters, updates, operations and memory of each training."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from biasbound.data.layout import Layout, Split
from biasbound.data.symmetries import Symmetry
from biasbound.models.method import Method
from biasbound.models.model import MODELS, Model
from biasbound.nets import NETS, NetSpec
from biasbound.registry import find
from biasbound.study.checks import about
from biasbound.study.config import Config
from biasbound.study.folder import TRAININGS, Unit
from biasbound.study.graph import methods_of
from biasbound.study.memory import training_bytes
from biasbound.study.stages.data import found, source_of
from biasbound.study.stages.material import network_for, task_of

BYTES = 4  # a float32


@dataclass(frozen=True)
class Plan:
    """One training: the operations count multiplications and additions of all its updates, forwards and backwards."""

    unit: Unit
    parameters: int
    updates: int
    flops: float
    bytes: int  # at the highest: weights, gradients, optimiser, average and activations of one batch


def require_possible(config: Config) -> None:
    """Refuse, before any work, what the shapes of the data rule out: network, task, rollouts that are too long."""
    layout, wanted = layout_of(config), config.rollout
    task = task_of(config.task, layout)
    network_for(config.network, layout, task, config.data.conditions)
    if layout.frames <= task.window():
        raise ValueError(
            f"task.history {config.task.history}, data.stride_time {config.data.stride_time}: it needs {task.window() + 1} frames, but trajectories of {layout.name} have {layout.frames}"
        )
    if config.train.batch > (pairs := layout.trajectories * (layout.frames - task.window())):
        raise ValueError(f"train.batch is {config.train.batch}, but the training data have {pairs} pairs")
    for label, each in methods_of(config.methods).items():
        if each.network:
            try:
                network_for(config.network.of(each.network), layout, task, config.data.conditions)
            except ValueError as error:
                said = str(error).replace("network.options", f"network.others: {each.network}")
                raise ValueError(said) from error
        if task.past + (past := each.recipe(config.finetune.unroll).unroll) >= layout.frames:
            option = "finetune.unroll" if each.finetune else "methods"
            raise ValueError(
                f"{option}: {label} unrolls {past} frames beyond the first, but trajectories have {layout.frames}"
            )
    for text in config.train.symmetries:
        Symmetry.read(text, layout)
    with about("network.others"):
        for name in config.network.others:
            find(NETS, name)
    test = layout_of(config, "test")
    if (wanted.trajectories or 1) > test.trajectories:
        raise ValueError(f"rollout.trajectories is {wanted.trajectories}, but the test split has {test.trajectories}")
    if task.advances and (wanted.steps or 1) > test.frames - task.past:
        left = test.frames - task.past
        raise ValueError(f"rollout.steps is {wanted.steps}, but {left} frames of the test split follow those given")


def layout_of(config: Config, split: Split = "train") -> Layout:
    """Shape of a split as the emulators see it; generated data need not be there."""
    data = config.data
    if data.train is not None:
        return found(data, split).open().layout
    made = source_of(data, split).layout
    if any(n % data.stride_space for n, around in zip(made.grid, made.periodic, strict=True) if around):
        raise ValueError(
            f"data.stride_space {data.stride_space} divides no periodic axis of {made.grid} points evenly"
        )
    grid = tuple(len(range(0, n, data.stride_space)) for n in made.grid)
    frames = len(range(0, made.frames, data.stride_time))
    return replace(made, frames=frames, grid=grid, dt=made.dt * data.stride_time)


def plan(config: Config, units: Iterable[Unit]) -> list[Plan]:
    """The trainings among the units."""
    layout, found = layout_of(config), dict[tuple[str, str], Plan]()
    for unit in (trainings := [unit for unit in units if unit.stage in TRAININGS]):
        if (unit.stage, unit.label) not in found:  # all seeds cost the same
            found[unit.stage, unit.label] = _training(config, unit, layout)
    return [replace(found[unit.stage, unit.label], unit=unit) for unit in trainings]


def _training(config: Config, unit: Unit, layout: Layout) -> Plan:
    chosen: Method = unit.job.method
    batch, tuning, task = config.train.batch, config.finetune, task_of(config.task, layout)
    updates = config.train.total(layout.trajectories * (layout.frames - task.window()))
    if unit.stage == "search":
        updates = config.search.updates or updates
    elif unit.stage == "finetune":
        updates = tuning.updates or max(1, updates // 5)
    spec = network_for(config.network.of(chosen.network), layout, task, config.data.conditions)
    forward, kept, parameters = _measured(chosen, chosen.widened(spec), layout)
    kind: type[Model] = find(MODELS, chosen.model)
    schedule = chosen.chain(config.baselines.levels)
    levels = 1 if schedule is None else len(schedule)
    calls = kind.passes(chosen.recipe(tuning.unroll, tuning.proxy_steps), levels)
    if budget := getattr(unit.job, "budget", None):  # a search has none
        updates = config.train.afforded(budget, calls)
    flops = 3.0 * forward * batch * calls * updates
    try:
        memory = training_bytes(config, unit, layout)
    except (ValueError, RuntimeError):  # of a network or task that wants to see numbers
        weights = parameters * BYTES * (5 if config.train.ema is not None else 4)
        memory = weights + round(kept * batch * calls)
    return Plan(unit, parameters, updates, flops, memory)


def _measured(chosen: Method, spec: NetSpec, layout: Layout) -> tuple[int, int, int]:
    """(operations of a forward pass, bytes kept for the gradient, parameters), one sample, without computing it."""
    noisy = find(MODELS, chosen.model).noisy
    try:
        return _traced(spec, noisy, layout, "meta")
    except (ValueError, RuntimeError):  # of a network that wants to see numbers, or that has a real problem to tell
        return _traced(spec, noisy, layout, "cpu")


def _traced(spec: NetSpec, noisy: bool, layout: Layout, device: str) -> tuple[int, int, int]:
    with torch.device(device):
        net: Any = spec.build(noisy).eval()
        x = torch.zeros(1, spec.inputs, *layout.grid)
        y = torch.zeros(1, spec.outputs, *layout.grid)
        arguments = (y, x, torch.zeros(1)) if noisy else (x,)
        kept: dict[int, int] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            kept[id(tensor)] = tensor.numel() * BYTES
            return tensor

        hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
        with FlopCounterMode(display=False) as counter, hooks:
            net(*arguments)
    parameters = sum(p.numel() for p in net.parameters())
    return counter.get_total_flops(), sum(kept.values()), parameters


def human(count: float) -> str:
    """3 significant digits with a unit prefix."""
    for prefix in ("", "k", "M", "G", "T", "P", "E"):
        if count < 1000:
            return f"{count:.3g} {prefix}".rstrip()
        count /= 1000
    return f"{count:.3g} Z"
