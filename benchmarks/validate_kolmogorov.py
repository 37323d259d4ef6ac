"""How far the spectral Kolmogorov flow is from the finite-volume one behind the paper's data.

    python benchmarks/validate_kolmogorov.py [--parts spectral-128 …] [--trajectories 4]

The original (a staggered grid, van Leer limited advection, forward Euler, pressure projection,
256² cells) cannot be run here, so `Volumes` below re-implements its description in NumPy. Four
measurements:

- energy, enstrophy, terms of the energy balance and spectrum of both schemes after the burn-in;
- what the balance leaves over, which is the dissipation that the scheme adds by itself;
- one frame of 0.2 from the same flow in both schemes and at two resolutions;
- the block mean of face values (the original's, staggering ignored) against that of cell centres.

Each trajectory is written to results/kolmogorov_validation.json as it ends; what is there already
is not run again.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from itertools import islice
from math import ceil, pi
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from record import circumstances

from biasbound.data.layout import stream
from biasbound.flows.kolmogorov import KolmogorovFlow, KolmogorovSolver, initial_modes

RESULT = Path(__file__).parent.parent / "results" / "kolmogorov_validation.json"
FLOW = KolmogorovFlow()  # ν, drag, force, frames and burn-in of the paper
SEED = 0
TERMS = ("energy", "enstrophy", "injection", "friction", "dissipation")


class Volumes:
    """The finite-volume scheme: u[i, j] on the right face of cell (i, j), v[i, j] on the top."""

    def __init__(self, points: int) -> None:
        self.points, self.dx = points, 2 * pi / points
        self.steps = ceil(FLOW.dt / (0.5 * self.dx / 5))  # Courant number 0.5 at speed 5
        y = (np.arange(points) + 0.5) * self.dx
        self.force = FLOW.force * np.sin(FLOW.wavenumber * y)
        s = np.sin(np.fft.fftfreq(points) * pi) ** 2
        laplace = -4 / self.dx**2 * (s[:, None] + s[: points // 2 + 1])
        laplace[0, 0] = 1
        self.inverse = 1 / laplace
        self.inverse[0, 0] = 0

    def advection(self, c: np.ndarray, w: np.ndarray, axis: int, dt: float) -> np.ndarray:
        """∂(w c) along `axis`: upwind flux plus van Leer's limited Lax–Wendroff correction."""
        ahead = np.roll(c, -1, axis)
        slope = ahead - c
        behind = np.roll(slope, 1, axis)
        product, total = slope * behind, slope + behind
        limited = np.where(product > 0, 2 * product / np.where(total == 0, 1, total), 0)
        weight = 0.5 * (1 - np.abs(w) * dt / self.dx)
        flux = w * np.where(w > 0, c + weight * limited, ahead - weight * np.roll(limited, -1, axis))
        return (flux - np.roll(flux, 1, axis)) / self.dx

    def step(self, velocity: np.ndarray, dt: float) -> np.ndarray:
        """Forward Euler and projection of (B, 2, N, N)."""
        new = np.empty_like(velocity)
        for a in range(2):
            c = velocity[:, a]
            tendency = -FLOW.drag * c
            for d in range(2):
                carrier = velocity[:, d]
                w = 0.5 * (carrier + np.roll(carrier, -1, a - 2))
                axis = d - 2
                tendency -= self.advection(c, w, axis, dt)
                second = np.roll(c, -1, axis) + np.roll(c, 1, axis) - 2 * c
                tendency += FLOW.nu / self.dx**2 * second
            if a == 0:
                tendency += self.force
            new[:, a] = c + dt * tendency
        return self.project(new)

    def project(self, velocity: np.ndarray) -> np.ndarray:
        """The nearest velocity whose discrete divergence is zero."""
        u, v = velocity[:, 0], velocity[:, 1]
        divergence = (u - np.roll(u, 1, -2) + v - np.roll(v, 1, -1)) / self.dx
        hat = np.fft.rfft2(divergence) * self.inverse
        p = np.fft.irfft2(hat, s=divergence.shape[-2:])
        gradient = np.stack([np.roll(p, -1, -2) - p, np.roll(p, -1, -1) - p], 1) / self.dx
        return velocity - gradient

    def frames(self, velocity: np.ndarray) -> Iterator[np.ndarray]:
        velocity = self.project(velocity)
        while True:
            yield velocity
            for _ in range(self.steps):
                velocity = self.step(velocity, FLOW.dt / self.steps)


def faces(velocity: np.ndarray, sign: int = 1) -> np.ndarray:
    """Cell centres → faces (half a cell along the component's own axis), or back with sign −1."""
    n = velocity.shape[-1]
    hat = np.fft.fft2(velocity)
    k = np.fft.fftfreq(n, 1 / n)
    k[n // 2] = 0  # the Nyquist mode has no half-cell shift
    shift = np.exp(1j * sign * k * pi / n)
    hat[:, 0] *= shift[:, None]
    hat[:, 1] *= shift
    return np.fft.ifft2(hat).real


def block_mean(velocity: np.ndarray, grid: int = 64) -> np.ndarray:
    size = velocity.shape[-1] // grid
    return velocity.reshape(*velocity.shape[:-2], grid, size, grid, size).mean((-3, -1))


def diagnose(velocity: np.ndarray) -> dict[str, np.ndarray]:
    """Terms of the energy balance and shell spectrum of (B, 2, N, N) cell-centred velocities."""
    n = velocity.shape[-1]
    y = (np.arange(n) + 0.5) * 2 * pi / n
    hat = np.fft.fft2(velocity, norm="forward")
    k = np.fft.fftfreq(n, 1 / n)
    omega = k[:, None] * hat[:, 1] - k * hat[:, 0]
    energy = 0.5 * (np.abs(hat) ** 2).sum(1)
    shell = np.rint(np.hypot(k[:, None], k)).astype(int)
    enstrophy = 0.5 * (np.abs(omega) ** 2).sum((-2, -1))
    spectrum = [np.bincount(shell.ravel(), e.ravel())[: n // 2] for e in energy]
    return {
        "energy": energy.sum((-2, -1)),
        "enstrophy": enstrophy,
        "injection": FLOW.force * (velocity[:, 0] * np.sin(FLOW.wavenumber * y)).mean((-2, -1)),
        "friction": 2 * FLOW.drag * energy.sum((-2, -1)),
        "dissipation": 2 * FLOW.nu * enstrophy,
        "spectrum": np.array(spectrum),
    }


def start(points: int, trajectories: range) -> tuple[KolmogorovSolver, torch.Tensor]:
    solver = KolmogorovSolver(points, nu=FLOW.nu, drag=FLOW.drag)
    draws = [initial_modes(stream(SEED, "train", i), solver) for i in trajectories]
    return solver, torch.stack(draws)


def statistics(scheme: str, points: int, trajectory: int) -> dict[str, Any]:
    """Means over the 64 kept frames of one trajectory."""
    begin = process_time()
    solver, w = start(points, range(trajectory, trajectory + 1))
    if scheme == "spectral":
        states = (solver.velocity(w).numpy() for w in solver.frames(w, FLOW.dt))
    else:
        states = (faces(v, -1) for v in Volumes(points).frames(faces(solver.velocity(w).numpy())))
    rows, coarse = [], []
    for velocity in islice(states, FLOW.warmup, FLOW.warmup + FLOW.frames):
        rows.append(diagnose(velocity))
        coarse.append(diagnose(block_mean(velocity))["spectrum"][0])
    energy = [float(row["energy"][0]) for row in rows]
    out: dict[str, Any] = {name: float(np.mean([row[name] for row in rows])) for name in TERMS}
    out["energy change"] = (energy[-1] - energy[0]) / (FLOW.dt * (FLOW.frames - 1))
    spent = out["friction"] + out["dissipation"] + out["energy change"]
    out["left over"] = out["injection"] - spent
    spectrum = np.mean([row["spectrum"][0] for row in rows], 0)
    for name, values in (("spectrum", spectrum), ("spectrum on 64²", np.mean(coarse, 0))):
        out[name] = [float(f"{value:.5g}") for value in values]
    out["cpu_seconds"] = process_time() - begin
    return out


def mse(a: np.ndarray, b: np.ndarray) -> float:
    return float(((a - b) ** 2).mean())


def one_frame(trajectories: int) -> dict[str, Any]:
    """Frames of 0.2 from one developed flow, both schemes and resolutions, compared on 64²."""
    begin = process_time()
    horizon = 6
    solver, w = start(128, range(trajectories))
    developed = next(islice(solver.frames(w, FLOW.dt), FLOW.warmup, None))
    runs: dict[str, list[np.ndarray]] = {}
    for points in (128, 256):
        velocity = solver.velocity(developed, points)
        finer = KolmogorovSolver(points, nu=FLOW.nu, drag=FLOW.drag)
        states = islice(finer.frames(finer.modes(velocity), FLOW.dt), horizon)
        runs[f"spectral-{points}"] = [finer.velocity(w).numpy() for w in states]
        volumes = Volumes(points).frames(faces(velocity.numpy()))
        runs[f"volumes-{points}"] = [faces(v, -1) for v in islice(volumes, horizon)]
    best = [block_mean(v) for v in runs["spectral-256"]]
    out: dict[str, Any] = {
        f"mse to spectral-256, {name}": [mse(block_mean(v), b) for v, b in zip(run, best, strict=True)]
        for name, run in runs.items()
        if name != "spectral-256"
    }
    out["mse of no change"] = [mse(b, best[0]) for b in best]
    out["mse of faces for centres, 256"] = mse(block_mean(faces(runs["spectral-256"][0])), best[0])
    out["mean square"] = float((best[0] ** 2).mean())
    out["frames"] = [FLOW.dt * i for i in range(horizon)]
    out["trajectories"] = trajectories
    out["cpu_seconds"] = process_time() - begin
    return out


def report(parts: dict[str, Any]) -> Iterator[str]:
    """Means and standard errors over trajectories, spectrum on 64², then the short comparison."""
    rows = {name: list(part["trajectories"].values()) for name, part in parts.items() if name != "one-frame"}
    yield f"{'':<14}" + "".join(f"{name} ({len(rows[name])})".rjust(20) for name in rows)
    for figure in (*TERMS, "energy change", "left over"):
        cells = []
        for part in rows.values():
            values = np.array([row[figure] for row in part])
            error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan
            cells.append(f"{values.mean():.4f} ± {error:.4f}".rjust(20))
        yield f"{figure:<14}" + "".join(cells)
    for k in (1, 2, 4, 8, 12, 16, 20, 24, 28):
        means = [np.mean([row["spectrum on 64²"][k] for row in part]) for part in rows.values()]
        yield f"{f'E({k}) on 64²':<14}" + "".join(f"{mean:20.3e}" for mean in means)
    for name, value in parts.get("one-frame", {}).items():
        if name != "about":
            shown = value if isinstance(value, list) else [value]
            yield f"one frame, {name}: " + " ".join(f"{number:.3g}" for number in shown)


def main() -> None:
    torch.set_num_threads(1)
    known = [f"{scheme}-{points}" for points in (128, 256) for scheme in ("spectral", "volumes")]
    known.append("one-frame")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="*", choices=known, default=known)
    parser.add_argument("--trajectories", type=int, default=4)
    arguments = parser.parse_args()
    record = json.loads(RESULT.read_text()) if RESULT.exists() else {"parts": {}}
    record["flow"] = {**FLOW.provenance(), "seed": SEED}

    def save() -> None:
        RESULT.parent.mkdir(exist_ok=True)
        draft = RESULT.with_suffix(".part")  # a kill leaves the old file or the new one
        text = json.dumps(record, indent=1, ensure_ascii=False)
        text = re.sub(r"\[[^][{}\"]*\]", lambda found: " ".join(found[0].split()), text)
        draft.write_text(text + "\n")  # a list of numbers on one line
        draft.replace(RESULT)

    for name in arguments.parts:
        about = circumstances("torch", "numpy")
        if name == "one-frame":
            record["parts"][name] = {"about": about, **one_frame(arguments.trajectories)}
            save()
            continue
        scheme, points = name.split("-")
        part = record["parts"].setdefault(name, {"about": about, "trajectories": {}})
        for i in range(arguments.trajectories):
            if str(i) not in part["trajectories"]:
                part["trajectories"][str(i)] = statistics(scheme, int(points), i)
                save()
    save()
    print("\n".join(report(record["parts"])))


if __name__ == "__main__":
    main()
