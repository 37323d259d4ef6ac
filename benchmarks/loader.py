"""Random training batches of pairs from a KS-sized file: our loader against The Well's, interleaved.

python benchmarks/loader.py [--venv build/well]     the environment that check_well.py makes
python benchmarks/loader.py --disk [--wait 0.3]     reading hidden behind computing; needs nothing else

Prints CPU milliseconds a batch of 64 pairs (median over rounds, least and most), and the ratio. Both sides
read the same native file, 512 × 140 × 1 × 256 float32, from the page cache, on one thread, into torch tensors.

`--disk` trains a small network on a file of 32 × 20 × 4 × 64 × 64 float32 that is put out of the page cache before every
turn, so that every batch comes from the disk. Three trainings take turns: on the same data in memory, with batches that
are read when asked for, and with batches that are read ahead in a thread. What is hidden is the share of the difference
between the first two that the third does not have. `--wait` adds so many seconds to every read, as a slow file server
does; on a busy machine it is the clearer experiment.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from check_well import HERE, READER, environment

from biasbound.data.batches import Batch, Loader, Order
from biasbound.data.formats import load, save
from biasbound.data.trajectories import Trajectories, Windows
from biasbound.models.method import method
from biasbound.models.task import Forecast
from biasbound.nets import NetSpec
from biasbound.train.options import FitOptions
from biasbound.train.trainer import Trainer

SHAPE = (512, 140, 1, 256)
BATCH = 64
TARGET = 20


def ours(windows: Windows, order: Order, batches: int) -> float:
    """CPU seconds a batch."""
    start = time.process_time()
    for _ in range(batches):
        batch = windows[next(order)]
        assert batch.x.shape == batch.y.shape == (BATCH, 1, batch.frames.shape[-1])
    return (time.process_time() - start) / batches


ON_DISK = (32, 20, 4, 64, 64)
PAIRS, UPDATES = 32, 5  # of a batch, of a turn


def cold(path: Path) -> None:
    """Put a file out of the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def training(windows: Windows, ahead: int, wait: float = 0.0) -> Trainer:
    task, chosen = Forecast(), method("direct")
    options = {"width": 4, "multipliers": (1, 1), "blocks": 1}
    network = NetSpec("unet", 4, 4, ON_DISK[3:], ("periodic",) * 2, options).resolved()
    torch.manual_seed(0)
    model = chosen.build(network, task, 1.0, {})

    def read(index: np.ndarray) -> Batch:
        time.sleep(wait)
        return windows[index]

    loader = Loader(read, lambda batch: batch, ahead=ahead)
    return Trainer(model, loader, len(windows), FitOptions(updates=10**6, batch=PAIRS))


def disk(rounds: int, wait: float) -> None:
    """Wall milliseconds of an update in each of the three ways, and the share of reading that is hidden."""
    torch.set_num_threads(1)
    spent: dict[str, list[float]] = {}
    room = HERE.parent / "build"  # on a disk, which a system's temporary folder may not be; git leaves it alone
    room.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=room) as folder:
        path = Path(folder, "fields.h5")
        fields = np.random.default_rng(0).normal(size=ON_DISK).astype(np.float32)
        save(Trajectories.from_array(fields, dt=0.2), path)
        del fields
        there = load(path)
        ways = {
            "in memory": training(there.load().pairs(), 0),
            "when asked": training(there.pairs(), 0, wait),
            "ahead": training(there.pairs(), 2, wait),
        }
        for number in range(rounds + 1):
            for name, trainer in ways.items():
                cold(path)
                begun = time.perf_counter()
                for _ in range(UPDATES):
                    trainer.update()
                if number:  # the first round warms up
                    spent.setdefault(name, []).append((time.perf_counter() - begun) / UPDATES)
        ends = [next(iter(t.model.parameters())).detach() for t in ways.values()]
        assert all(torch.equal(end, ends[0]) for end in ends), "the three trainings differ"
    for name, values in spent.items():
        print(
            f"{name:10} {1e3 * statistics.median(values):8.1f} ms an update "
            f"({1e3 * min(values):.1f} … {1e3 * max(values):.1f})"
        )
    memory, asked, ahead = (statistics.median(spent[name]) for name in ways)
    print(
        f"reading takes {1e3 * (asked - memory):.1f} ms an update, of which {(asked - ahead) / (asked - memory):.0%} is hidden"
    )


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, default=HERE.parent / "build" / "well")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--disk", action="store_true")
    parser.add_argument("--wait", type=float, default=0.0)
    given = parser.parse_args()
    if given.disk:
        disk(given.rounds, given.wait)
        return
    python = environment(given.venv)
    torch.set_num_threads(1)
    fields = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    spent: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ks.h5")
        save(Trajectories.from_array(fields, dt=0.2, channels=["u"], name="ks"), path)
        whole = load(path)
        views = {"ours": whole, "ours, every 4th frame and point": whole.stride(4, 4)}
        sets = {name: view.pairs() for name, view in views.items()}
        orders = {name: Order(len(windows), BATCH) for name, windows in sets.items()}
        theirs = subprocess.Popen(
            [str(python), str(READER), "time", folder, str(BATCH)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert theirs.stdin is not None
        assert theirs.stdout is not None
        theirs.stdout.readline()
        for _ in range(given.rounds):
            for name, windows in sets.items():
                spent.setdefault(name, []).append(ours(windows, orders[name], 100))
            print(4, file=theirs.stdin, flush=True)
            for name, value in json.loads(theirs.stdout.readline()).items():
                spent.setdefault(f"The Well, {name}", []).append(value)
        theirs.stdin.close()
        theirs.wait()
    own = statistics.median(spent["ours"])
    for name, values in spent.items():
        middle = statistics.median(values)
        print(
            f"{name:32} {1e3 * middle:9.3f} ms CPU a batch "
            f"({1e3 * min(values):.3f} … {1e3 * max(values):.3f}), {middle / own:7.1f} × ours"
        )
    ratio = statistics.median(spent["The Well, fields only"]) / own
    print(f"ratio to The Well's loader without grid and boundary data: {ratio:.0f} (to reach: {TARGET})")


if __name__ == "__main__":
    run()
