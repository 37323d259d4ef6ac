"""Training and rollout speed of the mini networks on this CPU: python benchmarks/throughput.py [--threads 1 2]

What is compared runs in turn, round after round in one process, so that a noisy neighbour meets all of it:

- *ours*: `Trainer.update` of a diffusion model on the networks of `nets`; the gradient is not clipped,
  because the plain loop does not clip it;
- *plain* (plain_unet.py): the same network and loss as one writes them first: nn.Conv with padding_mode="circular",
  nn.GroupNorm, one nn.Linear per block, default Adam (on a CPU one tensor after the other), the average of weights by a
  loop over the parameters, and loss.item() in every step. That it is the same function is checked before anything is
  timed;
- the machine's matrix product (1024 × 1024, float32), which is what "peak" means here.

It ends with a table of its bars; throughput_table.py has the bars of all scripts.

A proxy-unrolled update (u = 1, n = 0) and one that unrolls the full chain of `linear(20)` are held against teacher
forcing; "in turn" is the proxy with its three network calls one after the other, and noise of its own. SOAP is held
against Adam by means over the rounds: let them be a multiple of ten, after which it refreshes its basis.

Times are CPU time over all threads; wall time stands beside it where threads are compared. A ratio is the median of the
ratios of the rounds. `--compile` adds torch.compile (a minute the first time). benchmarks/throughput_parts.py measures the alternatives
from which the parts were chosen.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch
from plain_unet import DECAY, LADDER, RATE, Plain
from throughput_table import bars, show
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from biasbound.core.losses import Scalar, diffusion_loss, unrolled
from biasbound.core.noise import log_snr
from biasbound.core.sample import proxy_estimate
from biasbound.core.schedule import linear
from biasbound.data.batches import Batch
from biasbound.models.diffusion import Diffusion
from biasbound.models.model import Frame, Recipe
from biasbound.nets import ConditionalNet, UNetConfig, mini
from biasbound.nets.compiled import compiled
from biasbound.train.options import FitOptions
from biasbound.train.trainer import Trainer

ROUND = ("circular", "circular")
# name: (network, points along an axis, batch)
CASES = {
    "1-D small": (mini("small"), 64, 32),
    "1-D large": (mini("large"), 64, 32),
    "2-D small": (mini("small", in_channels=4, out_channels=2, padding=ROUND), 32, 8),
    "2-D large": (mini("large", in_channels=4, out_channels=2, padding=ROUND), 32, 8),
}
WARM = 8  # untimed runs: a convolution is prepared anew for every batch size, and the proxy's varies
Runs = dict[str, Callable[[], object]]


class InTurn(Diffusion):
    """The proxy loss with a network call of its own for every estimate."""

    def loss(self, batch: Batch, generator: torch.Generator) -> Scalar:
        x, targets = self.windows(batch)
        loss = partial(diffusion_loss, self, schedule=self.schedule, generator=generator)
        proxy = partial(proxy_estimate, self, schedule=self.schedule, generator=generator)
        return unrolled(x, targets, self.frame.task.follow, lambda x, y: (loss(x, y), proxy(x, y)), loss)


class Ours:
    """One model, and a training of its own for each loss."""

    LOSSES: ClassVar = {
        "teacher forcing": (Diffusion, LADDER, Recipe()),
        "proxy": (Diffusion, LADDER, Recipe(1, "proxy")),
        "proxy in turn": (InTurn, LADDER, Recipe(1, "proxy")),
        "full chain": (Diffusion, linear(20), Recipe(1, "full")),
    }

    def __init__(self, config: UNetConfig, window: Tensor, compile_it: bool = False) -> None:
        self.net, self.window, self.compiled = ConditionalNet(config), window, compile_it
        self.about = Frame(config.out_channels)
        self.model = Diffusion(self.net, self.about, schedule=LADDER, prediction="v")

    def update(self, loss: str = "teacher forcing", optimiser: str = "adam") -> Callable[[], object]:
        """`Trainer.update` of a training that starts from the present weights."""
        kind, schedule, recipe = self.LOSSES[loss]
        model = kind(copy.deepcopy(self.net), self.about, schedule=schedule, prediction="v")
        model.recipe = recipe
        if self.compiled:
            compiled(model.net, sizes_vary=recipe.unroll > 0)
        size, grid = len(self.window), self.window.shape[3:]
        batch = Batch(self.window, self.window.new_zeros(size, 0, *grid))
        options = FitOptions(updates=10**6, batch=size, lr=RATE, ema=DECAY, clip=None, optimiser=optimiser)
        return Trainer(model, lambda _: batch, size, options).update

    @torch.inference_mode()
    def frame(self) -> object:
        return self.model.advance(self.window[:, 0])


def checked_pair(name: str, compile_it: bool) -> tuple[Ours, Plain]:
    """Both networks with the same weights, after the check that they are the same function."""
    config, points, batch = CASES[name]
    torch.manual_seed(0)
    window = torch.randn(batch, 3, config.out_channels, *[points] * config.dims)
    ours = Ours(config, window, compile_it)
    with torch.no_grad():
        for parameter in ours.net.parameters():  # layers that start at zero would hide a difference
            parameter += 0.1 * torch.randn_like(parameter)
    plain = Plain(ours.net, window)
    sigma = torch.linspace(0.01, 0.99, batch, dtype=torch.float64)
    arguments = (window[:, 0], window[:, 1], log_snr(sigma).float())
    torch.testing.assert_close(ours.net(*arguments), plain.net(*arguments), rtol=1e-4, atol=1e-4)
    return ours, plain


class Timed(dict[str, list[tuple[float, float]]]):
    """(CPU, wall) seconds of every run in every round."""

    def __init__(self, runs: Runs, rounds: int, repeats: int = 1) -> None:
        super().__init__({name: [] for name in runs})
        for run in runs.values():
            for _ in range(WARM):
                run()
        for _ in range(rounds):
            for name, run in runs.items():
                cpu, wall = time.process_time(), time.perf_counter()
                for _ in range(repeats):
                    run()
                spent = time.process_time() - cpu, time.perf_counter() - wall
                self[name].append((spent[0] / repeats, spent[1] / repeats))

    def cpu(self, name: str) -> float:
        return statistics.median(cpu for cpu, _ in self[name])

    def wall(self, name: str) -> float:
        return statistics.median(wall for _, wall in self[name])

    def ratio(self, one: str, other: str) -> float:
        return statistics.median(a[0] / b[0] for a, b in zip(self[one], self[other], strict=True))


def flops(run: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def with_threads(threads: int, run: Callable[[], object]) -> Callable[[], object]:
    def inner() -> object:
        torch.set_num_threads(threads)
        return run()

    return inner


Figures = dict[str, list[float]]  # eager, and compiled where that was measured


def measure_case(name: str, rounds: int, threads: Iterable[int], compile_it: bool, chain: bool) -> Figures:
    ours, plain = checked_pair(name, False)
    matrix = torch.randn(1024, 1024)
    single: Runs = {"ours": ours.update(), "plain": plain.update, "frame": ours.frame, "plain frame": plain.frame}
    single |= {
        "soap": ours.update(optimiser="soap"),
        "proxy": ours.update("proxy"),
        "product": lambda: matrix @ matrix,
    }
    if compile_it:
        fast = checked_pair(name, True)[0]
        compiled(fast.net)
        single |= {"compiled": fast.update(), "compiled frame": fast.frame}
        single |= {"compiled soap": fast.update(optimiser="soap")}
    runs: Runs = {}
    for n in threads:
        runs |= {f"{key} {n}": with_threads(n, run) for key, run in single.items()}
    work, first = flops(single["ours"]), min(threads)
    if chain:
        for loss in ("proxy in turn", "full chain"):
            runs[f"{loss} {first}"] = with_threads(first, ours.update(loss))
    t = Timed(runs, rounds)
    config, points, batch = CASES[name]
    print(f"\n{name}: {ours.net.parameter_count:,} parameters, {points}{f' × {points}' * (config.dims - 1)} points, batch {batch}")  # fmt: skip
    print("threads  updates/s of CPU (wall)  plain            ours/plain  frames/s  ours/plain  achieved  peak GFLOP/s")  # fmt: skip
    for n in threads:
        rate, peak = work / t.cpu(f"ours {n}") / 1e9, 2 * 1024**3 / t.cpu(f"product {n}") / 1e9
        print(
            f"{n:<9}{1 / t.cpu(f'ours {n}'):6.1f} ({1 / t.wall(f'ours {n}'):6.1f})         "
            f"{1 / t.cpu(f'plain {n}'):6.1f} ({1 / t.wall(f'plain {n}'):6.1f})  {t.ratio(f'plain {n}', f'ours {n}'):<12.2f}"
            f"{batch / t.cpu(f'frame {n}'):<10.0f}{t.ratio(f'plain frame {n}', f'frame {n}'):<12.2f}"
            f"{rate:5.1f} ({100 * rate / peak:.0f} %)  {peak:.1f}"
        )
    if chain:
        in_turn, full = (t.ratio(f"{loss} {first}", f"ours {first}") for loss in ("proxy in turn", "full chain"))
        print(f"against teacher forcing: proxy in turn {in_turn:.2f}×, full chain of 20 levels {full:.1f}×")
    figures = figures_of(t, first, work, compile_it)
    for what, of in figures.items():
        print(f"{what}: {of[0]:.2f}" + (f", compiled {of[1]:.2f}" if len(of) > 1 else ""), flush=True)
    return {f"{what} {name}": of for what, of in figures.items()}


def figures_of(t: Timed, n: int, work: int, compile_it: bool) -> Figures:
    """What the bars are about, with n threads."""
    peak, ways = 2 * 1024**3 / t.cpu(f"product {n}"), {"ours": ""} | ({"compiled": "compiled "} if compile_it else {})

    def mean(name: str) -> float:  # SOAP refreshes its basis every ten updates, which a median would not know
        return sum(cpu for cpu, _ in t[f"{name} {n}"])

    return {
        "training": [t.ratio(f"plain {n}", f"{way} {n}") for way in ways],
        "rollout": [t.ratio(f"plain frame {n}", f"{way}frame {n}") for way in ways.values()],
        "gemm": [work / t.cpu(f"{way} {n}") / peak for way in ways],
        "soap": [mean(f"{prefix}soap") / mean(way) for way, prefix in ways.items()],
        "proxy": [t.ratio(f"proxy {n}", f"ours {n}")],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--compile", action="store_true", help="measure torch.compile too")
    parser.add_argument("--brief", action="store_true", help="leave out the full chain, which takes half of the time")
    parser.add_argument("--json", type=Path, help="also write the figures there, for throughput_table.py")
    options = parser.parse_args()
    torch.set_num_threads(min(options.threads))
    found: Figures = {}
    for case in options.cases:
        found |= measure_case(case, options.rounds, options.threads, options.compile, not options.brief)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    table = bars()
    for key in found.keys() & table.keys():
        table[key].found = found[key]
    show({key: bar for key, bar in table.items() if bar.found})
