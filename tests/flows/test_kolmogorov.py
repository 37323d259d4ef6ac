"""Laws of the Kolmogorov-flow generator, exact solutions, and a solver written by others."""

from __future__ import annotations

import json
import math
from itertools import islice, pairwise

import numpy as np
import pytest
import torch

from biasbound.data.layout import stream
from biasbound.flows.flow import source
from biasbound.flows.kolmogorov import KolmogorovFlow, KolmogorovSolver, initial_modes

N = 32
NU = 2e-2  # resolved on 32 points


def centres(points):
    """x (axis −2) and y (axis −1) of the cell centres."""
    x = (torch.arange(points).double() + 0.5) * 2 * torch.pi / points
    return torch.meshgrid(x, x, indexing="ij")


def relative(a, b):
    return float((a - b).abs().max() / b.abs().max())


def advance(solver, w, time=1.0, steps=100):
    for _ in range(steps):
        w = solver.step(w, time / steps)
    return w


def derivatives(velocity):
    """(∂_x, ∂_y) of a periodic velocity (B, 2, N, N) by FFT: independent of the solver."""
    k = torch.fft.fftfreq(velocity.shape[-1], 1 / velocity.shape[-1]).double()
    hat = torch.fft.fft2(velocity)
    return torch.fft.ifft2(1j * k[:, None] * hat).real, torch.fft.ifft2(1j * k * hat).real


@pytest.fixture(scope="module")
def solver():
    return KolmogorovSolver(N, nu=NU)


@pytest.fixture(scope="module")
def developed(solver):
    """Modes of two flows after two units of time."""
    w = torch.stack([initial_modes(stream(0, "train", i), solver) for i in range(2)])
    return next(islice(solver.frames(w, 0.2), 10, None))


def test_temporal_order(solver, developed):
    reference = advance(solver, developed, 0.5, 400)
    errors = [float((advance(solver, developed, 0.5, n) - reference).norm()) for n in (25, 50, 100)]
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert min(orders) >= 3.8, orders


def test_agrees_with_exponax(solver, developed):
    """Its vorticity is ∂_y u − ∂_x v at cell corners; 11.5/16 makes it keep the same modes."""
    exponax = pytest.importorskip("exponax")
    jax = pytest.importorskip("jax")

    def vorticity(w):
        return torch.fft.irfft2(w.mT, s=(N, N), norm="forward")

    with jax.enable_x64():
        step = exponax.stepper.KolmogorovFlowVorticity(
            2, 2 * math.pi, N, 0.005, diffusivity=NU, injection_scale=-1.0, order=4, dealiasing_fraction=11.5 / 16
        )
        start = jax.numpy.asarray(-vorticity(developed)[:, None].numpy())
        theirs = -torch.from_numpy(np.array(jax.vmap(exponax.repeat(step, 200))(start)))[:, 0]
    assert relative(vorticity(advance(solver, developed, steps=200)), theirs) <= 1e-6


def test_laminar_flow_is_steady(solver):
    _, y = centres(N)
    u = torch.sin(4 * y) / (0.1 + NU * 16)
    laminar = torch.stack([u, torch.zeros_like(u)])[None]
    assert relative(solver.velocity(advance(solver, solver.modes(laminar))), laminar) <= 1e-12


def test_taylor_green_vortex_decays_exactly():
    x, y = centres(N)
    vortex = torch.stack([torch.cos(x) * torch.sin(y), -torch.sin(x) * torch.cos(y)])[None]
    free = KolmogorovSolver(N, nu=NU, drag=0.3, force=0.0)
    for frame, w in enumerate(islice(free.frames(free.modes(vortex), 0.2), 6)):
        expected = math.exp(-(2 * NU + 0.3) * 0.2 * frame) * vortex
        assert relative(free.velocity(w), expected) <= 1e-12


def test_divergence_is_zero(solver, developed):
    velocity = solver.velocity(advance(solver, developed))
    along_x, along_y = derivatives(velocity)
    divergence = along_x[:, 0] + along_y[:, 1]
    assert float(divergence.abs().max() / along_x.abs().max()) <= 1e-10


def balance(solver, w):
    """E = ½⟨|u|²⟩ and the terms of E_t = injection − friction − dissipation, from the velocity on the grid."""
    velocity = solver.velocity(w)
    along_x, along_y = derivatives(velocity)
    injection = (velocity[:, 0] * torch.sin(4 * centres(N)[1])).mean((-2, -1))
    energy = velocity.square().sum(1).mean((-2, -1)) / 2
    dissipation = NU * (along_x.square() + along_y.square()).sum(1).mean((-2, -1))
    return energy, injection, 2 * 0.1 * energy, dissipation


def test_energy_balance_holds_at_every_instant(solver, developed):
    """E_t by central differences."""
    h = 1e-3
    before, now, later = (balance(solver, advance(solver, developed, n * h, n)) for n in range(3))
    _, injection, friction, dissipation = now
    energy_t = (later[0] - before[0]) / (2 * h)
    torch.testing.assert_close(energy_t, injection - friction - dissipation, rtol=1e-5, atol=1e-7)


def test_energy_balance_holds_in_the_mean_of_a_long_run(solver, developed):
    """Over 100 units of time, friction and viscosity take out what the force puts in."""
    rows = [torch.stack(balance(solver, w)) for w in islice(solver.frames(developed, 0.5, max_speed=4.0), 20, 220)]
    _, injection, friction, dissipation = torch.stack(rows).mean((0, 2)).tolist()
    assert abs(injection / (friction + dissipation) - 1) <= 0.05
    assert injection > 0


@pytest.mark.parametrize(
    "move",
    [
        lambda v: v.roll(5, -2),
        lambda v: v.roll(N // 4, -1),
        # The force changes sign over half its period, as u does when x is reflected.
        lambda v: v.flip(-2).roll(N // 8, -1) * torch.tensor([-1.0, 1.0])[:, None, None],
    ],
    ids=["translation in x", "one force period in y", "shift and reflect"],
)
def test_equivariance(solver, developed, move):
    velocity = solver.velocity(developed)
    moved = solver.velocity(advance(solver, solver.modes(move(velocity))))
    assert relative(moved, move(solver.velocity(advance(solver, developed)))) <= 1e-10


def test_a_shift_that_the_force_does_not_have_is_not_a_symmetry(solver, developed):
    velocity = solver.velocity(developed)
    moved = solver.velocity(advance(solver, solver.modes(velocity.roll(3, -1))))
    assert relative(moved, solver.velocity(advance(solver, developed)).roll(3, -1)) > 1e-2


def test_mean_flow_is_damped_and_carries_the_vortices(developed):
    mean = torch.tensor([1.3, -0.4]).double()[None, :, None, None]
    damped = KolmogorovSolver(N, nu=NU)
    velocity = damped.velocity(developed)
    after = damped.velocity(advance(damped, damped.modes(velocity + mean))).mean((-2, -1))
    torch.testing.assert_close(after, (mean * math.exp(-0.1))[..., 0, 0].expand(2, 2))

    free = KolmogorovSolver(N, nu=NU, drag=0.0, force=0.0)
    points = torch.tensor([3.0, -2.0]).double() * 2 * torch.pi / N  # whole points in one unit of time
    points = points[None, :, None, None]
    moved = free.velocity(advance(free, free.modes(velocity + points)))
    at_rest = free.velocity(advance(free, free.modes(velocity)))
    assert relative(moved - points, at_rest.roll((3, -2), (-2, -1))) <= 1e-6


def test_modes_and_velocity_are_inverse(solver, developed):
    torch.testing.assert_close(solver.modes(solver.velocity(developed)), developed)
    finer = KolmogorovSolver(64)
    torch.testing.assert_close(
        finer.velocity(finer.modes(solver.velocity(developed, 64))), solver.velocity(developed, 64)
    )


def test_coarse_graining_is_a_block_mean_on_every_grid(solver, developed):
    fine = solver.velocity(developed)
    by_hand = fine.reshape(2, 2, 8, 4, 8, 4).mean((3, 5))
    torch.testing.assert_close(solver.velocity(developed, 8), by_hand)
    # 12 does not divide 32: the mean of 3 × 3 points of the 36² grid, at the 12² centres.
    _, y = centres(12)
    smooth = solver.modes(torch.stack([torch.sin(4 * centres(N)[1])] * 2)[None].double())
    weight = math.sin(3 * 4 * math.pi / 36) / (3 * math.sin(4 * math.pi / 36))
    expected = weight * torch.sin(4 * y)
    torch.testing.assert_close(solver.velocity(smooth, 12)[0, 0], expected)
    for grid in (6, 20, 32, 45):
        assert solver.velocity(developed, grid).shape == (2, 2, grid, grid)


def test_initial_flow():
    small, large = KolmogorovSolver(96), KolmogorovSolver(144)
    w = initial_modes(stream(3, "test", 0), small)
    velocity = small.velocity(w[None], 256)
    assert float(velocity.square().sum(1).amax().sqrt()) == pytest.approx(3)
    assert float(velocity.mean((-2, -1)).abs().max()) < 1e-12
    other = large.velocity(initial_modes(stream(3, "test", 0), large)[None], 256)
    assert relative(velocity, other) < 1e-3  # they differ by the tail above k = 31 alone
    assert relative(w.abs(), initial_modes(stream(3, "test", 1), small).abs()) > 0.1


def test_initial_spectrum_follows_the_filter():
    """Vorticity over the lognormal density (mode 4, variance ¼) is white: equal in all rings."""
    solver = KolmogorovSolver(N)
    w = torch.stack([initial_modes(stream(0, "train", i), solver) for i in range(64)])
    power = (w / w.abs().square().sum((-2, -1), keepdim=True).sqrt()).abs().square().mean(0)
    ky = torch.arange(power.shape[0])[:, None].double()
    k = torch.hypot(torch.fft.fftfreq(N, 1 / N).double().expand_as(power), ky)
    density = torch.exp(-((torch.log(k / 4) - 0.25) ** 2) / (2 * 0.25)) / k
    white = power / density**2
    levels = torch.stack([white[(k - ring).abs() < 0.5].mean() for ring in (2, 4, 6, 8, 10)])
    assert float((levels / levels.mean() - 1).abs().max()) < 0.25


def test_fast_flow_is_refined_alone(solver, developed):
    """With room for speed 1 only, each frame is taken again in smaller steps: the answer stays."""
    slow = 0.05 * developed
    both = torch.cat([developed, slow])
    usual = next(islice(solver.frames(both, 0.2), 3, None))
    refined = next(islice(solver.frames(both, 0.2, max_speed=1.0), 3, None))
    assert relative(solver.velocity(refined[:2]), solver.velocity(usual[:2])) <= 1e-3
    # The slow flows keep the large step that they would take without fast neighbours.
    alone = next(islice(solver.frames(slow, 0.2, max_speed=1.0), 3, None))
    torch.testing.assert_close(refined[2:], alone)
    assert relative(refined[2:].abs(), usual[2:].abs()) > 1e-12


@pytest.mark.parametrize("factor", [1e6, math.nan])
def test_a_flow_that_no_step_resolves_is_refused(solver, developed, factor):
    with pytest.raises(ValueError, match="raise points"):
        next(islice(solver.frames(developed * factor, 0.2), 1, None))


def test_blocks_are_reproducible_and_splits_differ():
    made = source("kolmogorov", "smoke")
    again = source("kolmogorov", "smoke").block(0, 4).fields
    assert made.block(0, 4).fields.tobytes() == again.tobytes()
    np.testing.assert_allclose(made.block(2, 4).fields, again[2:], atol=1e-10)
    for other in (
        source("kolmogorov", "smoke", "valid"),
        source("kolmogorov", "smoke", "test"),
        source("kolmogorov", "smoke", seed=1),
    ):
        assert np.abs(other.block(0, 2).fields - again[:2]).max() > 0.1


def test_float32_follows_float64():
    double = source("kolmogorov", "smoke").block(0, 2).fields
    single = source("kolmogorov", "smoke", precision="float32").block(0, 2).fields
    assert (double.dtype, single.dtype) == (np.float64, np.float32)
    np.testing.assert_allclose(single, double, atol=1e-4)


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_layout_tells_the_shape_and_sizes_are_the_papers(split):
    made = source("kolmogorov", "smoke", split)
    assert made.block(0, 2).fields.shape == (2, *made.layout.shape[1:])
    json.dumps(made.provenance())
    paper = source("kolmogorov", "paper", split)
    assert paper.layout.shape == (800 if split == "train" else 100, 64, 2, 64, 64)
    assert paper.points == 256


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"frames": 0}, "frames must be 1 or more"),
        ({"cfl": 0.0}, "cfl must be positive"),
        ({"warmup": -1}, "warmup must be 0 or more"),
    ],
)
def test_bad_input_gets_one_sentence(changes, says):
    with pytest.raises(ValueError, match=says):
        source("kolmogorov", "paper", **changes)


def test_a_grid_too_coarse_for_the_force_is_refused():
    with pytest.raises(ValueError, match="use at least 25 points"):
        KolmogorovFlow(points=16, wavenumber=8).block(0, 1)
