"""Resident memory while a long rollout is written, above what it was after the first 100 frames.

python benchmarks/rollout_memory.py [--frames 20000] [--members 4] [--points 1024] [--formats nc npy] [--folder DIR]

A small diffusion emulator with random weights is rolled out into each format. Every format runs in a process of its own,
because the highest memory of a process never goes down.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from biasbound import predict
from biasbound.core.schedule import log_uniform
from biasbound.data.trajectories import Trajectories
from biasbound.models.emulator import Emulator
from biasbound.models.model import Frame, make
from biasbound.models.normalise import Normalisation
from biasbound.models.task import Forecast
from biasbound.nets import NetSpec

TARGET = 200.0  # MB
EARLY = 100  # frames after which everything that a rollout needs is there


class Watched(Emulator):
    """An emulator that notes the highest resident memory when its first frames are written."""

    def stream(self, *given: Any, **more: Any) -> Iterator[Any]:
        for k, frame in enumerate(super().stream(*given, **more)):
            if k == EARLY:
                self.meta["early"] = peak()
            yield frame


def peak() -> float:
    """Highest resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def emulator(points: int) -> Watched:
    torch.manual_seed(0)
    net = NetSpec("unet", 1, 1, (points,), ("periodic",), {"width": 8, "multipliers": [1, 1]}).resolved().build(True)
    with torch.no_grad():  # a network whose answers stay near 0: what matters here is how many there are
        for p in net.parameters():
            p.copy_(0.01 * torch.randn_like(p))
    model = make("diffusion", net, Frame(1, Forecast()), {"schedule": log_uniform(1, 0.5, 0.5), "prediction": "x0"})
    return Watched(model, Normalisation((0.0,), (1.0,)), ("u",), 0.1, meta={})


def rolled(path: Path, frames: int, members: int, points: int) -> str:
    """Write one rollout; what it took, in words."""
    torch.set_num_threads(1)
    made, first = emulator(points), torch.randn(1, 2, 1, points)
    begun = time.monotonic()
    written = predict(
        made, Trajectories.from_array(first, dt=0.1, channels=["u"]), path, steps=frames, members=members
    )
    seconds = time.monotonic() - begun
    parts = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
    size = sum(p.stat().st_size for p in parts) / 1e6
    above = peak() - made.meta["early"]
    verdict = "within" if above < TARGET and written.lost == 0 else "NOT WITHIN"
    return (
        f"{path.suffix}: {frames:,} frames of {members} × {points} points, {size:.0f} MB on disk, {seconds:.0f} s: "
        f"{above:.1f} MB above the {made.meta['early']:.0f} MB after {EARLY} frames, {verdict} {TARGET:g} MB"
    )


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--points", type=int, default=1024)
    parser.add_argument("--formats", nargs="+", default=["nc", "zarr", "h5", "npy"])
    parser.add_argument("--folder", type=Path, help="where the files are made, and removed again")
    given = parser.parse_args()
    own = multiprocessing.get_context("spawn")
    failed = False
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for end in given.formats:
            with own.Pool(1) as pool:
                path = Path(folder, f"rollout.{end}")
                told = pool.apply(rolled, (path, given.frames, given.members, given.points))
            print(told, flush=True)
            failed |= "NOT" in told
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    run()
