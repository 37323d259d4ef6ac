"""Frames per second of an ensemble over its members and over how many are computed at once: python benchmarks/ensembles.py

Frames per second of CPU time on one thread, through `Emulator.stream`: a diffusion emulator with random weights and a
ladder of two levels. benchmarks/rollout_memory.py measures how much memory long ensembles take.
"""

from __future__ import annotations

import argparse
import time

import torch
from throughput import CASES

from biasbound.core.schedule import Schedule
from biasbound.models.diffusion import Diffusion
from biasbound.models.emulator import Emulator
from biasbound.models.model import Frame
from biasbound.models.normalise import Normalisation
from biasbound.nets import ConditionalNet

LADDER = Schedule([0.02, 0.9998])
ENOUGH = 0.7  # seconds of CPU per entry


def emulator(name: str) -> tuple[Emulator, torch.Tensor]:
    config, points, _ = CASES[name]
    torch.manual_seed(0)
    count = config.out_channels
    made = Diffusion(ConditionalNet(config), Frame(count), schedule=LADDER, prediction="v")
    units = Normalisation((0.0,) * count, (1.0,) * count)
    first = torch.randn(1, count, *[points] * config.dims)
    return Emulator(made.eval(), units, tuple(f"u{i}" for i in range(count)), 1.0), first


def rate(made: Emulator, first: torch.Tensor, members: int, batch: int) -> float:
    """Frames per second of CPU time, after a first step."""
    states = made.stream(first, 10**6, members, torch.Generator().manual_seed(0), batch=batch)
    next(states)
    begun, count = time.process_time(), 0
    while (spent := time.process_time() - begun) < ENOUGH:
        next(states)
        count += members
    return count / spent


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=["1-D small", "2-D small"], choices=list(CASES))
    parser.add_argument("--members", type=int, nargs="+", default=[1, 16, 64, 256])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 64, 256])
    options = parser.parse_args()
    torch.set_num_threads(1)
    for case in options.cases:
        made, first = emulator(case)
        print(f"\n{case}: frames per second of CPU time\nmembers " + "".join(f"  batch {b:<5}" for b in options.batch))
        for members in options.members:
            found = (f"{rate(made, first, members, b):13.0f}" if b <= members else f"{'':13}" for b in options.batch)
            print(f"{members:<8}" + "".join(found), flush=True)
