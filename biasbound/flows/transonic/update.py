"""Pointwise work on cells: Runge–Kutta combination, primitive variables, the largest wave rate."""

from __future__ import annotations

import math

from biasbound.flows.transonic.jit import Array, jit


@jit
def _combine(start: Array, inflow: Array, scale: Array, a: float, b: float, dt: float, q: Array) -> None:
    real = q.dtype.type
    first, second, step = real(a), real(b), real(dt)
    for i in range(q.size):
        q[i] = first * start[i] + second * (q[i] + step * scale[i] * inflow[i])


@jit
def _convert(q: Array, r: int, w: Array) -> None:
    real = w.dtype.type
    one, half, excess = real(1), real(0.5), real(0.4)
    mass, mom_x, mom_y, energy = q[0, r], q[1, r], q[2, r], q[3, r]
    rho, u, v, p = w[0, r + 2][2:], w[1, r + 2][2:], w[2, r + 2][2:], w[3, r + 2][2:]
    for i in range(mass.size):
        inverse = one / mass[i]
        x, y = mom_x[i] * inverse, mom_y[i] * inverse
        rho[i] = mass[i]
        u[i] = x
        v[i] = y
        p[i] = excess * (energy[i] - half * (mom_x[i] * x + mom_y[i] * y))


@jit
def stage(start: Array, inflow: Array, per_volume: Array, a: float, b: float, dt: float, q: Array, w: Array) -> None:
    """q ← a·start + b·(q + dt·inflow/V), then w (with two ghost cells per side) from q."""
    for r in range(q.shape[1]):
        for k in range(4):
            _combine(start[k, r], inflow[k, r], per_volume[r], a, b, dt, q[k, r])
        _convert(q, r, w)


@jit
def wave_rate(w: Array, span: Array, mu_inf: float, out: Array) -> None:
    """out (R, C) ← Σ over both directions of |u·s| + a|s| + 2 (γ/Pr) ν |s|², s = S/V."""
    real = out.dtype.type
    gamma, spread = real(1.4), real(2 * 1.4 / 0.72 * mu_inf)
    for r in range(out.shape[0]):
        rho, u, v, p = w[0, r + 2][2:], w[1, r + 2][2:], w[2, r + 2][2:], w[3, r + 2][2:]
        ax, ay, bx, by, size, square = (span[0, r], span[1, r], span[2, r], span[3, r], span[4, r], span[5, r])
        row = out[r]
        for i in range(row.size):
            a = math.sqrt(gamma * p[i] / rho[i])
            move = abs(u[i] * ax[i] + v[i] * ay[i]) + abs(u[i] * bx[i] + v[i] * by[i])
            row[i] = move + a * size[i] + spread / rho[i] * square[i]
