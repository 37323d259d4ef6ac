"""Time and memory of the `paper` presets on one A100-class GPU, from counted operations: python benchmarks/paper_cost.py

No GPU is asked. A forward and backward pass of each network is traced on torch's meta device, which computes shapes alone.
Every operation then takes the longest of three times (a roofline):

    its multiplications and additions  / (peak rate × UTILISATION)
    the bytes that it reads and writes / (bandwidth × BUSY)
    LAUNCH, the time to call it

Matrix products and convolutions run on tensor cores, in TF32 or in bfloat16; depthwise convolutions do not. Fields are 4
bytes wide, or 2 under bfloat16. The optimiser's traffic is added. Data generation, evaluations and the report are left
out; rollouts are counted. Memory is what `--dry-run` says: weights, gradients, optimiser, and what a batch keeps for its
gradient; without torch's own workspace.

UTILISATION, BUSY and LAUNCH are assumptions, not measurements: a half and twice the time are both possible.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from biasbound.models.model import MODELS
from biasbound.registry import find
from biasbound.study.graph import study_units
from biasbound.study.parsing import presets, read_config
from biasbound.study.plan import Plan, human, layout_of, plan
from biasbound.study.stages.data import source_of
from biasbound.study.stages.material import network_for, task_of

# NVIDIA's data sheet of the A100 80 GB: operations and bytes per second.
PEAK = {"tf32": 156e12, "bf16": 312e12}
PLAIN = 19.5e12  # float32 without tensor cores
BANDWIDTH = 1.94e12
UTILISATION = 0.35  # of the peak, in large products
BUSY = 0.7  # of the bandwidth
LAUNCH = 10e-6  # seconds that an operation takes at least, to be called from Python without torch.compile


def _depthwise(func: Any, args: Any) -> int:
    """Operations of a depthwise convolution, or of its gradient, which is two of them; 0 of all others."""
    aten = torch.ops.aten
    if func is aten.convolution.default and args[8] > 1:
        return 2 * args[0].numel() * args[1][0].numel()
    if func is aten.convolution_backward.default and args[9] > 1:
        return 4 * args[0].numel() * args[2][0].numel()
    return 0


@dataclass
class Work(TorchDispatchMode):
    """(operations, bytes, whether on tensor cores) of everything that is called inside."""

    done: list[tuple[float, float, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        views = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
        if views or func is torch.ops.aten._unsafe_view.default:
            return out  # nothing is moved
        tensors = [t for t in tree_leaves((args, kwargs, out)) if isinstance(t, torch.Tensor)]
        count = flop_registry.get(func._overloadpacket)
        flops = 0 if count is None else count(*args, **(kwargs or {}), out_val=out)
        depthwise = _depthwise(func, args)
        if depthwise:  # torch counts the gradient of its weights as if channels mixed
            flops = depthwise
        self.done.append((flops, 4.0 * sum(t.numel() for t in tensors), not depthwise))
        return out

    def seconds(self, precision: str) -> float:
        width = 1.0 if precision == "tf32" else 0.5
        rates = {True: PEAK[precision], False: PLAIN}
        return sum(
            max(flops / (rates[cores] * UTILISATION), width * moved / (BANDWIDTH * BUSY), LAUNCH)
            for flops, moved, cores in self.done
        )


def pass_of(config: Any, noisy: bool, batch: int, learn: bool = True) -> Work:
    """A pass of the network over a batch, forwards and, to learn, backwards."""
    layout = layout_of(config)
    task = task_of(config.task, layout)
    spec = network_for(config.network, layout, task, config.data.conditions)
    with torch.device("meta"):
        net: Any = spec.build(noisy)
        x, y = (torch.zeros(batch, n, *layout.grid) for n in (spec.inputs, spec.outputs))
        arguments = (y, x, torch.zeros(batch)) if noisy else (x,)
        with Work() as work, torch.set_grad_enabled(learn):
            out = net(*arguments)
            if learn:
                out.square().mean().backward()
    return work


def training(config: Any, one: Plan, passes: dict[bool, Work], precision: str) -> float:
    """Seconds of one training: its passes, and weights, gradients and two averages through the optimiser."""
    method = one.unit.job.method
    kind, tuning = find(MODELS, method.model), config.finetune
    chain = method.chain(config.baselines.levels)
    recipe = method.recipe(tuning.unroll, tuning.proxy_steps) if one.unit.stage == "finetune" else method.recipe()
    calls = kind.passes(recipe, 1 if chain is None else len(chain))
    moved = 28 * one.parameters / (BANDWIDTH * BUSY)
    return one.updates * (calls * passes[kind.noisy].seconds(precision) + moved)


def rollouts(config: Any, units: Sequence[Any], precision: str) -> float:
    """Seconds of all rollouts of the test split."""
    test, batch = source_of(config.data, "test").layout, config.rollout.batch
    steps = config.rollout.steps or len(range(0, test.frames, config.data.stride_time)) - 1
    single = {noisy: pass_of(config, noisy, batch, learn=False).seconds(precision) / batch for noisy in (True, False)}
    total = 0.0
    for unit in units:
        if unit.stage == "rollout":
            method = next(u for u in unit.inputs if u.stage in ("train", "finetune")).job.method
            chain, kind = method.chain(config.baselines.levels), find(MODELS, method.model)
            calls = (
                1 + config.baselines.refinements if method.model == "refiner" else 1 if chain is None else len(chain)
            )
            total += single[kind.noisy] * calls * steps * test.trajectories * config.rollout.members
    return total


def report(name: str) -> None:
    config = read_config(presets()[name])
    units = study_units(config)
    plans, layout = plan(config, units), layout_of(config)
    passes = {noisy: pass_of(config, noisy, config.train.batch) for noisy in (True, False)}
    print(f"\n{name}: {layout.trajectories} × {layout.frames} frames of {' × '.join(map(str, layout.grid))} points")
    print(f"{'training':34} {'weights':>9} {'updates':>9} {'operations':>11} {'memory':>9} {'TF32':>8} {'bf16':>8}")
    whole = dict.fromkeys(PEAK, 0.0)
    for one in plans:
        hours = {p: training(config, one, passes, p) / 3600 for p in PEAK}
        whole = {p: whole[p] + hours[p] for p in PEAK}
        told = f"{human(one.parameters):>9} {one.updates:9,} {human(one.flops):>11} {one.bytes / 2**30:6.1f} GiB"
        print(f"{one.unit.name:34} {told} {hours['tf32']:6.1f} h {hours['bf16']:6.1f} h")
    rolled = {p: rollouts(config, units, p) / 3600 for p in PEAK}
    most = max(one.bytes for one in plans) / 2**30
    print(f"rollouts {rolled['tf32']:.2f} h in TF32; largest training {most:.1f} GiB")
    days = ", ".join(f"{(whole[p] + rolled[p]) / 24:.1f} days in {p}" for p in PEAK)
    print(
        f"{name}: {human(sum(one.flops for one in plans))} operations; {days}, on one GPU, one training after the other"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=[name for name in presets() if name.endswith("-paper")])
    given = parser.parse_args()
    print(f"assumed: {UTILISATION:.0%} of {', '.join(f'{v / 1e12:g} T/s {p}' for p, v in PEAK.items())}")
    print(
        f"and {BUSY:.0%} of {BANDWIDTH / 1e12:g} TB/s; depthwise convolutions at {UTILISATION:.0%} of {PLAIN / 1e12:g} T/s;"
    )
    print(f"at least {1e6 * LAUNCH:g} µs an operation")
    for name in given.presets:
        report(name)


if __name__ == "__main__":
    main()
