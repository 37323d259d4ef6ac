r"""Viscous part of the residual: Newtonian stress, Fourier's law, Sutherland's viscosity.

    τ = μ (∇u + ∇uᵀ − ⅔ ∇·u I),   heat flux = −k ∇T,   k = μ / ((γ − 1) Pr),   T = γp/ρ,
    μ = μ∞ T^{3/2} (1 + S) / (T + S),   S = 110.4 K / 288.15 K.

The gradient at a face combines the difference δ₁ across it with the mean central difference δ₂
along it, ∇q = (δ₁q S + δ₂q T) / J (see `grid`), so that no term is dropped on skewed cells.
"""

from __future__ import annotations

import math

from biasbound.data.transonic.jit import Array, jit

__all__ = ["sutherland", "viscous"]


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
def _across(below: Array, here: Array, out: Array, faces: int) -> None:
    """δ₁, δ₂ and mean of a variable at the faces between two rows of cells."""
    real = here.dtype.type
    half, quarter = real(0.5), real(0.25)
    d1, d2, mean = out[0], out[1], out[2]
    for i in range(faces):
        d1[i] = here[i + 2] - below[i + 2]
        d2[i] = quarter * ((here[i + 3] - here[i + 1]) + (below[i + 3] - below[i + 1]))
        mean[i] = half * (here[i + 2] + below[i + 2])


@jit
def _along(below: Array, here: Array, above: Array, out: Array, faces: int) -> None:
    """The same at the faces between the cells of one row."""
    real = here.dtype.type
    half, quarter = real(0.5), real(0.25)
    d1, d2, mean = out[0], out[1], out[2]
    for i in range(faces):
        d1[i] = here[i + 2] - here[i + 1]
        d2[i] = quarter * ((above[i + 2] - below[i + 2]) + (above[i + 1] - below[i + 1]))
        mean[i] = half * (here[i + 2] + here[i + 1])


@jit
def _flux(at_faces: Array, metric: Array, row: int, flux: Array) -> None:
    """τ·S and u·τ·S + k ∇T·S of a row of faces from (δ₁, δ₂, mean) of u, v, T, μ."""
    real = flux.dtype.type
    third, two, conduct = real(2 / 3), real(2), real(1 / (0.4 * 0.72))
    u1, u2, um = at_faces[0, 0], at_faces[0, 1], at_faces[0, 2]
    v1, v2, vm = at_faces[1, 0], at_faces[1, 1], at_faces[1, 2]
    t1, t2, mu = at_faces[2, 0], at_faces[2, 1], at_faces[3, 2]
    nx, ny, area = metric[0, row], metric[1, row], metric[2, row]
    scale, bx, by = metric[3, row], metric[4, row], metric[5, row]
    fx, fy, fe = flux[0], flux[1], flux[2]
    for i in range(nx.size):
        ax, ay = scale[i] * nx[i], scale[i] * ny[i]
        ux, uy = u1[i] * ax + u2[i] * bx[i], u1[i] * ay + u2[i] * by[i]
        vx, vy = v1[i] * ax + v2[i] * bx[i], v1[i] * ay + v2[i] * by[i]
        m = mu[i] * area[i]
        spread, shear = third * (ux + vy), uy + vx
        tx = m * ((two * ux - spread) * nx[i] + shear * ny[i])
        ty = m * (shear * nx[i] + (two * vy - spread) * ny[i])
        slope = t1[i] * scale[i] + t2[i] * (bx[i] * nx[i] + by[i] * ny[i])
        fx[i] = tx
        fy[i] = ty
        fe[i] = um[i] * tx + vm[i] * ty + conduct * m * slope


@jit
def viscous(
    w: Array, across: Array, along: Array, mu_inf: float, out: Array, heat: Array, work: Array
) -> None:
    """out (4, R, C) += ∮ (τ·n, u·τ·n + k ∇T·n) of every cell.

    Scratch: `heat` (2, R+4, C+4) for T and μ, `work` (6, 3, C+4).
    """
    rows, cols = out.shape[1], out.shape[2]
    for r in range(rows + 4):
        sutherland(w[0, r], w[3, r], mu_inf, heat[0, r], heat[1, r])
    at_faces, flux, below = work[0:4], work[4], work[5]
    for r in range(rows + 1):
        for k in range(4):
            q = w[k + 1] if k < 2 else heat[k - 2]
            _across(q[r + 1], q[r + 2], at_faces[k], cols)
        _flux(at_faces, across, r, flux)
        if r > 0:
            for k in range(3):
                row = out[k + 1, r - 1]
                for i in range(cols):
                    row[i] += flux[k, i] - below[k, i]
        below, flux = flux, below
        if r == rows:
            break
        for k in range(4):
            q = w[k + 1] if k < 2 else heat[k - 2]
            _along(q[r + 1], q[r + 2], q[r + 3], at_faces[k], cols + 1)
        _flux(at_faces, along, r, flux)
        for k in range(3):
            row = out[k + 1, r]
            for i in range(cols):
                row[i] += flux[k, i + 1] - flux[k, i]
