"""Resident memory while reading training batches from a file larger than it may take.

python benchmarks/memory.py [--format h5|nc|zarr] [--gigabytes 4] [--batches 4000] [--folder DIR]

Writes a file of that size piece by piece, reads random batches from all over it, takes its statistics and
prints how far the resident memory went above what the process had after importing everything.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from biasbound.data.batches import Order
from biasbound.data.formats import load
from biasbound.data.layout import Layout
from biasbound.data.trajectories import Trajectories

BATCH = 64
TARGET = 1.0  # GB
FLOWS = {  # channels, grid, boundary of a frame
    "1-D, 256 points": (("u",), (256,)),
    "2-D velocity, 64 × 64": (("velocity_x", "velocity_y"), (64, 64)),
}


def peak() -> float:
    """Highest resident memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def layout(channels: tuple[str, ...], grid: tuple[int, ...], size: float) -> Layout:
    frames = 140
    frame = 4 * len(channels) * int(np.prod(grid))
    return Layout(
        name="memory",
        trajectories=int(size * 1e9 / (frame * frames)) + 1,
        frames=frames,
        channels=channels,
        grid=grid,
        dt=0.2,
        domain=((0.0, 1.0),) * len(grid),
        boundary=("periodic",) * len(grid),
    )


class Fresh:
    """Random frames, made when they are read."""

    def __init__(self, of: Layout) -> None:
        self.channels, self.dtype, self._frame = len(of.channels), np.dtype(np.float32), of.shape[2:]
        self._rng = np.random.default_rng(0)

    def read(self, frames: np.ndarray) -> np.ndarray:
        return self._rng.random((len(frames), *self._frame), dtype=np.float32)


def size(path: Path) -> float:
    """Of a file or a folder, in GB."""
    return sum(p.stat().st_size for p in ([path] if path.is_file() else path.rglob("*"))) / 1e9


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--batches", type=int, default=4000)
    parser.add_argument("--format", choices=("h5", "nc", "zarr"), default="h5")
    parser.add_argument("--folder", type=Path, help="where the file is made, and removed again")
    given = parser.parse_args()
    base = peak()
    print(f"baseline {base:.3f} GB after imports")
    for name, (channels, grid) in FLOWS.items():
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            path = Path(folder, f"large.{given.format}")
            of = layout(channels, grid, given.gigabytes)
            Trajectories.open(of, Fresh(of), name="fresh").save(path)
            written = peak() - base
            windows = load(path).pairs()
            order = Order(len(windows), BATCH)
            seen, start = np.zeros(of.trajectories, dtype=bool), time.process_time()
            for _ in range(given.batches):
                index = next(order)
                seen[index // windows.per_trajectory] = True
                windows[index]
            spent = (time.process_time() - start) / given.batches
            batches = peak() - base
            windows.trajectories.measure()
            print(
                f"{name}: {size(path):.2f} GB; above baseline at most {written:.3f} GB "
                f"writing, {batches:.3f} GB after {given.batches} batches of {BATCH} pairs (from "
                f"{seen.mean():.0%} of the trajectories, {1e3 * spent:.2f} ms CPU each), "
                f"{peak() - base:.3f} GB after statistics"
            )
    print(f"peak above baseline: {peak() - base:.3f} GB (to stay under: {TARGET:g} GB)")


if __name__ == "__main__":
    run()
