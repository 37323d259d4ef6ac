r"""The compiled loops of the compressible solver, and one way into numba for them.

Inviscid part of the residual: MUSCL with κ = 1/3 and van Albada's limiter, HLLC at the faces. For a cell with backward
and forward differences δ₋ and δ₊ of a primitive variable,

    s  = max(0, (2δ₋δ₊ + ε) / (δ₋² + δ₊² + ε)),
    q⁺ = q + s/4 [(1 − κs) δ₋ + (1 + κs) δ₊]     at its upper face,
    q⁻ = q − s/4 [(1 + κs) δ₋ + (1 − κs) δ₊]     at its lower face.

ε switches the limiter off for differences far below √ε (in units of ρ∞, a∞), where it would only cost accuracy. HLLC
takes the wave speeds S_L = min(q_L − a_L, q̄ − ā), S_R = max(q_R + a_R, q̄ + ā) and is written without branches, so
that a row of faces is one vector loop.

Viscous part: Newtonian stress, Fourier's law, Sutherland's viscosity,

    τ = μ (∇u + ∇uᵀ − ⅔ ∇·u I),   heat flux = −k ∇T,   k = μ / ((γ − 1) Pr),   T = γp/ρ,
    μ = μ∞ T^{3/2} (1 + S) / (T + S),   S = 110.4 K / 288.15 K.

The gradient at a face combines the difference δ₁ across it with the mean central difference δ₂ along it,
∇q = (δ₁q S + δ₂q T) / J (see `grid`), so that no term is dropped on skewed cells.

Arrays: `w` (4, R+4, C+4) holds ρ, u, v, p with two ghost cells per side; rows of one variable are contiguous.
Constants are cast to the type of the data: one float64 literal would drag a float32 loop to double precision.

Compiled code is cached on disk. numba looks for a folder that can be written (NUMBA_CACHE_DIR, beside the source, the
user's cache); in a read-only install without a home there is none, and the kernels are then compiled once a process.
Its cache is keyed by the file that holds a function and not by the files of the functions that it calls, so all
kernels that call each other stand in this one.
"""

import inspect
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numpy.typing import NDArray

Array = NDArray[Any]  # float32 or float64
F = TypeVar("F", bound=Callable[..., Any])

# Division by zero gives ∞, not an exception, so that loops vectorise. No fast arithmetic: a fused a·b + c appears or
# not with how a kernel was inlined, and then a fresh compilation and its cached copy would give different bits.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True}


def jit(function: F) -> F:
    """Compile `function` for the argument types of each first call; its type stays as written."""
    plain = inspect.unwrap(function)  # below a run-time type checker, which numba cannot compile
    try:
        return cast("F", numba.njit(plain, cache=True, **_OPTIONS))
    except RuntimeError:  # no folder for the cache
        return cast("F", numba.njit(plain, **_OPTIONS))


@jit
def _limit(below: Array, here: Array, above: Array, low: Array, high: Array) -> None:
    """Values at the lower and upper face of each cell from the cell and its two neighbours."""
    real = here.dtype.type
    zero, quarter, two = real(0), real(0.25), real(2)
    kappa, eps = real(1 / 3), real(1e-6)
    for i in range(low.size):
        q = here[i]
        back, ahead = q - below[i], above[i] - q
        both, product = back + ahead, two * back * ahead
        s = max((product + eps) / (both * both - product + eps), zero)
        skew = kappa * s * (back - ahead)
        s = quarter * s
        low[i] = q - s * (both + skew)
        high[i] = q + s * (both - skew)


@jit
def _hllc(left: Array, right: Array, shift: int, nx: Array, ny: Array, area: Array, flux: Array) -> None:
    """Fluxes of mass, momentum and energy through a row of faces with unit normal (nx, ny).

    The states on the two sides of face i are left[:, i + shift] and right[:, i + 2].
    """
    real = flux.dtype.type
    zero, half, one, gamma, inner = real(0), real(0.5), real(1), real(1.4), real(2.5)
    rl, ul, vl, pl = left[0][shift:], left[1][shift:], left[2][shift:], left[3][shift:]
    rr, ur, vr, pr = right[0][2:], right[1][2:], right[2][2:], right[3][2:]
    mass, mom_x, mom_y, energy = flux[0], flux[1], flux[2], flux[3]
    for i in range(nx.size):
        ql, qr = ul[i] * nx[i] + vl[i] * ny[i], ur[i] * nx[i] + vr[i] * ny[i]
        al, ar = math.sqrt(gamma * pl[i] / rl[i]), math.sqrt(gamma * pr[i] / rr[i])
        qm, am = half * (ql + qr), half * (al + ar)
        sl, sr = min(ql - al, qm - am), max(qr + ar, qm + am)
        ml, mr = rl[i] * (sl - ql), rr[i] * (sr - qr)
        middle = (pr[i] - pl[i] + ml * ql - mr * qr) / (ml - mr)
        # All that follows is taken from the side of the contact that holds the face.
        is_left = middle >= zero
        rho = rl[i] if is_left else rr[i]
        u = ul[i] if is_left else ur[i]
        v = vl[i] if is_left else vr[i]
        p = pl[i] if is_left else pr[i]
        q = ql if is_left else qr
        m = ml if is_left else mr
        outer = sl if is_left else sr
        speed = min(sl, zero) if is_left else max(sr, zero)  # 0 where the flow is supersonic
        gap, inverse = middle - q, one / (outer - middle)
        star = m * inverse  # density behind the outer wave
        e = inner * p + half * rho * (u * u + v * v)
        e_star = ((outer - q) * e + gap * (m * middle + p)) * inverse
        through = area[i] * (rho * q + speed * (star - rho))
        push = area[i] * (p + speed * star * gap)
        mass[i] = through
        mom_x[i] = u * through + push * nx[i]
        mom_y[i] = v * through + push * ny[i]
        energy[i] = area[i] * ((e + p) * q + speed * (e_star - e))


@jit
def convective(w: Array, across: Array, along: Array, out: Array, work: Array) -> None:
    """out (4, R, C) ← −∮ F·n of every cell; `work` (20, C+4) is scratch."""
    rows, cols = out.shape[1], out.shape[2]
    low, high, old, flux, below = work[0:4], work[4:8], work[8:12], work[12:16], work[16:20]
    for r in range(-1, rows + 1):
        for k in range(4):
            _limit(w[k, r + 1], w[k, r + 2], w[k, r + 3], low[k], high[k])
        if r >= 0:
            _hllc(old, low, 2, across[0, r], across[1, r], across[2, r], flux)
        if r > 0:
            for k in range(4):
                row = out[k, r - 1]
                for i in range(cols):
                    row[i] += below[k, i] - flux[k, i]
        old, high = high, old
        below, flux = flux, below
        if 0 <= r < rows:
            for k in range(4):
                q = w[k, r + 2]
                _limit(q[:-2], q[1:-1], q[2:], low[k][1:-1], high[k][1:-1])
            _hllc(high, low, 1, along[0, r], along[1, r], along[2, r], flux)
            for k in range(4):
                row = out[k, r]
                for i in range(cols):
                    row[i] = flux[k, i] - flux[k, i + 1]


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
