"""A cheap source with known solutions: sums of sines carried around a periodic domain, u(x − c t).

In two dimensions the channels are velocity_x and velocity_y. Each trajectory has its own wave speed.
`python tests/toy_source.py --out FILE …` generates a file, for tests that kill it.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from biasbound.data.layout import Block, Layout, Split
from biasbound.flows.flow import Size


@dataclass(frozen=True)
class ToySource:
    """Waves."""

    trajectories: int = 6
    frames: int = 10
    points: int = 16
    dimensions: int = 1
    split: Split = "train"
    seed: int = 0
    batch: int = 2
    delay: float = 0.0  # seconds per block, outside the provenance
    poison: int = -1  # trajectory that holds a NaN in its last frame
    crash: int = -1  # block at whose start the process ends without a word
    sizes: ClassVar = {
        "smoke": Size({"frames": 5}),
        "small": Size(valid={"trajectories": 3}, tests={"near": {"points": 8}, "far": {"points": 32}}),
    }

    def __post_init__(self) -> None:
        if self.trajectories < 1:
            raise ValueError(f"toy: trajectories must be at least 1, got {self.trajectories}")

    @property
    def layout(self) -> Layout:
        d = self.dimensions
        return Layout(
            name="toy",
            trajectories=self.trajectories,
            frames=self.frames,
            channels=("u",) if d == 1 else ("velocity_x", "velocity_y"),
            grid=(self.points,) * d,
            dt=0.1,
            domain=((0.0, 2.0),) * d,
            boundary=("periodic",) * d,
            block=self.batch,
        )

    def provenance(self) -> dict[str, Any]:
        return {n: v for n, v in asdict(self).items() if n != "delay"} | {"equation": "u_t = -c u_x"}

    def block(self, start: int, stop: int) -> Block:
        time.sleep(self.delay)
        if start == self.crash:
            os._exit(1)
        return Block(
            np.stack([self._one(i) for i in range(start, stop)]),
            parameters={"speed": np.array([self._speed(i) for i in range(start, stop)])},
            series={"clock": np.tile(np.arange(self.frames) * 0.1, (stop - start, 1))},
            static={"mask": np.ones(self.layout.grid, np.float32)},
        )

    def _rng(self, index: int) -> np.random.Generator:
        split = ("train", "valid", "test").index(self.split)
        return np.random.default_rng([self.seed, split, index])

    def _speed(self, index: int) -> float:
        return float(self._rng(index).uniform(0.5, 1.5))

    def _one(self, index: int) -> np.ndarray:
        """(K, C, *N): channel c is a wave along axis c that moves with the trajectory's speed."""
        rng = self._rng(index)
        speed, phase = rng.uniform(0.5, 1.5), rng.uniform(0, 2 * np.pi, 3)
        x = np.arange(self.points) * 2.0 / self.points
        t = np.arange(self.frames)[:, None] * 0.1
        wave = sum(np.sin(np.pi * (m + 1) * (x - speed * t) + phase[m]) for m in range(3))
        if index == self.poison:
            wave[-1, 0] = np.nan
        if self.dimensions == 1:
            return wave[:, None]
        flat = np.ones(self.points)
        return np.stack([np.multiply.outer(wave, flat), np.swapaxes(np.multiply.outer(wave, flat), 1, 2)], 1)


def main() -> None:
    from biasbound.flows.generate import generate

    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--trajectories", type=int, default=12)
    given = parser.parse_args()
    source = ToySource(trajectories=given.trajectories, delay=given.delay)
    generate(source, given.out, jobs=given.jobs)


if __name__ == "__main__":
    main()
