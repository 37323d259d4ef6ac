"""Memory that a dry run predicts, against what a training and a rollout take: python benchmarks/footprint.py [--cases …]

Each case runs in a process of its own. Measured is the highest resident memory (Linux's VmHWM, reset before the run)
above what the process had after the same run of a network of a few weights: Python, torch and the code of its kernels.
Predicted is what `biasbound run --dry-run` prints: the tensors of an update or a step that are alive at once.

glibc keeps freed blocks for later, and what it keeps is resident too. With `--returned` it gives every block of 64 kB and
more back at once (MALLOC_MMAP_THRESHOLD_), which is what tensors really take.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
from pathlib import Path

import numpy as np
import torch
from throughput import CASES

from biasbound.core.schedule import log_uniform
from biasbound.data.batches import Batch
from biasbound.models.diffusion import Diffusion
from biasbound.models.emulator import Emulator
from biasbound.models.model import Frame, Recipe
from biasbound.models.normalise import Normalisation
from biasbound.nets import ConditionalNet, UNetConfig
from biasbound.train.footprint import of_step, of_update
from biasbound.train.options import FitOptions
from biasbound.train.trainer import Trainer

TARGET = 0.2
TRAININGS = {  # name: (case, batch, recipe, options)
    "1-D small": ("1-D small", 1024, Recipe(), {}),
    "1-D large": ("1-D large", 512, Recipe(), {}),
    "2-D small": ("2-D small", 64, Recipe(), {}),
    "2-D large": ("2-D large", 32, Recipe(), {}),
    "2-D large, proxy-unrolled": ("2-D large", 16, Recipe(1, "proxy"), {}),
    "2-D large, SOAP": ("2-D large", 16, Recipe(), {"optimiser": "soap"}),
    "2-D large, in 4 parts": ("2-D large", 32, Recipe(), {"accumulate": 4}),
    "2-D large, recomputed": ("2-D large", 32, Recipe(), {"recompute": True}),
}
ROLLOUTS = {  # name: (case, batch, members)
    "1-D small, rollout": ("1-D small", 1024, 4096),
    "1-D large, rollout": ("1-D large", 512, 512),
    "2-D small, rollout": ("2-D small", 128, 256),
    "2-D large, rollout": ("2-D large", 64, 64),
}


def resident(what: str) -> int:
    """VmRSS or VmHWM of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(what))


def model(config: UNetConfig, recipe: Recipe, device: str = "cpu") -> Diffusion:
    with torch.device(device):
        net = ConditionalNet(config)
    made = Diffusion(net, Frame(config.out_channels), schedule=log_uniform(3), prediction="v")
    made.recipe = recipe
    return made.to(device)


def windows(config: UNetConfig, points: int, recipe: Recipe, device: str = "cpu"):
    shape = 2 + recipe.unroll, config.out_channels, *[points] * config.dims
    return lambda i: Batch(torch.ones(len(i), *shape, device=device), torch.ones(len(i), 0, *shape[2:], device=device))


def train(config: UNetConfig, points: int, batch: int, recipe: Recipe, told: dict[str, object]) -> None:
    options = FitOptions(updates=10, batch=batch, **told)
    run = Trainer(model(config, recipe), windows(config, points, recipe), batch, options)
    for _ in range(3):
        run.update()


def roll(config: UNetConfig, points: int, batch: int, members: int) -> None:
    units = Normalisation((0.0,) * config.out_channels, (1.0,) * config.out_channels)
    names = tuple(f"u{i}" for i in range(config.out_channels))
    emulator = Emulator(model(config, Recipe()), units, names, 1.0)
    for _ in emulator.stream(torch.ones(1, config.out_channels, *[points] * config.dims), 3, members, batch=batch):
        pass


def predicted(name: str) -> int:
    if name in TRAININGS:
        case, batch, recipe, told = TRAININGS[name]
        config, points, _ = CASES[case]
        options = FitOptions(updates=10, batch=batch, **told)
        return of_update(model(config, recipe, "meta"), windows(config, points, recipe, "meta"), options)
    case, batch, members = ROLLOUTS[name]
    config, points, _ = CASES[case]
    x = torch.empty(batch, config.out_channels, *[points] * config.dims, device="meta")
    return of_step(model(config, Recipe(), "meta"), x, members)


def measured(name: str) -> int:
    torch.set_num_threads(1)
    case, batch, *rest = (TRAININGS | ROLLOUTS)[name]
    config, points, _ = CASES[case]
    least = UNetConfig.from_dict({**config.to_dict(), "width": 8})
    run = train if name in TRAININGS else roll
    run(least, points, 4, *(rest if run is train else [4]))
    gc.collect()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    run(config, points, batch, *rest)
    return resident("VmHWM") - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=[*TRAININGS, *ROLLOUTS])
    parser.add_argument("--returned", action="store_true", help="freed blocks go back to the system at once")
    given, ratios = parser.parse_args(), []
    if given.returned:
        os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    own = multiprocessing.get_context("spawn")
    for name in given.cases:
        with own.Pool(1) as pool:
            took = pool.apply(measured, (name,))
        told = predicted(name)
        ratios.append(told / took)
        batch = (TRAININGS | ROLLOUTS)[name][1]
        print(f"{name:<28} batch {batch:>5}: {told / 1e6:7.1f} MB predicted, {took / 1e6:7.1f} MB measured, ratio {ratios[-1]:.2f}", flush=True)  # fmt: skip
    within = np.abs(np.log(ratios)) < np.log1p(TARGET)
    print(f"{within.sum()} of {len(ratios)} within {TARGET:.0%}")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
