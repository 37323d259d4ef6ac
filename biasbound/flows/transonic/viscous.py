r"""Viscous part of the residual: Newtonian stress, Fourier's law, Sutherland's viscosity.

    τ = μ (∇u + ∇uᵀ − ⅔ ∇·u I),   heat flux = −k ∇T,   k = μ / ((γ − 1) Pr),   T = γp/ρ,
    μ = μ∞ T^{3/2} (1 + S) / (T + S),   S = 110.4 K / 288.15 K.

The gradient at a face combines the difference δ₁ across it with the mean central difference δ₂
along it, ∇q = (δ₁q S + δ₂q T) / J (see `grid`), so that no term is dropped on skewed cells.
"""

from __future__ import annotations

import math

from biasbound.flows.transonic.jit import Array, jit


@jit
def sutherland(rho: Array, p: Array, mu_inf: float, temp: Array, mu: Array) -> None:
    """T = γp/ρ (1 in the free stream) and Sutherland's μ(T)."""
    real = temp.dtype.type
    gamma, s = real(1.4), real(110.4 / 288.15)
    scale = real(mu_inf) * (real(1) + s)
    for i in range(temp.size):
        t = gamma * p[i] / rho[i]
        temp[i] = t
        mu[i] = scale * t * math.sqrt(t) / (t + s)


@jit
def _across(below: Array, here: Array, d1: Array, d2: Array, faces: int) -> None:
    """δ₁ and 4δ₂ of a variable at the faces between two rows of cells."""
    for i in range(faces):
        d1[i] = here[i + 2] - below[i + 2]
        d2[i] = (here[i + 3] - here[i + 1]) + (below[i + 3] - below[i + 1])


@jit
def _along(below: Array, here: Array, above: Array, d1: Array, d2: Array, faces: int) -> None:
    """The same at the faces between the cells of one row."""
    for i in range(faces):
        d1[i] = here[i + 2] - here[i + 1]
        d2[i] = (above[i + 2] - below[i + 2]) + (above[i + 1] - below[i + 1])


@jit
def _mean(a: Array, b: Array, out: Array) -> None:
    real = out.dtype.type
    half = real(0.5)
    for i in range(a.size):
        out[i] = half * (a[i] + b[i])


@jit
def _flux(at_faces: Array, metric: Array, row: int, flux: Array) -> None:
    """τ·S and u·τ·S + k ∇T·S of a row of faces; at_faces: δ₁, 4δ₂ of u, v, T, means of u, v, μ."""
    real = flux.dtype.type
    quarter, third, two = real(0.25), real(2 / 3), real(2)
    conduct = real(1 / (0.4 * 0.72))
    u1, u2, v1, v2 = at_faces[0], at_faces[1], at_faces[2], at_faces[3]
    t1, t2 = at_faces[4], at_faces[5]
    um, vm, mu = at_faces[6], at_faces[7], at_faces[8]
    nx, ny, area = metric[0, row], metric[1, row], metric[2, row]
    scale, bx, by = metric[3, row], metric[4, row], metric[5, row]
    fx, fy, fe = flux[0], flux[1], flux[2]
    for i in range(nx.size):
        ax, ay = scale[i] * nx[i], scale[i] * ny[i]
        cx, cy = quarter * bx[i], quarter * by[i]
        ux, uy = u1[i] * ax + u2[i] * cx, u1[i] * ay + u2[i] * cy
        vx, vy = v1[i] * ax + v2[i] * cx, v1[i] * ay + v2[i] * cy
        m = mu[i] * area[i]
        spread, shear = third * (ux + vy), uy + vx
        tx = m * ((two * ux - spread) * nx[i] + shear * ny[i])
        ty = m * (shear * nx[i] + (two * vy - spread) * ny[i])
        slope = t1[i] * scale[i] + t2[i] * (cx * nx[i] + cy * ny[i])
        fx[i] = tx
        fy[i] = ty
        fe[i] = um[i] * tx + vm[i] * ty + conduct * m * slope


@jit
def viscous(w: Array, across: Array, along: Array, mu_inf: float, out: Array, heat: Array, work: Array) -> None:
    """out (4, R, C) += ∮ (τ·n, u·τ·n + k ∇T·n) of every cell.

    Scratch: `heat` (2, R+4, C+4) for T and μ, `work` (15, C+4).
    """
    rows, cols = out.shape[1], out.shape[2]
    u, v, temp, mu = w[1], w[2], heat[0], heat[1]
    for r in range(rows + 4):
        sutherland(w[0, r], w[3, r], mu_inf, temp[r], mu[r])
    at_faces, flux, below = work[0:9], work[9:12], work[12:15]
    for r in range(rows + 1):
        lo, hi, up = r + 1, r + 2, r + 3
        _across(u[lo], u[hi], at_faces[0], at_faces[1], cols)
        _across(v[lo], v[hi], at_faces[2], at_faces[3], cols)
        _across(temp[lo], temp[hi], at_faces[4], at_faces[5], cols)
        _mean(u[lo][2:-2], u[hi][2:-2], at_faces[6])
        _mean(v[lo][2:-2], v[hi][2:-2], at_faces[7])
        _mean(mu[lo][2:-2], mu[hi][2:-2], at_faces[8])
        _flux(at_faces, across, r, flux)
        if r > 0:
            for k in range(3):
                row = out[k + 1, r - 1]
                for i in range(cols):
                    row[i] += flux[k, i] - below[k, i]
        below, flux = flux, below
        if r == rows:
            break
        _along(u[lo], u[hi], u[up], at_faces[0], at_faces[1], cols + 1)
        _along(v[lo], v[hi], v[up], at_faces[2], at_faces[3], cols + 1)
        _along(temp[lo], temp[hi], temp[up], at_faces[4], at_faces[5], cols + 1)
        _mean(u[hi][1:-2], u[hi][2:-1], at_faces[6])
        _mean(v[hi][1:-2], v[hi][2:-1], at_faces[7])
        _mean(mu[hi][1:-2], mu[hi][2:-1], at_faces[8])
        _flux(at_faces, along, r, flux)
        for k in range(3):
            row = out[k + 1, r]
            for i in range(cols):
                row[i] += flux[k, i + 1] - flux[k, i]
