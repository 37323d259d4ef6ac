"""Laws of the Kuramoto–Sivashinsky generator, and two solvers written by others."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from biasbound.data.layout import stream
from biasbound.flows.flow import source
from biasbound.flows.ks import KuramotoSivashinsky, initial_state, trajectory

LENGTH = 22.0  # chaotic, and cheap


@pytest.fixture(scope="module")
def states():
    """Four states on the attractor, resolved to about 1e-13 on 128 points."""
    source = KuramotoSivashinsky(length=LENGTH, points=128, trajectories=4, frames=1)
    return torch.from_numpy(source.block(0, 4).fields[:, 0, 0])


def run(u0, time=1.0, substeps=40, length=LENGTH, **changes):
    """u at `time`."""
    return trajectory(u0, length=length, frames=2, dt=time, substeps=substeps, **changes)[:, -1]


def relative(a, b):
    return float((a - b).abs().max() / b.abs().max())


def test_temporal_order(states):
    coarse = states[:, ::4]  # 32 points: the order is seen once |L| h is below about 1
    reference = run(coarse, substeps=640)
    errors = [float((run(coarse, substeps=n) - reference).norm()) for n in (40, 80, 160)]
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert min(orders) >= 3.8, orders


def test_agrees_with_exponax(states):
    exponax = pytest.importorskip("exponax")
    jax = pytest.importorskip("jax")
    with jax.enable_x64():
        step = exponax.stepper.KuramotoSivashinskyConservative(1, LENGTH, 128, 0.01, order=4)
        theirs = jax.vmap(exponax.repeat(step, 100))(jax.numpy.asarray(states[:, None].numpy()))
        theirs = torch.from_numpy(np.array(theirs))[:, 0]
    assert relative(run(states, substeps=100), theirs) <= 1e-6


def test_agrees_with_radau(states):
    """Fourier derivatives and an implicit solver at 1e-9, as the paper's source has it."""
    from scipy.fftpack import diff
    from scipy.integrate import solve_ivp

    def tendency(_, u):
        return -u * diff(u, 1, LENGTH) - diff(u, 2, LENGTH) - diff(u, 4, LENGTH)

    u0 = states[0].numpy()
    theirs = solve_ivp(tendency, (0, 1), u0, method="Radau", rtol=1e-9, atol=1e-9).y[:, -1]
    assert relative(run(states, substeps=100)[0], torch.from_numpy(theirs)) <= 1e-8


def test_mean_is_conserved(states):
    shifted = states + 0.7
    for u in trajectory(shifted, length=LENGTH, frames=50).unbind(1):
        torch.testing.assert_close(u.mean(-1), shifted.mean(-1), rtol=0, atol=1e-14)


def test_galilean_equivariance(states):
    """u + c moves with c: after a whole number of points the two runs stand on the same grid."""
    speed = 3 * LENGTH / 128  # three points in one unit of time
    moved = run(states + speed, substeps=160)
    assert relative(moved - speed, run(states, substeps=160).roll(3, -1)) <= 1e-8


@pytest.mark.parametrize("move", [lambda u: u.roll(5, -1), lambda u: -u.flip(-1)], ids=["translation", "reflection"])
def test_equivariance(states, move):
    assert relative(run(move(states)), move(run(states))) <= 1e-11


@pytest.mark.parametrize("nu", [1.0, 0.3])
def test_small_waves_grow_at_the_linear_rate(nu):
    k = 2 * torch.pi * 3 / LENGTH
    u0 = 1e-7 * torch.cos(2 * torch.pi * 3 / 64 * torch.arange(64).double())[None]
    expected = math.exp(k**2 - nu * k**4) * u0
    assert relative(run(u0, nu=nu), expected) <= 1e-6


def test_two_grids_agree_and_products_do_not_alias(states):
    fine = torch.fft.irfft(torch.fft.rfft(states), n=256) * 2
    assert relative(run(fine)[:, ::2], run(states)) <= 1e-9


def test_one_frame_error_is_far_below_an_emulator():
    made = source("ks", "paper", trajectories=2, frames=2)
    u0 = torch.from_numpy(made.block(0, 2).fields[:, 0, 0])
    usual = run(u0, made.dt, made.substeps, made.length)
    exact = run(u0, made.dt, 64, made.length)
    assert float((usual - exact).square().mean()) <= 1e-12  # the best emulators reach about 1e-8


def test_frames_do_not_depend_on_where_the_trajectory_starts():
    source = KuramotoSivashinsky(length=LENGTH, points=64, trajectories=2, frames=6, warmup=4)
    u0 = torch.from_numpy(np.stack([initial_state(stream(0, "train", i), source.points) for i in range(2)]))
    whole = trajectory(u0, length=LENGTH, frames=10)
    assert torch.equal(whole[:, 4:], torch.from_numpy(source.block(0, 2).fields[:, :, 0]))


def test_blocks_are_reproducible_and_splits_differ():
    made = source("ks", "smoke", warmup=20)
    again = source("ks", "smoke", warmup=20).block(0, 4).fields
    assert made.block(0, 4).fields.tobytes() == again.tobytes()
    np.testing.assert_allclose(made.block(2, 4).fields, again[2:], atol=1e-7)
    for other in (
        source("ks", "smoke", "valid", warmup=20),
        source("ks", "smoke", "test", warmup=20),
        source("ks", "smoke", seed=1, warmup=20),
    ):
        assert np.abs(other.block(0, 4).fields - again).max() > 0.1


def test_jitter_gives_each_trajectory_its_own_clock_and_length():
    made = source("ks", "smoke", jitter=0.1, warmup=5, frames=3)
    block = made.block(0, 3)
    dt, length = block.parameters["dt"], block.parameters["length"]
    assert np.unique(dt).size == np.unique(length).size == 3
    for values, nominal in ((dt, made.dt), (length, made.length)):
        assert (np.abs(values / nominal - 1) <= 0.1).all()
    for i in range(3):
        u0 = torch.from_numpy(initial_state(stream(0, "train", i), made.points))[None]
        alone = trajectory(u0, length=length[i], dt=dt[i], frames=3, warmup=5)
        np.testing.assert_allclose(block.fields[i, :, 0], alone[0].numpy(), atol=1e-12)
    assert not source("ks", "smoke").block(0, 1).parameters


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_layout_tells_the_shape_and_sizes_are_the_papers(split):
    made = source("ks", "smoke", split, frames=3, warmup=0)
    assert made.block(0, 4).fields.shape == (4, *made.layout.shape[1:])
    json.dumps(made.provenance())
    sizes = (512, 140, 1, 256) if split == "train" else (64, 640, 1, 256)
    assert source("ks", "paper", split).layout.shape == sizes


def test_initial_state_is_a_sum_of_the_two_longest_waves():
    u_k = np.fft.rfft(initial_state(stream(0, "train", 0), 64))
    assert np.abs(u_k[1:3]).min() > 1e-3
    assert np.abs(np.delete(u_k, [1, 2])).max() < 1e-12


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"frames": 0}, "frames must be 1 or more"),
        ({"dt": -0.1}, "dt must be positive"),
        ({"warmup": -1}, "warmup must be 0 or more"),
        ({"jitter": 1.5}, "jitter"),
        ({"points": 32}, "use at least"),
    ],
)
def test_bad_input_gets_one_sentence(changes, says):
    with pytest.raises(ValueError, match=says):
        source("ks", "paper", **changes)


def test_the_advised_number_of_points_is_accepted():
    with pytest.raises(ValueError, match="use at least") as error:
        source("ks", "paper", points=16, nu=0.5)
    source("ks", "paper", points=int(str(error.value).split()[-2]), nu=0.5)


def test_a_blow_up_is_reported():
    with pytest.raises(ValueError, match="raise substeps"):
        source("ks", "smoke", dt=40.0, substeps=1).block(0, 1)
