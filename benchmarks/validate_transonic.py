"""Slow checks of the transonic solver, each against a gate: `python
benchmarks/validate_transonic.py`.

Parts: re100 (laminar vortex street), grid (refinement at Mach 0.8), precision (float32 against
float64), stats (moments against the published normalisation constants), drag (against Mach),
laminar (drag and shedding against Mach at Re 100), symmetric (drag against Mach without shedding),
speed (CPU seconds). Every long run is kept under --work and not repeated; every part is merged into
--out. `--only picture` draws pressure and vorticity at Mach 0.8 into --work.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

from biasbound.flows.transonic.cylinder import cylinder_flow, drag_lift
from biasbound.flows.transonic.flow import Flow
from biasbound.flows.transonic.grid import o_grid
from biasbound.flows.transonic.sampling import Window

ROOT = Path(__file__).resolve().parent.parent
SEED = 0
COARSE, SMALL, MEDIUM = (64, 88), (128, 137), (192, 170)
MACHS = (0.5, 0.6, 0.7, 0.8, 0.9)
# Kohl et al., "Tra": mean and standard deviation over their 41 simulations at 256×128 points.
# Their first two channels are momentum and share one deviation, (2 σ_x + σ_y)/3.
PUBLISHED = {
    "momentum_x_mean": 0.560642,
    "momentum_std": 0.216987,
    "density_mean": 0.903352,
    "density_std": 0.145391,
    "pressure_mean": 0.637941,
    "pressure_std": 0.119944,
}

Check = dict[str, Any]
Record = dict[str, Any]
Part = tuple[dict[str, Check], list[Record]]


def check(value: float, low: float, high: float | None, **more: Any) -> Check:
    verdict = "PASS" if low <= value <= (math.inf if high is None else high) else "FAIL"
    return {"value": value, "gate": [low, high], "verdict": verdict, **more}


def run(work: Path, mach: float, **changes: Any) -> Record:
    """Forces and window moments of one flow, from --work if it has been run before."""
    config: dict[str, Any] = {
        "mach": mach, "reynolds": 1e4, "cells": SMALL, "wall": None, "precision": "float32",
        "seed": SEED, "warmup": 30.0, "length": 70.0, **changes,
    }  # fmt: skip
    name = "_".join(str(v) for v in config.values()).replace(" ", "")
    config = {"symmetric": False, **config}
    path = work / f"{name}.json"
    if path.exists():
        return dict(json.loads(path.read_text()))
    mesh = o_grid(*config["cells"], wall=config["wall"])
    window, rng = Window(mesh, (128, 64)), np.random.default_rng(config["seed"])
    begin = time.process_time()
    flow = cylinder_flow(mesh, mach, config["reynolds"], rng, config["precision"])
    steps = sum(_moved(flow, mach, config) for _ in range(round(config["warmup"] / 0.1)))
    forces, first, second, count = [], np.zeros(4), np.zeros(4), round(config["length"] / 0.1)
    for _ in range(count):
        steps += _moved(flow, mach, config)
        forces.append(drag_lift(flow, mach))
        u, v, rho, p = window(flow.w)
        fields = np.stack([rho * u, rho * v, rho, p])
        first += fields.mean((1, 2)) / count
        second += (fields**2).mean((1, 2)) / count
    record = {
        "config": config,
        "machine": machine(),
        "drag": [f[0] for f in forces],
        "lift": [f[1] for f in forces],
        "first": first.tolist(),
        "second": second.tolist(),
        "steps": steps,
        "cpu_seconds": time.process_time() - begin,
    }
    save(path, record)
    return record


def _moved(flow: Flow, mach: float, config: dict[str, Any]) -> int:
    """A tenth of D/U; a symmetric flow is then replaced by its mean with its mirror image about y = 0: nothing is shed."""
    steps = flow.advance(0.1 / mach)
    if config["symmetric"]:
        sign = np.array([1, 1, -1, 1], flow.q.dtype)[:, None, None]
        for state in (flow.q, flow.w):
            state[:] = 0.5 * (state + sign * state[:, :, ::-1])
    return steps


def save(path: Path, value: dict[str, Any]) -> None:
    """Write whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value, indent=1) + "\n")
    os.replace(part, path)


def batch_means(record: Record) -> list[float]:
    """Mean drag over each fifth of the run, about three periods of shedding."""
    return [float(b.mean()) for b in np.array_split(np.array(record["drag"]), 5)]


def summary(record: Record) -> dict[str, float]:
    """Mean drag with its standard error from batches, lift, Strouhal number, mean ρ and p."""
    lift, batches = np.array(record["lift"]), batch_means(record)
    return {
        "drag": float(np.mean(record["drag"])),
        "drag_error": float(np.std(batches, ddof=1) / math.sqrt(len(batches))),
        "lift_rms": float(lift.std()),
        "strouhal": strouhal(lift),
        "density": record["first"][2],
        "pressure": record["first"][3],
        "steps": record["steps"],
        "cpu_seconds": record["cpu_seconds"],
    }


def strouhal(lift: np.ndarray) -> float:
    """Frequency of the highest peak of the Hann-windowed spectrum, in U/D."""
    power = np.abs(np.fft.rfft((lift - lift.mean()) * np.hanning(lift.size), 8 * lift.size)) ** 2
    peak = int(power[8:-1].argmax()) + 8
    a, b, c = np.log(power[peak - 1 : peak + 2])
    return float((peak + 0.5 * (a - c) / (a - 2 * b + c)) / (8 * lift.size * 0.1))


def re100(work: Path) -> Part:
    """Laminar vortex street at Re 100, Mach 0.3."""
    record = run(work, 0.3, reynolds=100.0, cells=(96, 97), wall=0.01, warmup=80.0)
    s = summary(record)
    return {"strouhal": check(s["strouhal"], 0.155, 0.172), "drag": check(s["drag"], 1.35, 1.50)}, [record]


def compare(a: Record, b: Record, gate: float) -> Part:
    """Relative change of the means from one run to another."""
    s, t = summary(a), summary(b)
    keys = ("drag", "density", "pressure")
    return {key: check(t[key] / s[key] - 1, -gate, gate) for key in keys}, [a, b]


def grid(work: Path) -> Part:
    """Relative change from the small to the medium grid at Mach 0.8."""
    return compare(run(work, 0.8), run(work, 0.8, cells=MEDIUM), 0.03)


def precision(work: Path) -> Part:
    """Relative change from float32 to float64 at Mach 0.8."""
    return compare(run(work, 0.8), run(work, 0.8, precision="float64"), 0.03)


def stats(work: Path) -> Part:
    """Moments over five Mach numbers, equally weighted, relative to the published constants."""
    records = [run(work, m) for m in MACHS]
    first = np.mean([r["first"] for r in records], axis=0)
    std = np.sqrt(np.mean([r["second"] for r in records], axis=0) - first**2)
    combined = (2 * std[0] + std[1]) / 3
    own = [first[0], combined, first[2], std[2], first[3], std[3]]
    rows = {
        name: check(float(value / theirs - 1), -0.05, 0.05, own=float(value), published=theirs)
        for value, (name, theirs) in zip(own, PUBLISHED.items(), strict=True)
    }
    # Their mean is nearly 0, so this one is measured in standard deviations.
    rows["momentum_y_mean"] = check(float(first[1] / combined), -0.05, 0.05, own=float(first[1]))
    return rows, records


def drag(work: Path) -> Part:
    """Slope of the mean drag against Mach; its rise from 0.5 to 0.9 over three seeds, above 2 errors."""
    records = [run(work, m) for m in MACHS]
    slope = float(np.polyfit(MACHS, [summary(r)["drag"] for r in records], 1)[0])
    ends = [[run(work, m, seed=s) for s in (0, 1, 2)] for m in (MACHS[0], MACHS[-1])]
    batches = [np.ravel([batch_means(r) for r in end]) for end in ends]
    rise = float(batches[1].mean() - batches[0].mean())
    error = math.sqrt(sum(b.var(ddof=1) / b.size for b in batches))
    return {"slope": check(slope, 0.0, None), "rise": check(rise, 2 * error, None, standard_error=error)}, [
        *records,
        *(r for end in ends for r in end if r["config"]["seed"]),
    ]


def laminar(work: Path) -> Part:
    """Mach 0.5 over Mach 0.3 at Re 100, where the flow is laminar and two-dimensional.

    Drag must rise about as 1/√(1 − Mach²) (Prandtl–Glauert), by 1.10, and the frequency fall: both as in the direct
    simulations of Canuto and Taira, "Two-dimensional compressible viscous flow around a circular cylinder" (2015).
    """
    how = {"reynolds": 100.0, "cells": (64, 72), "wall": 0.015, "warmup": 80.0, "length": 30.0}
    slow, fast = (run(work, mach, **how) for mach in (0.3, 0.5))
    s, t = summary(slow), summary(fast)
    rise, fall = t["drag"] / s["drag"], t["strouhal"] / s["strouhal"]
    return {"drag_ratio": check(rise, 1.05, 1.2), "strouhal_ratio": check(fall, 0.9, 1.0)}, [slow, fast]


def symmetric(work: Path) -> Part:
    """Drag at Re 10⁴ on a coarse grid where mirror symmetry forbids shedding: its rise from Mach 0.5 to 0.9."""
    how = {"cells": COARSE, "warmup": 15.0, "length": 15.0}
    records = [run(work, m, symmetric=True, **how) for m in (MACHS[0], MACHS[-1])]
    low, high = (summary(r)["drag"] for r in records)
    return {"rise": check(high - low, 0.2, None, drag=[low, high])}, records


def speed(work: Path) -> Part:
    """CPU seconds of one thread for one D/U of developed flow on the small grid, median of 5."""
    del work
    rows: dict[str, Check] = {}
    for mach in (0.5, 0.7, 0.9):
        flow = cylinder_flow(o_grid(*SMALL), mach, 1e4, np.random.default_rng(SEED))
        flow.advance(5.0 / mach)
        times, steps = [], []
        for _ in range(5):
            begin = time.process_time()
            steps.append(flow.advance(1.0 / mach))
            times.append(time.process_time() - begin)
        per_cell = 1e9 * sum(times) / sum(steps) / 3 / math.prod(SMALL)
        rows[f"mach_{mach}"] = check(float(np.median(times)), 0.0, 1.5, all=times, ns_per_cell_and_stage=per_cell)
    return rows, []


def picture(work: Path) -> None:
    """Pressure and vorticity at Mach 0.8 on the medium grid, four frames 1 D/U apart."""
    import matplotlib.pyplot as plt

    mesh, mach = o_grid(*MEDIUM), 0.8
    flow, window = (cylinder_flow(mesh, mach, 1e4, np.random.default_rng(SEED)), Window(mesh, (256, 128)))
    flow.advance(30.0 / mach)
    figure, axes = plt.subplots(4, 2, figsize=(13, 13), layout="constrained")
    extent = (-1.5, 10.5, -3.0, 3.0)
    for pair in axes:
        u, v, _, p = window(flow.w)
        vorticity = np.gradient(v, 12 / 255, axis=0) - np.gradient(u, 6 / 127, axis=1)
        shade = {"extent": extent, "origin": "lower"}
        pair[0].imshow(np.where(window.mask, p, np.nan).T, cmap="viridis", **shade)
        pair[1].imshow(np.where(window.mask, vorticity, np.nan).T, cmap="RdBu_r", vmin=-4, vmax=4, **shade)
        flow.advance(1.0 / mach)
    axes[0, 0].set_title("pressure")
    axes[0, 1].set_title("vorticity")
    work.mkdir(parents=True, exist_ok=True)
    figure.savefig(work / "mach_0.8.png", dpi=70)


def machine() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.processor()
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    dirty = subprocess.run([*git, "status", "--porcelain", "biasbound"], capture_output=True, check=False)
    return {
        "cpu": f"{cpu}, {os.cpu_count()} cores, one thread used",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "commit": commit.stdout.strip() + (" with changes" if dirty.stdout else ""),
    }


PARTS: dict[str, Callable[[Path], Part]] = {
    "re100": re100,
    "grid": grid,
    "precision": precision,
    "stats": stats,
    "drag": drag,
    "laminar": laminar,
    "symmetric": symmetric,
    "speed": speed,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[*PARTS, "picture"], default=list(PARTS))
    parser.add_argument("--work", type=Path, default=ROOT / "out" / "validate_transonic")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "transonic_validation.json")
    options = parser.parse_args()
    results = json.loads(options.out.read_text()) if options.out.exists() else {}
    good = True
    for name in options.only:
        if name == "picture":
            picture(options.work)
            continue
        checks, records = PARTS[name](options.work)
        runs = [{"config": r["config"], "machine": r["machine"], **summary(r)} for r in records]
        what = {"what": PARTS[name].__doc__, "seed": SEED, "machine": machine()}
        results[name] = {**what, "checks": checks, "runs": runs}
        for key, row in checks.items():
            low, high = row["gate"]
            print(f"{row['verdict']}  {name:9s} {key:16s} {row['value']:9.4f}  in [{low:.4g}, {high}]")
            good &= row["verdict"] == "PASS"
        save(options.out, results)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
