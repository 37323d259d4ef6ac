"""Training from a Zarr store larger than memory should hold: python benchmarks/zarr_store.py FOLDER [GIGABYTES]

Writes one store of that size (default 4) by `FrameWriter` in a process of its own, then trains a small convolution on 300
random batches of it in another, and prints the peak of resident memory above what the imports take.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

TRAJECTORIES, POINTS = 16, 256


def peak() -> float:
    """GiB of resident memory at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def write(path: Path, gigabytes: float) -> None:
    import numpy as np

    from biasbound.data import FrameWriter
    from biasbound.data.layout import Layout

    frames = round(gigabytes * 2**30 / (4 * TRAJECTORIES * POINTS**2))
    ends, kinds = ((0.0, 1.0),) * 2, ("periodic", "periodic")
    layout = Layout("big", TRAJECTORIES, frames, ("u",), (POINTS, POINTS), 0.1, ends, kinds)
    first = np.random.default_rng(0).standard_normal((TRAJECTORIES, 1, POINTS, POINTS), dtype=np.float32)
    with FrameWriter.open(path, layout) as writer:
        for k in range(frames):
            writer.append(np.roll(first, k, -1))
    print(f"{path}: written, peak {peak():.3f} GiB")


def train(path: Path) -> None:
    import torch

    import biasbound as bb
    from biasbound.data.batches import Order

    baseline, data = peak(), bb.open(path)
    windows, begun = data.windows(1), time.perf_counter()
    order, net = iter(Order(len(windows), 8)), torch.nn.Conv2d(1, 1, 3, padding=1)
    optimiser = torch.optim.Adam(net.parameters())
    for _ in range(300):
        frames = windows[next(order)].frames
        loss = (net(frames[:, 0]) - frames[:, 1]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    print(
        f"{data}: 300 batches of 8 in {time.perf_counter() - begun:.0f} s, {peak() - baseline:.3f} GiB above baseline"
    )


if __name__ == "__main__":
    if sys.argv[1] in ("--write", "--train"):
        path = Path(sys.argv[2])
        write(path, float(sys.argv[3])) if sys.argv[1] == "--write" else train(path)
    else:
        store, size = Path(sys.argv[1]) / "big.zarr", sys.argv[2] if len(sys.argv) > 2 else "4"
        store.parent.mkdir(parents=True, exist_ok=True)
        for part in (["--write", str(store), size], ["--train", str(store)]):
            subprocess.run([sys.executable, __file__, *part], check=True)
