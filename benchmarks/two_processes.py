"""One process against two: python benchmarks/two_processes.py [--speed] [--rounds 9]

Without options, the same training in one and in two processes (benchmarks/train_small.py under torchrun) with the same
global batch over 200 updates; prints the largest relative difference of the reported losses.

`--speed` trains the large network of the plane (2-D large of benchmarks/throughput.py), with the same batch per process.
Three things take turns inside one pair of processes, so that a noisy neighbour meets all of them:

- *one*: the first process trains alone, the second waits;
- *two*: both train one network together;
- *apart*: both train a network of their own, which is what two cores can give at most.

Prints samples per second of wall time, the ratio to *one* of each round (median, least and most), and the CPU time of a
sample, which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
UPDATES = 6  # per turn
BATCH = 8  # of each process


def same_losses() -> int:
    from biasbound._io import read_lines

    program = str(HERE / "train_small.py")
    with tempfile.TemporaryDirectory() as home:
        one, two = Path(home) / "one", Path(home) / "two"
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run([*LAUNCH, program, str(two)], check=True, env=environment)
        subprocess.run([sys.executable, program, str(one)], check=True, env=environment)
        rows = [read_lines(folder / "log.jsonl") for folder in (one, two)]
    assert [r["update"] for r in rows[0]] == [r["update"] for r in rows[1]]
    worst = max(abs(a["loss"] / b["loss"] - 1) for a, b in zip(*rows, strict=True))
    print(
        f"{rows[0][-1]['update']} updates: loss {rows[0][0]['loss']:.4f} → {rows[0][-1]['loss']:.4f}; "
        f"largest relative difference between 1 and 2 processes {worst:.1e}"
    )
    return int(worst > 1e-4)


def trainings():
    """(alone, together): trainings of the same network, the second divided among the processes."""
    import torch
    from throughput import CASES, LADDER

    from biasbound.data.batches import Batch
    from biasbound.models.diffusion import Diffusion
    from biasbound.models.model import Frame
    from biasbound.nets import ConditionalNet
    from biasbound.train.options import FitOptions
    from biasbound.train.trainer import Trainer

    torch.set_num_threads(1)
    config, points, _ = CASES["2-D large"]

    def trainer(batch: int) -> Trainer:
        torch.manual_seed(0)
        windows = torch.randn(batch, 2, config.out_channels, points, points)
        nothing = windows.new_zeros(batch, 0, points, points)
        model = Diffusion(ConditionalNet(config), Frame(config.out_channels), schedule=LADDER, prediction="v")
        options = FitOptions(updates=10**6, batch=batch)
        return Trainer(model, lambda i: Batch(windows[i], nothing[i]), batch, options)

    both = trainer(BATCH * int(os.environ["WORLD_SIZE"]))
    os.environ["WORLD_SIZE"] = "1"
    return trainer(BATCH), both


def turns(rounds: int) -> None:
    """One of the pair of processes; the first one prints."""
    import torch.distributed as dist

    alone, both = trainings()
    first = dist.get_rank() == 0
    turn = {"one": (alone, first), "two": (both, True), "apart": (alone, True)}
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in turn}
    for number in range(rounds + 1):
        for name, (training, mine) in turn.items():
            dist.barrier()
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(UPDATES if mine else 0):
                training.update()
            own = time.process_time() - cpu
            dist.barrier()
            if number:  # the first round warms up
                spent[name].append((time.perf_counter() - wall, own))
    if first:
        told(spent)
    dist.destroy_process_group()


def told(spent: dict[str, list[tuple[float, float]]]) -> None:
    samples = {"one": UPDATES * BATCH, "two": 2 * UPDATES * BATCH, "apart": 2 * UPDATES * BATCH}
    rates = {name: [samples[name] / wall for wall, _ in turns] for name, turns in spent.items()}
    for name, rate in rates.items():
        ratios = sorted(a / b for a, b in zip(rate, rates["one"], strict=True))
        cpu = statistics.median(cpu for _, cpu in spent[name]) / (UPDATES * BATCH)
        print(
            f"{name:6} {statistics.median(rate):6.2f} samples per second; over one process "
            f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} … {ratios[-1]:.2f}); {1e3 * cpu:.1f} ms CPU a sample"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    if not given.speed:
        sys.exit(same_losses())
    if "RANK" in os.environ:
        turns(given.rounds)
        return
    words = [__file__, "--speed", "--rounds", str(given.rounds)]
    subprocess.run([*LAUNCH, *words], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    main()
