r"""Inviscid part of the residual: MUSCL with κ = 1/3 and van Albada's limiter, HLLC at the faces.

For a cell with backward and forward differences δ₋ and δ₊ of a primitive variable,

    s  = max(0, (2δ₋δ₊ + ε) / (δ₋² + δ₊² + ε)),
    q⁺ = q + s/4 [(1 − κs) δ₋ + (1 + κs) δ₊]     at its upper face,
    q⁻ = q − s/4 [(1 + κs) δ₋ + (1 − κs) δ₊]     at its lower face.

ε switches the limiter off for differences far below √ε (in units of ρ∞, a∞), where it would only
cost accuracy. HLLC takes the wave speeds S_L = min(q_L − a_L, q̄ − ā), S_R = max(q_R + a_R, q̄ +
ā) and is written without branches, so that a row of faces is one vector loop.

Arrays: `w` (4, R+4, C+4) holds ρ, u, v, p with two ghost cells per side; rows of one variable are contiguous.
Constants are cast to the type of the data: one float64 literal would drag a float32 loop to double precision.
"""

from __future__ import annotations

import math

from biasbound.flows.transonic.jit import Array, jit


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
