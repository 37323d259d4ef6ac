r"""The compressible Navier–Stokes equations on a structured grid, advanced by SSP-RK3.

    ∂_t q + ∇·F(q) = ∇·G(q, ∇q),   q = (ρ, ρu, ρv, E),   E = p/(γ − 1) + ½ρ|u|²,   γ = 1.4,

in units of ρ∞, a∞ and the length of the grid: the free stream has ρ = 1, p = 1/γ, |u| = Mach. Second order in smooth
flow, limited at shocks.
"""

import math
from typing import Literal

import numpy as np
from jaxtyping import Float

from biasbound.flows.transonic.grid import Grid
from biasbound.flows.transonic.kernels import Array, convective, stage, viscous, wave_rate

GAMMA = 1.4
Side = Literal["fixed", "wall"]
Precision = Literal["float32", "float64"]

# q⁽ⁱ⁾ = a q + b (q⁽ⁱ⁻¹⁾ + dt R(q⁽ⁱ⁻¹⁾)): three stages, third order, strong stability preserving.
_STAGES = ((0.0, 1.0), (0.75, 0.25), (1 / 3, 2 / 3))


class Flow:
    """State on a grid and its motion.

    `w` (4, R+4, C+4) holds ρ, u, v, p with two ghost cells per side, filled after every stage. Ghost cells of a
    "fixed" side keep the edge values of the initial state (a far field lets waves out through HLLC's upwinding); a
    "wall" is adiabatic and without slip. Periodic axes take no side.
    """

    def __init__(
        self,
        grid: Grid,
        state: Float[np.ndarray, "4 R C"],
        *,
        rows: tuple[Side, Side] = ("fixed", "fixed"),
        columns: tuple[Side, Side] = ("fixed", "fixed"),
        viscosity: float = 0.0,
        precision: Precision = "float32",
    ) -> None:
        self.grid, self.viscosity = grid, viscosity
        rho, u, v, p = state
        self.q = np.stack([rho, rho * u, rho * v, p / (GAMMA - 1) + 0.5 * rho * (u * u + v * v)])
        self.q = self.q.astype(precision)
        self.w = np.pad(state, ((0, 0), (2, 2), (2, 2)), mode="edge").astype(precision)
        self._across, self._along = grid.across.astype(precision), grid.along.astype(precision)
        self._per_volume = (1 / grid.volume).astype(precision)
        self._span = _spans(grid).astype(precision)
        self._start, self._inflow = np.empty_like(self.q), np.empty_like(self.q)
        self._heat, self._rate = np.empty_like(self.w[:2]), np.empty_like(self.q[0])
        self._work = [np.empty((n, self.w.shape[2]), precision) for n in (20, 15)]
        # Rows first, then columns over all rows: the corners come out right.
        self._ghosts = _edges(self.w, grid.periodic[0], rows)
        self._ghosts += _edges(self.w.swapaxes(1, 2), grid.periodic[1], columns)
        self._fill()

    def advance(self, span: float, cfl: float = 1.4) -> int:
        """Advance by the time `span` in steps of that Courant number; returns how many."""
        steps = 0
        while span > 0:
            wave_rate(self.w, self._span, self.viscosity, self._rate)
            rate = float(self._rate.max())
            if not math.isfinite(rate):
                raise ArithmeticError(f"The flow left the physical range after {steps} steps.")
            left = max(1, math.ceil(span * rate / cfl))
            dt = span / left
            self.step(dt)
            span = span - dt if left > 1 else 0.0
            steps += 1
        return steps

    def step(self, dt: float) -> None:
        """One step of SSP-RK3."""
        np.copyto(self._start, self.q)
        for a, b in _STAGES:
            convective(self.w, self._across, self._along, self._inflow, self._work[0])
            if self.viscosity:
                scratch = self._heat, self._work[1]
                viscous(self.w, self._across, self._along, self.viscosity, self._inflow, *scratch)
            stage(self._start, self._inflow, self._per_volume, a, b, dt, self.q, self.w)
            self._fill()

    def _fill(self) -> None:
        for target, origin, mirror in self._ghosts:
            np.copyto(target, origin)
            if mirror:
                np.negative(target[1:3], out=target[1:3])


def _edges(w: Array, periodic: bool, sides: tuple[Side, Side]) -> list[tuple[Array, Array, bool]]:
    """(ghost cells, the cells to copy, whether to reverse the velocity) of both ends of axis 1."""
    if periodic:
        return [(w[:, :2], w[:, -4:-2], False), (w[:, -2:], w[:, 2:4], False)]
    ends = zip((w, w[:, ::-1]), sides, strict=True)
    return [(end[:, :2], end[:, 3:1:-1], True) for end, side in ends if side == "wall"]


def _spans(grid: Grid) -> Float[np.ndarray, "6 R C"]:
    """Mean face vectors per volume of both directions, the sums of their lengths and squares."""
    row, col = grid.across[:2] * grid.across[2], grid.along[:2] * grid.along[2]
    s = np.concatenate([row[:, 1:] + row[:, :-1], col[:, :, 1:] + col[:, :, :-1]])
    s = 0.5 * s / grid.volume
    lengths = np.stack([np.hypot(s[0], s[1]), np.hypot(s[2], s[3])])
    return np.concatenate([s, [lengths.sum(0), (lengths**2).sum(0)]])
