"""Trajectories of the flow past a cylinder at transonic speed, one Mach number each.

The recipe follows the "Tra" case of Kohl et al., "Benchmarking Autoregressive Conditional
Diffusion Models for Turbulent Flow Simulation": Re_D = 10⁴, Mach 0.50 … 0.90, a frame every 0.1
D/U, 128×64 points. Theirs comes from a detached-eddy simulation; here the scheme's own dissipation
stands for a turbulence model, in two dimensions. The flows are alike in their statistics, not
equal.

Channels are what their names say: velocity is u, not ρu as in the original's files.

Splits by Mach number, for `full` as in the original: test is 0.50–0.52 ("extrapolate"), 0.66–0.68
("interpolate") or 0.64–0.65 ("long"); train the rest of 0.53, 0.54 … 0.90. The original has no
validation set apart from these; here it takes Mach numbers between those of the training set, in
runs of their own, so that it shares no trajectory with training or test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from biasbound.data.layout import Block, Layout, Split, stream
from biasbound.flows.transonic.cylinder import cylinder_flow, drag_lift
from biasbound.flows.transonic.flow import Precision
from biasbound.flows.transonic.grid import o_grid
from biasbound.flows.transonic.sampling import DOMAIN, Window

__all__ = ["PRESETS", "Part", "Preset", "TransonicCylinder"]

Part = Literal["train", "valid", "extrapolate", "interpolate", "long"]
TestPart = Literal["extrapolate", "interpolate", "long"]


def _percent(*ranges: tuple[int, int]) -> tuple[float, ...]:
    """Mach numbers k/100 for k in each closed range."""
    return tuple(k / 100 for low, high in ranges for k in range(low, high + 1))


@dataclass(frozen=True)
class Preset:
    """Sizes of a data set: Mach numbers a part, frames, warm-up in D/U, cells (around, radial)."""

    mach: Mapping[Part, tuple[float, ...]]
    frames: int
    warmup: float
    cells: tuple[int, int]


PRESETS = {
    "smoke": Preset(
        {
            "train": (0.6, 0.8),
            "valid": (0.7,),
            "extrapolate": (0.52,),
            "interpolate": (0.67,),
            "long": (0.64,),
        },
        frames=12, warmup=2.0, cells=(64, 88),
    ),
    "small": Preset(
        {
            "train": (0.55, 0.6, 0.7, 0.8, 0.9),
            "valid": (0.58, 0.75),
            "extrapolate": (0.5, 0.51, 0.52),
            "interpolate": (0.66, 0.67, 0.68),
            "long": (0.64,),
        },
        frames=400, warmup=30.0, cells=(128, 137),
    ),
    "full": Preset(
        {
            "train": _percent((53, 63), (69, 90)),
            "valid": (0.565, 0.615, 0.735, 0.815, 0.885),
            "extrapolate": _percent((50, 52)),
            "interpolate": _percent((66, 68)),
            "long": _percent((64, 65)),
        },
        frames=1000, warmup=60.0, cells=(192, 170),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class TransonicCylinder:
    """One trajectory a Mach number, started from its own random swirl and eddies.

    Fields: velocity_x, velocity_y, density, pressure in units of a∞, ρ∞, ρ∞a∞² (|u∞| = Mach, ρ∞ =
    1, p∞ = 1/γ), lengths in D. Times are in D/U, so `dt` is the same for every Mach number.
    Series: drag and lift coefficients at each frame. Static: mask, 1 in the gas and 0 in the
    cylinder.
    """

    mach: tuple[float, ...]
    split: Split = "train"
    seed: int = 0
    frames: int = 400
    warmup: float = 30.0  # D/U before the first frame
    interval: float = 0.1  # D/U between frames
    cells: tuple[int, int] = (128, 137)  # around, radial
    resolution: tuple[int, int] = (128, 64)
    reynolds: float = 1e4
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        checks = {
            f"mach {self.mach}: give at least one, each in [0.1, 0.95].": self.mach
            and all(0.1 <= m <= 0.95 for m in self.mach),
            f"split {self.split!r}: use one of {get_args(Split)}.": self.split in get_args(Split),
            f"seed {self.seed}: must be 0 or more.": self.seed >= 0,
            f"frames {self.frames}: must be 1 or more.": self.frames >= 1,
            f"warmup {self.warmup}: must be 0 or more D/U.": self.warmup >= 0,
            f"interval {self.interval}: must be positive.": self.interval > 0,
            f"cells {self.cells}: use 16 or more around, an even number, and 16 or more rings.": (
                min(self.cells) >= 16 and self.cells[0] % 2 == 0
            ),
            f"reynolds {self.reynolds}: must be positive.": self.reynolds > 0,
            f"precision {self.precision!r}: use one of {get_args(Precision)}.": self.precision in get_args(Precision),
        }
        for message, good in checks.items():
            if not good:
                raise ValueError(message)

    @classmethod
    def preset(
        cls, name: str, split: Split = "train", *, test: TestPart = "extrapolate", **changes: Any
    ) -> TransonicCylinder:
        """The data set `name`; `test` picks which Mach numbers the test split holds."""
        if name not in PRESETS:
            raise ValueError(f"preset {name!r}: use one of {tuple(PRESETS)}.")
        preset = PRESETS[name]
        part: Part = test if split == "test" else split
        if part not in preset.mach:
            raise ValueError(f"split {split!r}, test {test!r}: use one of {tuple(preset.mach)}.")
        sizes = {"frames": preset.frames, "warmup": preset.warmup, "cells": preset.cells}
        return cls(**{"mach": preset.mach[part], "split": split, **sizes, **changes})

    @property
    def layout(self) -> Layout:
        return Layout(
            name="transonic",
            trajectories=len(self.mach),
            frames=self.frames,
            channels=("velocity_x", "velocity_y", "density", "pressure"),
            grid=self.resolution,
            dt=self.interval,
            domain=DOMAIN,
            boundary=("open", "open"),
            points="centre",
        )

    def provenance(self) -> dict[str, Any]:
        """Equation, coefficients, scheme, seed and split, as JSON values."""
        return {
            "equation": "compressible Navier-Stokes past a cylinder, 2-D, no turbulence model",
            "units": "density rho_inf, speed a_inf, length D, time D/U; p_inf = 1/gamma",
            "gamma": 1.4,
            "prandtl": 0.72,
            "viscosity": "Sutherland, S/T_inf = 110.4/288.15",
            "reynolds": self.reynolds,
            "mach": list(self.mach),
            "scheme": "finite volume, HLLC, MUSCL kappa=1/3 van Albada, SSP-RK3, CFL 1.4",
            "grid": {"kind": "O-grid to r = 35 D", "around": self.cells[0], "radial": self.cells[1]},
            "sampling": "256x128 points with ends, then scipy.ndimage.zoom order 3, grid_mode",
            "precision": self.precision,
            "warmup": self.warmup,
            "seed": self.seed,
            "split": self.split,
        }

    def block(self, start: int, stop: int) -> Block:
        """Trajectories start … stop − 1, each from its own (seed, split, index)."""
        if not 0 <= start < stop <= len(self.mach):
            raise ValueError(f"trajectories {start} to {stop}: there are {len(self.mach)}.")
        window = Window(o_grid(*self.cells), self.resolution)
        runs = [self._run(i, window) for i in range(start, stop)]
        mach = np.array(self.mach[start:stop])
        return Block(
            fields=np.stack([fields for fields, _ in runs]),
            parameters={"mach": mach, "reynolds": np.full_like(mach, self.reynolds)},
            series={
                "drag": np.stack([forces[0] for _, forces in runs]),
                "lift": np.stack([forces[1] for _, forces in runs]),
            },
            static={"mask": window.mask},
        )

    def _run(self, index: int, window: Window) -> tuple[np.ndarray, np.ndarray]:
        """Fields (K, 4, X, Y) and forces (2, K) of one trajectory."""
        mach = self.mach[index]
        rng = stream(self.seed, self.split, index)
        flow = cylinder_flow(window.grid, mach, self.reynolds, rng, self.precision)
        fields = np.empty((self.frames, 4, *self.resolution), self.precision)
        forces = np.empty((2, self.frames))
        try:
            flow.advance(self.warmup / mach)
            for k in range(self.frames):
                if k:
                    flow.advance(self.interval / mach)
                fields[k], forces[:, k] = window(flow.w), drag_lift(flow, mach)
        except ArithmeticError as error:
            raise ArithmeticError(f"Mach {mach}, seed {self.seed}, cells {self.cells}: {error}") from error
        return fields, forces
