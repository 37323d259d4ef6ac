"""Observations in a rollout: the laws of Bayes for Gaussians, and no change where nothing is observed."""

import math
import re
from pathlib import Path

import pytest
import torch
from emulators import KINDS, emulator
from toys import advected, frame, seeded

from biasbound.core.noise import alpha_bar
from biasbound.core.oracle import WienerOracle
from biasbound.core.sample import denoise_chain
from biasbound.core.schedule import log_uniform
from biasbound.data.trajectories import Trajectories
from biasbound.models.assimilation import Assimilation, Gain, Nudging, Observations
from biasbound.models.correction import Moment
from biasbound.models.direct import Direct
from biasbound.models.emulator import Emulator
from biasbound.models.normalise import Normalisation

LAST = Moment(1, 0.0, last=True)


def observed(truth, error=0.0, **how):
    """Observations of every point unless told otherwise."""
    return Observations.sparse(truth, how.pop("spacing", 1), (error,) * truth.shape[2], seeded(7), **how)


def starts(name, members=3):
    past = KINDS[name][1].task.past
    x0 = advected(2, frames=past)
    return (x0[:, 0] if past == 1 else x0).expand(members, *([-1] * (3 if past == 1 else 4)))


@pytest.mark.parametrize("name", KINDS)
def test_without_observations_it_is_the_rollout_to_the_bit(name):
    made, x0 = emulator(name), starts(name)
    nothing = Observations(torch.full((2, 4, 1, 16), torch.nan), torch.zeros(4, 1, 16, dtype=torch.bool), (0.1,))
    free = made.rollout(x0[0], 4, 3, seeded(5), batch=6)
    assert torch.equal(made.assimilate(x0, nothing, seeded(5)).states, free.states)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("members", [1, 3])
def test_exact_observations_of_everything_give_the_truth(name, members):
    truth = advected(2, frames=3, seed=9)
    made = emulator(name).assimilate(starts(name, members), observed(truth), seeded(5)).states
    assert torch.allclose(made, truth.expand(members, -1, -1, -1, -1), atol=1e-4)


def test_only_observed_frames_are_corrected_and_the_rollout_goes_on_after_the_last():
    truth = advected(2, frames=4, seed=9)
    made, x0 = emulator("eps"), starts("eps")
    free = made.rollout(x0[0], 6, 3, seeded(5), batch=6).states
    found = made.assimilate(x0, observed(truth, every=4), seeded(5), steps=6).states
    assert torch.equal(found[:, :, :3], free[:, :, :3])
    assert torch.allclose(found[:, :, 3], truth[:, 3].expand(3, -1, -1, -1), atol=1e-4)
    assert not torch.allclose(found[:, :, 5], free[:, :, 5], atol=1e-2)


def test_one_member_is_optimal_interpolation():
    """x + B Hᵀ (H B Hᵀ + R)⁻¹ (o − H x), with B written out."""
    gain, n, error = Gain(radius=2.0, background=0.7), 12, 0.3
    x, truth = torch.randn(2, 1, 1, 1, n, generator=seeded(), dtype=torch.float64)
    observations = observed(truth, error, spacing=3)
    made = Assimilation(observations, 1, gain, (2.0,))(x[0], LAST)
    place = torch.arange(n, dtype=torch.float64)
    gap = (place[:, None] - place).abs()
    B = (0.7 * 2.0) ** 2 * torch.exp(-(torch.minimum(gap, n - gap) ** 2) / 8)
    H = torch.eye(n, dtype=torch.float64)[::3]
    K = B @ H.T @ torch.linalg.inv(H @ B @ H.T + error**2 * torch.eye(4))
    expected = x[0, 0, 0] + K @ (H @ (observations.values[0, 0, 0] - x[0, 0, 0]))
    assert torch.allclose(made[0, 0], expected, atol=1e-5)


def test_many_members_have_the_mean_and_covariance_of_kalman():
    n, members, error = 6, 40_000, 0.5
    root = torch.randn(n, n, generator=seeded(), dtype=torch.float64) / math.sqrt(n)
    P, H = root @ root.T, torch.eye(n, dtype=torch.float64)[::2]
    prior = torch.randn(members, n, generator=seeded(1), dtype=torch.float64) @ root.T
    observations = observed(torch.ones(1, 1, 1, n, dtype=torch.float64), error, spacing=2)
    gain = Gain(radius=1e6, inflation=1.0, background=0.0)
    moment = Moment(1, 0.0, last=True, generator=seeded(2))
    made = Assimilation(observations, members, gain, (1.0,))(prior[:, None], moment)[:, 0]
    K = P @ H.T @ torch.linalg.inv(H @ P @ H.T + error**2 * torch.eye(3))
    assert torch.allclose(made.mean(0), K @ H @ observations.values[0, 0, 0], atol=0.02)
    assert torch.allclose(made.T.cov(), (torch.eye(n) - K @ H) @ P, atol=0.02)


def test_a_chain_with_the_exact_correction_has_the_exact_posterior_at_every_level():
    """Of a linear Gaussian oracle, E[y | y_t, x, o] is its estimate, corrected with its remaining covariance at σ_t."""
    n, error = 16, 0.2
    power = (-torch.fft.fftfreq(n, 1 / n).double().square() / 20).exp()
    oracle, H = WienerOracle(power), torch.eye(n, dtype=torch.float64)[::4]
    x, truth = oracle.pairs((1, 1, n), seeded())
    x, o = x.double(), H @ truth.double()[0, 0]

    def circulant(spectrum):
        row = torch.fft.ifft(spectrum).real
        return torch.stack([row.roll(i) for i in range(n)])

    def correct(y_est, sigma):
        C = circulant(oracle.residual_spectrum(sigma))
        K = C @ H.T @ torch.linalg.inv(H @ C @ H.T + error**2 * torch.eye(4))
        return y_est + (K @ (o - H @ y_est[0, 0]))

    noise = torch.randn(n, generator=seeded(3), dtype=torch.float64).reshape(1, 1, n)
    chain = denoise_chain(oracle, x, noise, log_uniform(4, 0.1, 0.99), noise=lambda t: noise, correct=correct)
    for step in chain:  # y given two observations at once: √ᾱ y + σ ε = y_t, and H y + error = o
        A = torch.cat([math.sqrt(alpha_bar(step.sigma)) * torch.eye(n, dtype=torch.float64), H])
        R = torch.diag(torch.cat([torch.full((n,), step.sigma**2), torch.full((4,), error**2)]).double())
        P, told = circulant(power), torch.cat([step.y_t[0, 0], o])
        expected = x[0, 0] + P @ A.T @ torch.linalg.solve(A @ P @ A.T + R, told - A @ x[0, 0])
        assert torch.allclose(step.y_est[0, 0], expected, atol=1e-6)


def test_assimilation_tracks_where_free_running_and_nudging_do_not():
    """A perfect model from a wrong start; its waves pass sensors at 4 of 16 points."""
    truth = advected(6, frames=13, seed=3)
    made = Emulator(Direct(lambda x: x.roll(1, -1), frame()), Normalisation((0.0,), (1.2,)), ("u",), 1.0)
    observations = observed(truth[:, 1:], 0.1, spacing=4)
    x0 = advected(6 * 20, seed=4)[:, 0].reshape(20, 6, 1, 16)

    def error(states):
        return (states - truth[:, 1:]).square().mean().sqrt()

    free, nudged = (
        made.rollout(x0.flatten(0, 1), 12, batch=120, correct=c).states.reshape(20, 6, 12, 1, 16)
        for c in (None, Nudging(observations, 0.5))
    )
    found = made.assimilate(x0, observations, seeded()).states
    assert error(found) < 0.7 * error(nudged) < 0.7 * error(free)


def test_nudging_moves_observed_points_alone():
    x, truth = torch.randn(2, 4, 1, 1, 8, generator=seeded())
    made = Nudging(observed(truth[:2], spacing=4), 0.25)(x[:, 0], LAST)
    expected = x[:, 0].clone()
    expected[..., ::4] += 0.25 * (truth[[0, 1, 0, 1], 0, :, ::4] - expected[..., ::4])
    assert torch.allclose(made, expected)


def test_far_points_are_not_moved_and_axes_close_only_where_they_are_periodic():
    gain, wall = Gain(radius=1.0), Gain(radius=1.0, periodic=(False,))
    first = torch.tensor([0])
    assert gain.near((16,), 1, first)[8] < 1e-10
    assert gain.near((16,), 1, first)[15] == gain.near((16,), 1, first)[1]
    assert wall.near((16,), 1, first)[15] < 1e-10


def test_what_cannot_be_observed_is_refused():
    values, where = torch.zeros(2, 3, 1, 8), torch.ones(3, 1, 8, dtype=torch.bool)
    with pytest.raises(ValueError, match="an error per channel"):
        Observations(values, where, (0.1, 0.1))
    with pytest.raises(ValueError, match="must be finite: set `where`"):
        Observations(values / 0, where, (0.1,))
    with pytest.raises(ValueError, match="not negative"):
        Observations(values, where, (-0.1,))
    with pytest.raises(ValueError, match="3 members of 2 observed trajectories"):
        Assimilation(Observations(values, where, (0.1,)), 3, Gain(), (1.0,))(torch.zeros(4, 1, 8), LAST)
    with pytest.raises(ValueError, match="radius > 0"):
        Gain(radius=0.0)


def test_the_program_of_the_page_runs(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "assimilation.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    emulator("eps").save("emulator")
    Trajectories.from_array(advected(4, frames=4).numpy(), dt=0.2, channels=["u"]).save("test.h5")
    exec(program, known := {})  # noqa: S102 - our own page
    assert known["tracked"].states.shape == (32, 4, 3, 1, 16)
