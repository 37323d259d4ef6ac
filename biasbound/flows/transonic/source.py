"""Trajectories of the flow past a cylinder at transonic speed, one Mach number each.

The recipe follows the "Tra" case of Kohl et al., "Benchmarking Autoregressive Conditional Diffusion Models for
Turbulent Flow Simulation": Re_D = 10⁴, Mach 0.50 … 0.90, a frame every 0.1 D/U, 128×64 points. Theirs comes from a
detached-eddy simulation. Here the flow is two-dimensional, and the scheme's own dissipation takes the place of a
turbulence model. The two flows have similar statistics; they are not equal. Channels are what their names say:
velocity is u, not ρu as in the original's files.

Splits are by Mach number. The size `full` has those of the original: three test sets, Mach 0.50–0.52 ("extrapolate"),
0.66–0.68 ("interpolate") and 0.64–0.65 ("long"), and the rest of 0.53, 0.54 … 0.90 for training. The setting `test`
picks the test set. The original has no validation set apart from these; here it has Mach numbers between those of the
training set, in runs of its own, so that it shares no trajectory with training or test. The size `mini` trains as `small`
does and is tested on twelve trajectories: each of three Mach numbers from four starts, for 120 steps of two frames.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import numpy as np

from biasbound.data.layout import Block, Layout, Split, demand, stream
from biasbound.flows.flow import Size
from biasbound.flows.transonic.cylinder import cylinder_flow, drag_lift
from biasbound.flows.transonic.flow import Precision
from biasbound.flows.transonic.grid import o_grid
from biasbound.flows.transonic.sampling import DOMAIN, Window


def _percent(*ranges: tuple[int, int]) -> tuple[float, ...]:
    """Mach numbers k/100 for k in each closed range."""
    return tuple(k / 100 for low, high in ranges for k in range(low, high + 1))


def _size(frames: int, warmup: float, cells: tuple[int, int], **mach: tuple[float, ...]) -> Size:
    """Frames, warm-up in D/U, cells (around, radial), and the Mach numbers of each part."""
    every = {"frames": frames, "warmup": warmup, "cells": cells}
    train, valid, *tests = ({"mach": numbers} for numbers in mach.values())
    return Size(every, train, valid, dict(zip(list(mach)[2:], tests, strict=True)))


@dataclass(frozen=True)
class TransonicCylinder:
    """Transonic flow past a cylinder, one trajectory for each entry of `mach`.

    Each starts from its own random swirl and eddies. Fields: velocity_x, velocity_y, density, pressure in units of a∞,
    ρ∞, ρ∞a∞² (|u∞| = Mach, ρ∞ = 1, p∞ = 1/γ), lengths in D. Times are in D/U, so `dt` is the same for every Mach
    number. Series: drag and lift coefficients at each frame. Static: mask, 1 in the gas and 0 in the cylinder.
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
    sizes: ClassVar[Mapping[str, Size]] = {
        "smoke": _size(12, 2.0, (64, 88), train=(0.6, 0.8), valid=(0.7,),
                       extrapolate=(0.52,), interpolate=(0.67,), long=(0.64,)),
        "small": _size(400, 30.0, (128, 137), train=(0.55, 0.6, 0.7, 0.8, 0.9), valid=(0.58, 0.75),
                       extrapolate=(0.5, 0.51, 0.52), interpolate=(0.66, 0.67, 0.68), long=(0.64,)),
        "mini": Size(
            {"warmup": 30.0, "cells": (128, 137)}, {"frames": 400, "mach": (0.55, 0.6, 0.7, 0.8, 0.9)},
            {"frames": 400, "mach": (0.58, 0.75)},
            {name: {"frames": 242, "mach": 4 * numbers} for name, numbers in
             {"extrapolate": (0.5, 0.51, 0.52), "interpolate": (0.66, 0.67, 0.68)}.items()},
        ),
        "full": _size(1000, 60.0, (192, 170), train=_percent((53, 63), (69, 90)),
                      valid=(0.565, 0.615, 0.735, 0.815, 0.885),
                      extrapolate=_percent((50, 52)), interpolate=_percent((66, 68)), long=_percent((64, 65))),
    }  # fmt: skip

    def __post_init__(self) -> None:
        slow = "one or more numbers in [0.1, 0.95]"
        demand(self, slow, lambda v: len(v) > 0 and all(0.1 <= m <= 0.95 for m in v), "mach")
        demand(self, "1 or more", lambda v: v >= 1, "frames")
        demand(self, "0 or more", lambda v: v >= 0, "warmup", "seed")
        demand(self, "positive", lambda v: v > 0, "interval", "reynolds")
        enough = "an even number of 16 or more around, and 16 or more rings"
        demand(self, enough, lambda v: min(v) >= 16 and v[0] % 2 == 0, "cells")
        demand(self, "float32 or float64", lambda v: v in get_args(Precision), "precision")

    @property
    def layout(self) -> Layout:
        channels = ("velocity_x", "velocity_y", "density", "pressure")
        shape = len(self.mach), self.frames, channels, self.resolution
        return Layout("transonic", *shape, self.interval, DOMAIN, ("open", "open"), points="centre")

    def provenance(self) -> dict[str, Any]:
        """Equation, coefficients, scheme, seed and split, as JSON values."""
        return {
            "equation": "compressible Navier-Stokes past a cylinder, 2-D, no turbulence model",
            "units": "density rho_inf, speed a_inf, length D, time D/U; p_inf = 1/gamma",
            "gamma": 1.4,
            "prandtl": 0.72,
            "viscosity": "Sutherland, S/T_inf = 110.4/288.15",
            "scheme": "finite volume, HLLC, MUSCL kappa=1/3 van Albada, SSP-RK3, CFL 1.4",
            "grid": {"kind": "O-grid to r = 35 D", "around": self.cells[0], "radial": self.cells[1]},
            "sampling": "256x128 points with ends, then scipy.ndimage.zoom order 3, grid_mode",
            "mach": list(self.mach),
            **{name: getattr(self, name) for name in ("reynolds", "precision", "warmup", "seed", "split")},
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
            series={name: np.stack([forces[i] for _, forces in runs]) for i, name in enumerate(("drag", "lift"))},
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
