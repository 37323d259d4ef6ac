"""Random training batches of pairs from a KS-sized file: our loader against The Well's, interleaved.

python benchmarks/loader.py [--venv build/well]     the environment that check_well.py makes

Prints CPU milliseconds a batch of 64 pairs (median over rounds, least and most), and the ratio. Both sides
read the same native file, 512 × 140 × 1 × 256 float32, from the page cache, on one thread, into torch tensors.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from check_well import HERE, READER, environment

from biasbound.data.batches import Order
from biasbound.data.formats import load, save
from biasbound.data.trajectories import Trajectories, Windows

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


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=HERE.parent / "build" / "well")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
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
