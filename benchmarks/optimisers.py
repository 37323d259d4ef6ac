"""The four optimisers at equal CPU-seconds: python benchmarks/optimisers.py FOLDER …

Each folder holds train.h5 and test.h5, as the data folder of a study does. The residual U-Net is
trained once for every optimiser, rate and seed, each along its own cosine over the updates that
fit into the seconds. What an update costs is measured before, all optimisers in turn, so that a noisy
neighbour meets them alike. Errors are mean squares on test data in units of the spread.

    python benchmarks/optimisers.py out/ks/data out/kolmogorov/data --rates soap=2e-3,4e-3
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from biasbound.data.batches import Batch
from biasbound.data.formats import load
from biasbound.data.trajectories import Windows
from biasbound.models.method import method
from biasbound.models.model import Settings
from biasbound.models.task import Forecast
from biasbound.nets import NetSpec
from biasbound.registry import find
from biasbound.train.optimisers import OPTIMISERS
from biasbound.train.options import FitOptions
from biasbound.train.trainer import Trainer

RATES = {"soap": [4e-3], "muon": [8e-3], "adamw": [4e-3], "adam": [4e-3]}


class Problem(NamedTuple):
    """A flow in units of its own spread, and the network for it."""

    windows: Windows
    test: Tensor  # (S, 11, C, *N)
    spread: Tensor  # per channel
    increment: float
    network: NetSpec
    batch: int

    @classmethod
    def of(cls, folder: Path) -> Problem:
        train, test = (load(folder / f"{split}.h5") for split in ("train", "test"))
        channels, grid = len(train.channels), train.layout.grid
        network = NetSpec("unet", channels, channels, grid, train.layout.boundary, {"size": "small"}).resolved()
        sample = torch.from_numpy(train.read(0, min(len(train), 64))).float()
        spread = sample.transpose(0, 2).flatten(1).std(1).reshape(-1, *[1] * len(grid))
        steps = (sample[:, 1:] - sample[:, :-1]) / spread
        fields = torch.from_numpy(test.read(0, len(test), slice(0, 11))).float() / spread
        facts = steps.std().item(), network, 32 // len(grid) ** 2
        return cls(train.load().pairs(), fields, spread, *facts)

    def trainer(self, name: str, rate: float, updates: int, seed: int = 0) -> Trainer:
        torch.manual_seed(seed)
        chosen = method("direct-residual")
        options = FitOptions(updates=updates, batch=self.batch, lr=rate, seed=seed)

        def data(index: object) -> Batch:
            raw = self.windows[index]
            return Batch(raw.frames / self.spread, raw.conditions)

        model = chosen.build(self.network, Forecast(), self.increment, chosen.options(Settings()))
        trainer = Trainer(model, data, len(self.windows), options)
        trainer.optimiser = find(OPTIMISERS, name)(trainer.parameters, rate, 0.0)
        return trainer

    @torch.no_grad()
    def errors(self, step: Callable[[Tensor], Tensor]) -> tuple[float, float]:
        """Over one step and over ten."""
        first = step(self.test[:, :-1].flatten(0, 1)) - self.test[:, 1:].flatten(0, 1)
        state = self.test[:, 0]
        for _ in range(10):
            state = step(state)
        return first.square().mean().item(), (state - self.test[:, 10]).square().mean().item()

    def costs(self, rounds: int = 7, repeats: int = 20) -> dict[str, float]:
        """CPU-seconds per update of every optimiser, measured in turn."""
        runs = {name: self.trainer(name, 1e-4, 10**6) for name in OPTIMISERS}
        spent: dict[str, list[float]] = {name: [] for name in runs}
        for turn in range(rounds + 1):
            for name, trainer in runs.items():
                begin = time.process_time()
                for _ in range(repeats):
                    trainer.update()
                if turn:  # the first one warms up
                    spent[name].append((time.process_time() - begin) / repeats)
        return {name: statistics.median(of) for name, of in spent.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rates", nargs="+", default=[], help="optimiser=rate[,rate …]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    args = parser.parse_args()
    torch.set_num_threads(1)
    given = dict(entry.split("=") for entry in args.rates)
    rates = RATES | {name: [float(r) for r in text.split(",")] for name, text in given.items()}
    print("| data | optimiser | rate | cost | updates | seconds | one step | ten steps |")
    print("|---|---|---|---|---|---|---|---|")
    for folder in args.folders:
        problem = Problem.of(folder)
        costs = problem.costs()
        runs = [(n, r, s) for n in OPTIMISERS for r in rates[n] for s in args.seeds]
        for name, rate, seed in runs:
            updates = round(args.seconds / costs[name])
            begin = time.process_time()
            trainer = problem.trainer(name, rate, updates, seed).run()
            spent = time.process_time() - begin
            one, ten = problem.errors(trainer.averaged.advance)
            row = f"{folder} | {name} | {rate:g} | {costs[name] / costs['adam']:.2f} | {updates}"
            print(f"| {row} | {spent:.0f} | {one:.2e} | {ten:.2e} |", flush=True)
