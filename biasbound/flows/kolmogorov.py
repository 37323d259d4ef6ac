"""Kolmogorov flow in two dimensions.

`kolmogorov_solver` has the equation and its numerics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from math import pi
from typing import Any, ClassVar, Literal

import torch

from biasbound.data.layout import Block, Layout, Split, demand, stream
from biasbound.flows.flow import Size
from biasbound.flows.kolmogorov_solver import KolmogorovSolver, initial_modes


@dataclass(frozen=True)
class KolmogorovFlow:
    """Kolmogorov flow in two dimensions, Re = 1/ν = 1000.

    It is computed on `points`² grid points; frames are block means on a grid of `grid`². `max_speed`
    and the Courant number `cfl` set the usual number of steps per frame; faster flow takes more.
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
    sizes: ClassVar[Mapping[str, Size]] = {
        "smoke": Size(
            {"frames": 8, "warmup": 8, "points": 32, "grid": 16, "nu": 1e-2},
            train={"trajectories": 4},
            valid={"trajectories": 2},
        ),
        "small": Size(
            {"points": 128, "precision": "float32", "batch": 4}, train={"trajectories": 48}, valid={"trajectories": 8}
        ),
        "paper": Size(train={"trajectories": 800}, valid={"trajectories": 100}),
    }

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
