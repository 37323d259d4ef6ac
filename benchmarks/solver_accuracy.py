"""Error of one frame against the step, for both spectral flows: why the default steps are what they are.

    python benchmarks/solver_accuracy.py

Mean square errors are raw, against the same solver with far smaller steps, from flows after the warm-up.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import log, log2, pi

import torch

from biasbound.data.layout import stream
from biasbound.flows import kolmogorov, ks
from biasbound.flows.flow import source as source_of


def mse(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).square().mean())


def ks_lines() -> Iterator[str]:
    """The paper's KS: 256 points, L = 64, frames of 0.2."""
    source = source_of("ks", "paper", trajectories=16, frames=1, batch=16)
    u0 = torch.from_numpy(source.block(0, 16).fields[:, 0, 0])

    def frame(substeps: int) -> torch.Tensor:
        return ks.trajectory(u0, length=source.length, frames=2, substeps=substeps)[:, -1]

    exact = frame(256)
    before = None
    for substeps in (1, 2, 4, 8, 16, 32):
        error = mse(frame(substeps), exact)
        order = "" if before is None else f", order {log2(before / error) / 2:.2f}"
        yield f"ks: {substeps:2d} substeps of {0.2 / substeps:.5f}: MSE {error:.1e}{order}"
        before = error


def kolmogorov_lines(points: int = 128) -> Iterator[str]:
    """Kolmogorov flow, frames of 0.2, on 64² after the block mean."""
    solver = kolmogorov.KolmogorovSolver(points)
    w = torch.stack([kolmogorov.initial_modes(stream(0, "train", i), solver) for i in range(2)])
    w = next(islice(solver.frames(w, 0.2), 64, None))
    speed = float(solver.speed(w).max())

    def frame(substeps: int) -> torch.Tensor:
        state = w
        for _ in range(substeps):
            state = solver.step(state, 0.2 / substeps)
        return solver.velocity(state, 64)

    exact = frame(256)
    before = None
    for substeps in (16, 20, 24, 32, 48, 64, 96):
        error = mse(frame(substeps), exact)
        courant = 0.2 / substeps * speed * points / (2 * pi)
        line = f"kolmogorov {points}²: {substeps:2d} substeps, Courant {courant:.2f}: MSE {error:.1e}"
        if before is not None:
            line += f", order {log(before[1] / error) / 2 / log(substeps / before[0]):.2f}"
        yield line
        before = (substeps, error)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for lines in (ks_lines(), kolmogorov_lines()):
        for text in lines:
            print(text, flush=True)
