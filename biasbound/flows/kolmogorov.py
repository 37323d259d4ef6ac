"""Trajectories of Kolmogorov flow by name; `kolmogorov_solver` has the equation and its numerics."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import islice
from math import pi
from typing import Any, Literal

import torch

from biasbound.data.layout import Block, Layout, Split, demand, stream
from biasbound.flows.kolmogorov_solver import KolmogorovSolver, initial_modes, trajectory

__all__ = ["PRESETS", "KolmogorovFlow", "KolmogorovSolver", "initial_modes", "preset", "trajectory"]


@dataclass(frozen=True)
class KolmogorovFlow:
    """Generator of Kolmogorov flow: `points`² inside, block means on `grid`² out, Re = 1/ν = 1000.

    `max_speed` sets the usual number of steps a frame through the Courant number `cfl`; faster
    flow is refined.
    """

    split: Split = "train"
    seed: int = 0
    trajectories: int = 800
    frames: int = 64
    warmup: int = 64
    points: int = 256
    grid: int = 64
    nu: float = 1e-3
    drag: float = 0.1
    force: float = 1.0
    wavenumber: int = 4
    dt: float = 0.2
    cfl: float = 1.0
    max_speed: float = 7.0
    precision: Literal["float64", "float32"] = "float64"
    batch: int = 2
    device: str = "cpu"

    def __post_init__(self) -> None:
        demand(self, "1 or more", lambda v: v >= 1, "trajectories", "frames", "grid", "batch")
        demand(self, "0 or more", lambda v: v >= 0, "warmup", "seed", "drag")
        demand(self, "positive", lambda v: v > 0, "nu", "dt", "cfl", "max_speed")
        known = ("float64", "float32")
        demand(self, "float64 or float32", lambda v: v in known, "precision")

    @property
    def layout(self) -> Layout:
        return Layout(
            name="kolmogorov",
            trajectories=self.trajectories,
            frames=self.frames,
            channels=("velocity_x", "velocity_y"),
            grid=(self.grid, self.grid),
            dt=self.dt,
            domain=((0.0, 2 * pi), (0.0, 2 * pi)),
            boundary=("periodic", "periodic"),
            block=self.batch,
            points="centre",
        )

    def provenance(self) -> dict[str, Any]:
        return {
            "equation": "u_t + u.grad u = -grad p + nu lap u - drag u + force sin(wavenumber y) x",
            "scheme": "Fourier pseudo-spectral vorticity, 2/3 dealiasing, ETDRK4, block mean",
            "initial": "noise filtered by lognormal(k; mode 4, variance 0.25)/k, largest speed 3",
            **asdict(self),
        }

    @torch.no_grad()
    def block(self, start: int, stop: int) -> Block:
        solver = KolmogorovSolver(
            self.points,
            nu=self.nu,
            drag=self.drag,
            force=self.force,
            wavenumber=self.wavenumber,
            dtype=getattr(torch, self.precision),
            device=self.device,
        )
        streams = [stream(self.seed, self.split, i) for i in range(start, stop)]
        w = torch.stack([initial_modes(rng, solver) for rng in streams])
        states = solver.frames(w, self.dt, cfl=self.cfl, max_speed=self.max_speed)
        kept = islice(states, self.warmup, self.warmup + self.frames)
        return Block(torch.stack([solver.velocity(w, self.grid) for w in kept], 1).cpu().numpy())


# Trajectories of (train, valid = test); everything else that a preset changes.
PRESETS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "smoke": (4, 2, {"frames": 8, "warmup": 8, "points": 32, "grid": 16, "nu": 1e-2}),
    "small": (48, 8, {"points": 128, "precision": "float32", "batch": 4}),
    "paper": (800, 100, {}),
}


def preset(name: str, split: Split = "train", seed: int = 0, **changes: Any) -> KolmogorovFlow:
    """The generator of one split at a named size; `changes` override its fields."""
    if name not in PRESETS:
        raise ValueError(f"KolmogorovFlow: unknown preset {name!r}, choose one of {', '.join(PRESETS)}.")
    train, held_out, common = PRESETS[name]
    sizes = {"trajectories": train if split == "train" else held_out}
    return replace(KolmogorovFlow(split=split, seed=seed), **{**common, **sizes, **changes})
