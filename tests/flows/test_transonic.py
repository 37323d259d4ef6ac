"""Laws of the compressible solver and of the data set made with it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from biasbound.flows.transonic.cylinder import cylinder_flow, drag_lift
from biasbound.flows.transonic.flow import Flow
from biasbound.flows.transonic.grid import Grid, o_grid
from biasbound.flows.transonic.kernels import viscous

GAMMA = 1.4


def box(rows, cols, lengths=(1.0, 1.0), warp=0.0, periodic=(True, True)):
    """Rectangle with x along the rows; `warp` bends its inner lines."""
    s, t = np.meshgrid(np.linspace(0, 1, rows + 1), np.linspace(0, 1, cols + 1), indexing="ij")
    bend = warp * np.sin(2 * np.pi * s) * np.sin(2 * np.pi * t)
    nodes = np.stack([lengths[0] * (s + bend), lengths[1] * (t - bend)])
    return Grid.from_nodes(nodes, periodic)


def eddies(grid, seed=0, amplitude=0.2):
    """A random smooth state, periodic in index space, near a uniform flow."""
    rng = np.random.default_rng(seed)
    rows, cols = (2 * np.pi * np.arange(n) / n for n in grid.shape)
    waves = [np.cos(i * rows[:, None] + j * cols + rng.uniform(0, 6)) for i in (0, 1) for j in (1, 2)]
    state = np.einsum("kw,wrc->krc", amplitude * rng.uniform(-0.5, 0.5, (4, 4)), np.stack(waves))
    return state + np.array([1.0, 0.3, 0.2, 1 / GAMMA])[:, None, None]


def totals(flow):
    """∫ρ, ∫ρu, ∫ρv, ∫E."""
    return (flow.q.astype(np.float64) * flow.grid.volume).sum((1, 2))


# --- shocks and contacts -------------------------------------------------------------------------


def sod(x, t):
    """Exact ρ of Sod's problem (left ρ = p = 1, right ρ = 0.125, p = 0.1, both at rest)."""
    g, a_l = GAMMA, np.sqrt(GAMMA)

    def gap(p):  # velocity behind the rarefaction minus that behind the shock
        fan = 2 * a_l / (g - 1) * (1 - p ** ((g - 1) / (2 * g)))
        return fan - (p - 0.1) * np.sqrt(2 / 0.125 / ((g + 1) * p + (g - 1) * 0.1))

    low, high = 0.1, 1.0
    for _ in range(80):
        p = 0.5 * (low + high)
        low, high = (p, high) if gap(p) > 0 else (low, p)
    u = 2 * a_l / (g - 1) * (1 - p ** ((g - 1) / (2 * g)))
    rho_l, ratio, k = p ** (1 / g), p / 0.1, (g - 1) / (g + 1)
    rho_r = 0.125 * (ratio + k) / (k * ratio + 1)
    shock = np.sqrt(g * 0.1 / 0.125) * np.sqrt((g + 1) / (2 * g) * ratio + (g - 1) / (2 * g))
    s = (x - 0.5) / t
    fan = (2 / (g + 1) - k * s / a_l) ** (2 / (g - 1))
    return np.select([s < -a_l, s < u - a_l * p ** ((g - 1) / (2 * g)), s < u, s < shock],
                     [1.0, fan, rho_l, rho_r], 0.125)  # fmt: skip


def shock_tube(n, axis):
    lengths, shape, periodic = [(1.0, 0.1), (n, 4), (False, True)]
    if axis == 1:
        lengths, shape, periodic = lengths[::-1], shape[::-1], periodic[::-1]
    grid = box(*shape, lengths, periodic=periodic)
    left = grid.centres[axis] < 0.5
    zero = np.zeros(shape)
    flow = Flow(grid, np.stack([np.where(left, 1.0, 0.125), zero, zero, np.where(left, 1.0, 0.1)]),
                precision="float64")  # fmt: skip
    flow.advance(0.2, cfl=0.8)
    return flow, grid


@pytest.mark.parametrize("axis", [0, 1])
def test_sod_converges_to_the_exact_solution(axis):
    errors = []
    for n in (100, 200, 400):
        flow, grid = shock_tube(n, axis)
        errors.append(np.abs(flow.q[0] - sod(grid.centres[axis], 0.2)).mean())
    assert errors[0] < 8e-3
    assert np.log2(errors[0] / errors[1]) > 0.8
    assert np.log2(errors[1] / errors[2]) > 0.8


def test_both_directions_are_one_scheme():
    """A shock tube along the columns is that along the rows, turned."""
    (a, _), (b, _) = shock_tube(64, 0), shock_tube(64, 1)
    turned = b.w[[0, 2, 1, 3]].swapaxes(1, 2)
    np.testing.assert_allclose(a.w, turned, rtol=0, atol=1e-13)


def test_contact_and_shear_layer_stand_still():
    """HLLC keeps a jump of density and tangential velocity at rest to the last digits."""
    grid = box(16, 8, periodic=(False, True))
    left = grid.centres[0] < 0.5
    state = np.stack([np.where(left, 1.0, 0.2), 0 * left, np.where(left, 0.4, -0.3), 0 * left + 0.7])
    flow = Flow(grid, state, precision="float64")
    flow.advance(1.0)
    np.testing.assert_allclose(flow.w[:, 2:-2, 2:-2], state, rtol=0, atol=1e-13)


# --- smooth flow ---------------------------------------------------------------------------------


def vortex(x, y):
    """Isentropic vortex of strength 1 at the origin of a periodic 10×10 box, at rest."""
    x, y = (x + 5) % 10 - 5, (y + 5) % 10 - 5
    bell = np.exp(0.5 * (1 - x**2 - y**2)) / (2 * np.pi)
    temp = 1 - 0.5 * (GAMMA - 1) * bell**2
    rho = temp ** (1 / (GAMMA - 1))
    return np.stack([rho, -y * bell, x * bell, rho * temp / GAMMA])


@pytest.mark.parametrize("warp", [0.0, 0.04])
def test_isentropic_vortex_converges_with_second_order(warp):
    errors = []
    for n in (32, 64, 128):
        grid = box(n, n, (10.0, 10.0), warp)
        x, y = grid.centres
        start = vortex(x - 5, y - 5)
        start[1:3] += np.array([0.5, 0.3])[:, None, None]
        flow = Flow(grid, start, precision="float64")
        flow.advance(2.0)
        exact = vortex(x - 5 - 0.5 * 2, y - 5 - 0.3 * 2)
        errors.append((np.abs(flow.q[0] - exact[0]) * grid.volume).sum())
    assert np.log2(errors[0] / errors[1]) > 1.9
    assert np.log2(errors[1] / errors[2]) > 1.9


def test_time_steps_converge_with_third_order():
    """On one grid, halved steps approach each other as dt³ (weak waves, which no limiter touches)."""
    grid, ends = box(16, 16, warp=0.03), []
    for steps in (8, 16, 32, 64):
        flow = Flow(grid, eddies(grid, amplitude=1e-3), viscosity=1e-3, precision="float64")
        for _ in range(steps):
            flow.step(0.2 / steps)
        ends.append(flow.q)
    gaps = [np.abs(b - a).max() for a, b in pairwise(ends)]
    assert np.log2(gaps[0] / gaps[1]) > 2.7
    assert np.log2(gaps[1] / gaps[2]) > 2.7


@pytest.mark.parametrize(("temp", "warp"), [(1.0, 0.0), (1.5, 0.0), (1.0, 0.03)])
def test_shear_and_heat_decay_at_their_rates(temp, warp):
    """Shear decays as exp(−νk²t), entropy as exp(−νk²t/Pr), with Sutherland's ν."""
    grid, mu = box(32, 32, warp=warp), 2e-3
    s = 110.4 / 288.15
    nu = mu * temp**1.5 * (1 + s) / (temp + s) * temp  # ρ = 1/T at p = 1/γ
    wave, span, size = np.sin(2 * np.pi * grid.centres[1]), 1.0, 1e-3
    one = np.ones(grid.shape)
    state = np.stack([(1 - size * wave) / temp, size * wave, 0 * one, one / GAMMA])
    flow = Flow(grid, state, viscosity=mu, precision="float64")
    flow.advance(span)
    rho, u, _, p = flow.w[:, 2:-2, 2:-2]

    def decay(field):
        return -np.log(2 * (field * wave * grid.volume).sum() / grid.volume.sum() / size)

    exact = nu * (2 * np.pi) ** 2 * span
    assert decay(u) == pytest.approx(exact, rel=0.02)
    assert decay(np.log(p / rho**GAMMA) / GAMMA) == pytest.approx(exact / 0.72, rel=0.02)


def viscous_inflow(grid, state, mu):
    """The viscous residual per volume on a periodic grid."""
    w = np.pad(state, ((0, 0), (2, 2), (2, 2)), mode="wrap")
    out, heat, work = np.zeros_like(state), np.zeros_like(w[:2]), np.zeros((15, w.shape[2]))
    viscous(w, grid.across, grid.along, mu, out, heat, work)
    return out / grid.volume


def test_viscous_terms_converge_to_the_operator_on_a_warped_grid():
    """∇·τ = μ(∇²u + ⅓∇∇·u), ∇·(τ·u) = u·∇·τ + τ:∇u and ∇·(k∇T), at second order."""
    errors, k, mu = [], 2 * np.pi, 0.1
    for n in (32, 64):
        grid = box(n, n, warp=0.04)
        x, y = k * grid.centres
        one = np.ones_like(x)
        u, v = np.sin(x) * np.cos(y), np.cos(x + 2 * y)
        ux, uy, vx, vy = (
            k * f for f in (np.cos(x) * np.cos(y), -np.sin(x) * np.sin(y),
                            -np.sin(x + 2 * y), -2 * np.sin(x + 2 * y))
        )  # fmt: skip
        third = k**2 / 3
        fx = mu * (-2 * k**2 * u + third * (-u - 2 * v))
        fy = mu * (-5 * k**2 * v + third * (-np.cos(x) * np.sin(y) - 4 * v))
        work = 2 * ux**2 + 2 * vy**2 + (uy + vx) ** 2 - 2 / 3 * (ux + vy) ** 2
        flow = viscous_inflow(grid, np.stack([one, u, v, one / GAMMA]), mu)
        wave, small = np.cos(x - y), 1e-5
        heat = viscous_inflow(grid, np.stack([1 / (1 + small * wave), 0 * u, 0 * u, one / GAMMA]), mu)
        exact = fx, fy, u * fx + v * fy + mu * work, -2 * mu / (0.4 * 0.72) * k**2 * wave
        own = *flow[1:], heat[3] / small
        errors.append([np.abs(a - b).mean() / np.abs(b).mean() for a, b in zip(own, exact, strict=True)])
    assert max(errors[1]) < 0.02
    assert np.log2(np.divide(*errors)).min() > 1.8


# --- conservation and symmetry -------------------------------------------------------------------


def test_periodic_flow_conserves_everything():
    grid = box(24, 32, warp=0.03)
    flow = Flow(grid, eddies(grid), viscosity=1e-3, precision="float64")
    before = totals(flow)
    flow.advance(0.5)
    assert np.abs(totals(flow) - before).max() < 1e-10


def test_closed_box_keeps_mass_and_energy():
    """Adiabatic walls without slip let no mass through and do no work."""
    grid = box(24, 20, warp=0.03, periodic=(False, False))
    walls = ("wall", "wall")
    flow = Flow(grid, eddies(grid), rows=walls, columns=walls, viscosity=1e-3, precision="float64")
    before = totals(flow)
    flow.advance(0.5)
    after = totals(flow)
    assert np.abs(after - before)[[0, 3]].max() < 1e-10
    assert np.abs(after - before)[[1, 2]].min() > 1e-3  # the walls push back


def test_free_stream_is_kept_on_the_o_grid():
    grid = o_grid(32, 48)
    free = np.array([1.0, 0.7, 0.4, 1 / GAMMA])[:, None, None] * np.ones((1, *grid.shape))
    flow = Flow(grid, free, viscosity=1e-4, precision="float64")
    flow.advance(0.3)
    assert np.abs(flow.w[:, 2:-2, 2:-2] - free).max() < 1e-11


def test_mirrored_start_gives_mirrored_flow():
    grid, mach = o_grid(32, 48), 0.8
    flow = cylinder_flow(grid, mach, 1e4, np.random.default_rng(3), "float64")
    inner = flow.w[:, 2:-2, 2:-2]
    turn = np.array([1.0, 1.0, -1.0, 1.0])[:, None, None]
    twin = Flow(
        grid, turn * inner[:, :, ::-1], rows=("wall", "fixed"), viscosity=flow.viscosity,
        precision="float64",
    )  # fmt: skip
    flow.advance(1.0 / mach)
    twin.advance(1.0 / mach)
    np.testing.assert_allclose(twin.w, turn * flow.w[:, :, ::-1], rtol=0, atol=1e-10)
    (drag, lift), (twin_drag, twin_lift) = drag_lift(flow, mach), drag_lift(twin, mach)
    assert abs(lift) > 1e-3
    assert twin_drag == pytest.approx(drag, abs=1e-8)
    assert twin_lift == pytest.approx(-lift, abs=1e-8)


def test_forces_balance_the_momentum_of_the_gas():
    """While the far field is undisturbed, −d/dt ∫ρu is the force on the cylinder."""
    grid, mach = o_grid(64, 88), 0.6
    flow = cylinder_flow(grid, mach, 500.0, np.random.default_rng(1), "float64")
    flow.advance(2.0 / mach)
    before, forces, dt = totals(flow), [drag_lift(flow, mach)], 2e-3
    flow.advance(dt)
    forces.append(drag_lift(flow, mach))
    loss = -(totals(flow) - before)[1:3] / dt / (0.5 * mach**2)
    np.testing.assert_allclose(loss, np.mean(forces, axis=0), rtol=0.01, atol=5e-3)


def test_folded_grid_is_refused():
    with pytest.raises(ValueError, match="folded"):
        box(8, 8, warp=0.3)


def test_a_flow_that_blows_up_says_so():
    grid = box(8, 8)
    flow = Flow(grid, eddies(grid), precision="float64")
    flow.q[3] = np.nan
    flow.step(1e-3)
    with pytest.raises(ArithmeticError, match="physical range"):
        flow.advance(0.1)
