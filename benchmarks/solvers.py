"""Trajectories per CPU-second of the generators, beside solvers written by others.

    python benchmarks/solvers.py [--rounds 8] [--only ks] [--json FILE]

All contestants of a row run in this process, one thread each, round after round in turn, and
process CPU time is counted (so a hidden thread would be paid for). Each runs at several batch
sizes; a contestant's figure is that of its fastest batch. A row says how far the contestants'
answers lie apart, for a fast wrong answer wins nothing.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1 " + os.environ.get(
    "XLA_FLAGS", ""
)

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import pi
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import torch
from record import circumstances

from biasbound.data.layout import stream
from biasbound.flows import kolmogorov, ks
from biasbound.flows.flow import source as source_of

torch.set_num_threads(1)


@dataclass
class Row:
    """One comparison.

    `jobs[name][batch]` computes `batch` trajectories and returns the last state of the first.
    `targets[name]` is the least ratio of our rate to that contestant's, where one is set.
    """

    name: str
    jobs: dict[str, dict[int, Callable[[], np.ndarray]]]
    targets: dict[str, float]
    once: tuple[str, ...] = ()  # slow contestants: one round
    seconds: dict[str, dict[int, list[float]]] = field(default_factory=dict)

    def run(self, rounds: int) -> dict[str, Any]:
        answers = {name: next(iter(batches.values()))() for name, batches in self.jobs.items()}
        for batches in self.jobs.values():  # compile, plan, warm caches
            for job in batches.values():
                job()
        for index in range(rounds):
            for name, batches in self.jobs.items():
                if index and name in self.once:
                    continue
                for batch, job in batches.items():
                    start = process_time()
                    job()
                    spent = (process_time() - start) / batch
                    self.seconds.setdefault(name, {}).setdefault(batch, []).append(spent)
        ours = answers["biasbound"]
        rows: dict[str, Any] = {"row": self.name, "contestants": {}}
        best = {}
        for name, batches in self.seconds.items():
            batch = min(batches, key=lambda b: min(batches[b]))
            best[name] = batches[batch]
            rows["contestants"][name] = {
                "batch": batch,
                "per_cpu_second": 1 / min(best[name]),
                "per_cpu_second_median": 1 / median(best[name]),
                "difference": float(np.abs(answers[name] - ours).max() / np.abs(ours).max()),
            }
        for name in self.seconds.keys() - {"biasbound"}:
            one = rows["contestants"][name]
            one["ratio"] = min(best[name]) / min(best["biasbound"])
            one["ratio_median"] = median(best[name]) / median(best["biasbound"])
            one["target"] = self.targets.get(name)
        return rows


def ks_row() -> Row:
    """KS as the paper has it: 256 points, L = 64, frames of 0.2 in four steps, 8 units of time."""
    import exponax
    import jax
    from scipy.fftpack import diff
    from scipy.integrate import solve_ivp

    points, length, dt, substeps, frames = 256, 64.0, 0.2, 4, 41
    source = source_of("ks", "paper", trajectories=128, frames=1, batch=128)
    u0 = source.block(0, 128).fields[:, 0, 0]
    step = exponax.stepper.KuramotoSivashinskyConservative(1, length, points, dt / substeps, order=4)
    repeated = exponax.RepeatedStepper(step, substeps)
    roll = jax.jit(jax.vmap(exponax.rollout(repeated, frames - 1, include_init=True)))

    def ours(batch: int) -> np.ndarray:
        u = torch.from_numpy(u0[:batch])
        return ks.trajectory(u, length=length, frames=frames, dt=dt, substeps=substeps)[0, -1].numpy()

    def theirs(batch: int) -> np.ndarray:
        return np.asarray(roll(jax.numpy.asarray(u0[:batch, None])))[0, -1, 0]

    def tendency(_: float, u: np.ndarray) -> np.ndarray:
        return -u * diff(u, 1, length) - diff(u, 2, length) - diff(u, 4, length)

    def radau() -> np.ndarray:
        times = dt * np.arange(frames)
        return solve_ivp(tendency, (0, times[-1]), u0[0], "Radau", times, rtol=1e-9, atol=1e-9).y[:, -1]

    return Row(
        "ks 256, float64",
        {
            "biasbound": {batch: lambda b=batch: ours(b) for batch in (32, 64, 96, 128)},
            "exponax": {batch: lambda b=batch: theirs(b) for batch in (16, 32, 64, 128)},
            "scipy Radau": {1: radau},
        },
        {"exponax": 1.0, "scipy Radau": 200},
        once=("scipy Radau",),
    )


def kolmogorov_row(points: int, precision: str) -> Row:
    """Kolmogorov flow over two frames of 0.2, as many steps a frame as the generator takes."""
    import exponax
    import jax

    dt, frames = 0.2, 3
    dtype = getattr(torch, precision)
    solver = kolmogorov.KolmogorovSolver(points, dtype=dtype)
    substeps = solver.substeps(dt)
    start = torch.stack([kolmogorov.initial_modes(stream(0, "train", i), solver) for i in range(4)])
    start = next(islice(solver.frames(start, dt), 10, None))

    def vorticity(w: torch.Tensor) -> np.ndarray:
        return torch.fft.irfft2(w.mT, s=(points, points), norm="forward").numpy()

    omega0 = vorticity(start)
    step = exponax.stepper.KolmogorovFlowVorticity(
        2,
        2 * pi,
        points,
        dt / substeps,
        injection_scale=-1.0,  # its vorticity has the other sign
        order=4,
        dealiasing_fraction=(solver.modes_kept + 1.5) / (points // 2),  # the same modes as here
    )
    step = jax.tree_util.tree_map(lambda leaf: _cast(leaf, precision), step)
    repeated = exponax.RepeatedStepper(step, substeps)
    roll = jax.jit(jax.vmap(exponax.rollout(repeated, frames - 1, include_init=True)))

    def ours(batch: int) -> np.ndarray:
        states = solver.frames(start[:batch], dt)
        kept = [(solver.velocity(w), w)[1] for w in islice(states, frames)]  # velocity is what we write
        return vorticity(kept[-1][:1])[0]

    def theirs(batch: int) -> np.ndarray:
        out = np.asarray(roll(jax.numpy.asarray(-omega0[:batch, None])))
        if out.dtype != precision:
            raise TypeError(f"exponax computed in {out.dtype}, not {precision}")
        return -out[0, -1, 0]

    return Row(
        f"kolmogorov {points}², {precision}",
        {
            "biasbound": {batch: lambda b=batch: ours(b) for batch in (1, 2, 4)},
            "exponax": {batch: lambda b=batch: theirs(b) for batch in (1, 2, 4)},
        },
        {"exponax": 1.0} if points <= 128 else {},
    )


def _cast(leaf: Any, precision: str) -> Any:
    """An array of a JAX module in the precision asked for; everything else as it is."""
    kind = getattr(getattr(leaf, "dtype", None), "kind", "")
    if kind == "c":
        return leaf.astype("complex128" if precision == "float64" else "complex64")
    return leaf.astype(precision) if kind == "f" else leaf


# A row is built when its turn comes, so that its libraries and arrays do not weigh on the others.
ROWS: dict[str, Callable[[], Row]] = {
    "ks": ks_row,
    "kolmogorov-64": lambda: kolmogorov_row(64, "float64"),
    "kolmogorov-128": lambda: kolmogorov_row(128, "float64"),
    "kolmogorov-128-float32": lambda: kolmogorov_row(128, "float32"),
    "kolmogorov-256": lambda: kolmogorov_row(256, "float64"),
}


def table(row: dict[str, Any]) -> Iterator[str]:
    yield f"{row['row']}"
    for name, one in row["contestants"].items():
        line = (
            f"  {name:<12} {one['per_cpu_second']:10.3g} trajectories per CPU-second "
            f"(median {one['per_cpu_second_median']:.3g}, batch {one['batch']}, "
            f"differs by {one['difference']:.1e})"
        )
        if "ratio" in one:
            line += f"; ours is {one['ratio']:.3g}× (median {one['ratio_median']:.3g}×)"
            if one["target"] is not None:
                verdict = "reached" if one["ratio"] >= one["target"] else "MISSED"
                line += f", to reach {one['target']}×: {verdict}"
        yield line


def transonic(rounds: int) -> dict[str, Any]:
    """CPU seconds a convective time unit D/U on the small grid, Mach 0.5 … 0.9, kernels compiled before."""
    from biasbound.flows.transonic.cylinder import cylinder_flow
    from biasbound.flows.transonic.grid import o_grid

    mesh, spent = o_grid(128, 137), []
    flows = {m: cylinder_flow(mesh, m, 1e4, np.random.default_rng(0)) for m in (0.5, 0.7, 0.9)}
    for flow in flows.values():
        flow.advance(0.5)
    for _ in range(rounds):
        start = process_time()
        for mach, flow in flows.items():
            flow.advance(0.5 / mach)
        spent.append((process_time() - start) / (0.5 * len(flows)))
    return {"row": "transonic", "seconds": min(spent), "median": float(np.median(spent)), "target": 1.5}


def main() -> None:
    import jax

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", nargs="*", choices=[*ROWS, "transonic"], default=[*ROWS, "transonic"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    about = circumstances("torch", "exponax", "jax", "scipy", "numpy")
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    rows = []
    for name in (name for name in arguments.only if name in ROWS):
        rows.append(ROWS[name]().run(arguments.rounds))
        print("\n".join(table(rows[-1])), flush=True)
    if "transonic" in arguments.only:
        rows.append(transonic(arguments.rounds))
        verdict = "reached" if rows[-1]["seconds"] <= rows[-1]["target"] else "MISSED"
        print(
            f"transonic\n  ours         {rows[-1]['seconds']:.3g} CPU-seconds a convective time unit "
            f"(median {rows[-1]['median']:.3g}), at most {rows[-1]['target']}: {verdict}"
        )
    if arguments.json:
        record = {"about": about, "rounds": arguments.rounds, "rows": rows}
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
