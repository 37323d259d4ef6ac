r"""Flow about a cylinder of diameter 1 at the origin: its start and the forces on it."""

import numpy as np
from jaxtyping import Float64

from biasbound.flows.transonic.flow import GAMMA, Flow, Precision
from biasbound.flows.transonic.grid import Grid
from biasbound.flows.transonic.kernels import sutherland


def start(grid: Grid, mach: float, rng: np.random.Generator) -> Float64[np.ndarray, "4 R C"]:
    """Free stream that comes to rest at the wall, with a random swirl and random eddies.

    The swirl turns the gas near the cylinder at 0.3 to 0.5 of the free stream, either way: separation is lopsided from
    the start, and vortices are shed within a few D/U, not some tens. Each of four eddies behind the cylinder has the
    stream function A s exp(½ − |x − x₀|²/2s²); its largest speed A is normal, of deviation 0.2 of the free stream.
    """
    x, y = grid.centres
    r = np.hypot(x, y)
    swirl = mach * rng.choice([-1.0, 1.0]) * rng.uniform(0.3, 0.5) * np.exp(-((r - 0.5) ** 2)) / r
    u, v = mach - swirl * y, swirl * x
    for _ in range(4):
        x0, y0, size = rng.uniform(1.0, 3.0), rng.uniform(-0.8, 0.8), rng.uniform(0.3, 0.6)
        dx, dy = (x - x0) / size, (y - y0) / size
        bell = 0.2 * mach * rng.standard_normal() * np.exp(0.5 - 0.5 * (dx**2 + dy**2))
        u, v = u - dy * bell, v + dx * bell
    rest = 1 - np.exp(-(((r - 0.5) / 0.1) ** 2))
    return np.stack([np.ones_like(x), u * rest, v * rest, np.full_like(x, 1 / GAMMA)])


def cylinder_flow(
    grid: Grid, mach: float, reynolds: float, rng: np.random.Generator, precision: Precision = "float32"
) -> Flow:
    """Flow past the inner wall of an O-grid; μ∞ = Mach/Re_D. One time unit D/U is 1/Mach."""
    state = start(grid, mach, rng)
    return Flow(grid, state, rows=("wall", "fixed"), viscosity=mach / reynolds, precision=precision)


def drag_lift(flow: Flow, mach: float) -> tuple[float, float]:
    """Force coefficients (C_d, C_l) = ∮ (τ·n − p n) / (½ρ∞U²D) over the wall, n into the gas."""
    ring = np.ascontiguousarray(flow.w[:, 2, 2:-2])  # the first one; its ghost mirrors it
    temp, mu = np.empty_like(ring[:2])
    sutherland(ring[0], ring[3], flow.viscosity, temp, mu)
    _, u, v, p = ring.astype(np.float64)
    nx, ny, area, scale = flow.grid.across[:4, 0]
    ux, uy, vx, vy = (2 * q * scale * n for q in (u, v) for n in (nx, ny))  # δ₁ = 2q, δ₂ = 0
    spread = 2 / 3 * (ux + vy)
    fx = mu * ((2 * ux - spread) * nx + (uy + vx) * ny) - p * nx
    fy = mu * ((uy + vx) * nx + (2 * vy - spread) * ny) - p * ny
    half = 0.5 * mach**2
    return float((fx * area).sum() / half), float((fy * area).sum() / half)
