import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import dtypes, fields, ladders, seeds, shapes
from toys import seeded

from biasbound.core.denoise import NetDenoiser, NonFiniteError
from biasbound.core.noise import alpha_bar, draw, log_snr, renoise
from biasbound.core.oracle import GaussianOracle
from biasbound.core.sample import denoise_chain, proxy_estimate, sample
from biasbound.core.schedule import Schedule, log_uniform

TRANSITIONS = ["renoise", "ddpm", "ddim"]


def squash(y_t, x, sigma):
    """A non-linear denoiser that depends on everything it is given."""
    return torch.tanh(y_t * (1 - sigma) + 0.5 * x)


@given(ladders, st.integers(0, 7))
def test_the_chain_visits_each_level_once_from_the_top(ladder, start):
    schedule = Schedule(ladder)
    start = min(start, schedule.top)
    x = torch.ones(1, 1, 4)
    visited = [(s.t, s.sigma) for s in denoise_chain(squash, x, x, schedule, noise=lambda _: x, start=start)]
    assert visited == [(t, schedule.sigma[t]) for t in range(start, -1, -1)]


@given(shapes, dtypes, seeds, ladders)
def test_renoise_forgets_everything_but_the_estimate(shape, dtype, seed, ladder):
    x, y_T, eps = fields(shape, dtype, seed, 3)
    steps = list(denoise_chain(squash, x, y_T, Schedule(ladder), noise=lambda _: eps))
    for above, below in pairwise(steps):
        assert torch.equal(below.y_t, renoise(above.y_est, below.sigma, eps))


@given(st.lists(st.floats(1e-3, 0.999), min_size=2, max_size=6, unique=True).map(sorted), seeds)
def test_ddpm_steps_are_the_posterior_of_the_textbook(ladder, seed):
    """q(y_to | y_from, y_est): mean and variance from α = ᾱ_from/ᾱ_to, β = 1 − α."""
    x, y_T, eps = fields((2, 1, 8), torch.float64, seed, 3)
    steps = list(denoise_chain(squash, x, y_T, Schedule(ladder), noise=lambda _: eps, transition="ddpm"))
    for above, below in pairwise(steps):
        to, start = alpha_bar(below.sigma), alpha_bar(above.sigma)
        beta = 1 - start / to
        mean = math.sqrt(to) * beta / (1 - start) * above.y_est
        mean = mean + math.sqrt(start / to) * (1 - to) / (1 - start) * above.y_t
        expected = mean + math.sqrt((1 - to) / (1 - start) * beta) * eps
        assert torch.allclose(below.y_t, expected, rtol=1e-6, atol=1e-7)


def test_ddim_is_deterministic_and_keeps_the_implied_noise(rng):
    x, y_T = torch.randn(2, 1, 8, generator=rng), torch.randn(2, 1, 8, generator=rng)

    def never(t):
        raise AssertionError("ddim draws no noise")

    steps = list(denoise_chain(squash, x, y_T, log_uniform(5), noise=never, transition="ddim"))
    for above, below in pairwise(steps):
        implied = [
            (y_t - math.sqrt(alpha_bar(s)) * above.y_est) / s
            for y_t, s in ((above.y_t, above.sigma), (below.y_t, below.sigma))
        ]
        assert torch.allclose(*implied, rtol=1e-3, atol=1e-3)


def chain_variance(oracle, schedule, transition):
    """Variance of the output of a Gaussian oracle's chain with x = 0, by its exact recursion from N(0, 1)."""
    variance = 1.0
    for t in range(schedule.top, 0, -1):
        s, to, k = schedule.sigma[t], schedule.sigma[t - 1], oracle.gain(schedule.sigma[t])
        kept = {"renoise": 0.0, "ddim": 1.0, "ddpm": math.exp((log_snr(s) - log_snr(to)) / 2)}[transition]
        slope = math.sqrt(alpha_bar(to) / alpha_bar(s)) * k + to * kept * (1 - k) / s
        variance = slope**2 * variance + to**2 * (1 - kept**2)
    return oracle.gain(schedule.sigma[0]) ** 2 / alpha_bar(schedule.sigma[0]) * variance


@pytest.mark.parametrize("transition", TRANSITIONS)
@pytest.mark.parametrize("levels", [1, 3, 12])
def test_every_transition_follows_its_gaussian_recursion(transition, levels):
    oracle, schedule = GaussianOracle(0.5), log_uniform(levels, 0.05, 0.9)
    x = torch.zeros(1, 1, 200_000, dtype=torch.float64)
    out = sample(oracle, x, schedule, transition=transition, generator=seeded())
    expected = chain_variance(oracle, schedule, transition)
    assert out.var().item() == pytest.approx(expected, abs=3 * expected * math.sqrt(2 / out.numel()))
    assert abs(out.mean().item()) < 3 * math.sqrt(expected / out.numel())


def test_ddpm_reproduces_mean_and_variance_of_the_data():
    """With many small steps, samples of the exact posterior mean are samples of N(x, r²)."""
    oracle, schedule = GaussianOracle(0.5), log_uniform(500, 1e-3, 1 - 1e-6)
    x = torch.full((1, 1, 20_000), 0.7, dtype=torch.float64)
    out = sample(oracle, x, schedule, transition="ddpm", generator=seeded(1))
    n = out.numel()
    assert out.mean().item() == pytest.approx(0.7, abs=3 * 0.5 / math.sqrt(n))
    assert out.var().item() == pytest.approx(0.25, abs=3 * 0.25 * math.sqrt(2 / n))


@pytest.mark.parametrize("transition", TRANSITIONS)
@given(shape=shapes, dtype=dtypes, seed=seeds, ladder=ladders)
def test_the_full_proxy_is_the_sample_from_noised_truth(transition, shape, dtype, seed, ladder):
    x, y = fields(shape, dtype, seed, 2)
    schedule = Schedule(ladder)
    proxy = proxy_estimate(squash, x, y, schedule, n=schedule.top, generator=seeded(seed), transition=transition)
    same = seeded(seed)
    start = renoise(y, schedule.sigma[-1], draw(y, same))
    assert torch.equal(proxy, sample(squash, x, schedule, start=start, generator=same, transition=transition))


def test_the_shortest_proxy_is_one_call_at_the_lowest_level(rng):
    x, y = (torch.randn(2, 1, 8, generator=rng) for _ in range(2))
    calls = []

    def counting(y_t, x, sigma):
        calls.append(sigma)
        return squash(y_t, x, sigma)

    schedule = log_uniform(6)
    estimate = proxy_estimate(counting, x, y, schedule, generator=seeded(3))
    assert calls == [schedule.sigma[0]]
    assert torch.equal(estimate, squash(renoise(y, calls[0], draw(y, seeded(3))), x, calls[0]))
    for n in range(len(schedule)):
        calls.clear()
        proxy_estimate(counting, x, y, schedule, n=n, generator=rng)
        assert len(calls) == n + 1


def test_the_proxy_is_differentiable_unless_detached(rng):
    x, y = torch.randn(2, 1, 8, generator=rng), torch.randn(2, 1, 8, generator=rng)
    weight = torch.tensor(0.3, requires_grad=True)
    denoiser = NetDenoiser(lambda z_t, x, told: weight * z_t, "v")
    attached = proxy_estimate(denoiser, x, y, log_uniform(4), n=2, generator=rng)
    (gradient,) = torch.autograd.grad(attached.square().sum(), weight)
    assert gradient.isfinite()
    assert gradient != 0
    assert not proxy_estimate(denoiser, x, y, log_uniform(4), n=2, generator=rng, detach=True).requires_grad


@pytest.mark.parametrize("n", [-1, 4, 99])
def test_a_proxy_beyond_the_schedule_is_refused(n):
    x = torch.zeros(1, 1, 4)
    with pytest.raises(ValueError, match=f"no level {n}.*levels 0 to 3"):
        proxy_estimate(squash, x, x, log_uniform(4), n=n)


@pytest.mark.parametrize("transition", TRANSITIONS)
def test_same_seed_same_bytes(transition):
    x = torch.randn(3, 2, 9, generator=seeded())
    runs = [sample(squash, x, log_uniform(7), transition=transition, generator=seeded(5)) for _ in range(2)]
    assert runs[0].numpy().tobytes() == runs[1].numpy().tobytes()
    assert not torch.equal(runs[0], sample(squash, x, log_uniform(7), transition=transition, generator=seeded(6)))


@pytest.mark.parametrize("transition", TRANSITIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_schedules_stay_finite(transition, dtype):
    schedule = Schedule([1e-6, 0.5, 1 - 1e-9])
    x = torch.zeros(2, 1, 8, dtype=dtype)  # an all-zero field
    out = sample(GaussianOracle(0.1), x, schedule, transition=transition, generator=seeded())
    assert out.isfinite().all()
    assert out.dtype == dtype


def test_a_nan_from_the_network_is_never_silent():
    x = torch.zeros(3, 1, 4)
    x[1] = math.nan  # spoils this sample only

    def network(y_t, x, sigma):
        return 0.5 * y_t + x

    with pytest.raises(NonFiniteError, match="1 of 3 samples"):
        sample(network, x, log_uniform(4), generator=seeded())
    kept = sample(network, x, log_uniform(4), generator=seeded(), allow_nonfinite=True)
    assert kept[[0, 2]].isfinite().all()
    assert kept[1].isnan().all()
    with pytest.raises(NonFiniteError):
        proxy_estimate(network, x, torch.zeros(3, 1, 4), log_uniform(4), generator=seeded())


def test_a_target_may_have_fewer_channels_than_its_condition():
    x, start = torch.zeros(2, 3, 8), torch.randn(2, 1, 8, generator=seeded())
    assert sample(GaussianOracle(0.5), x, log_uniform(3), start=start, generator=seeded()).shape == (2, 1, 8)
