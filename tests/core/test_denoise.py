import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import column, dtypes, fields, levels, seeds, shapes, signal_and_noise

from biasbound.core.denoise import PREDICTIONS, NetDenoiser, NonFiniteError, ask
from biasbound.core.noise import alpha_bar, renoise
from biasbound.core.schedule import Schedule
from biasbound.core.target import PLAIN, residual

TARGETS = st.sampled_from([PLAIN, residual(0.3), residual(2.0)])


def unused(z_t, x, told):
    raise AssertionError("the network is not asked")


def network_of(prediction, estimate, target):
    """The network that makes a denoiser answer with `estimate(z_t, x, log_snr)` in the network's variables."""

    def net(z_t, x, told):
        a, s = signal_and_noise(told, z_t)
        rule = PREDICTIONS[prediction]
        z_t = z_t / rule.shown(torch.ones_like(z_t), a, s)  # behind the gate
        z = estimate(z_t, x, told)
        return rule.objective(z, (z_t - a * z) / s, a, s)

    return NetDenoiser(net, prediction, target)


@given(shapes, seeds, st.floats(1e-4, 0.9999), TARGETS)
def test_all_predictions_of_one_function_agree(shape, seed, sigma, target):
    y, x, eps = fields(shape, torch.float64, seed, 3)
    y_t = renoise(y, sigma, eps)

    def estimate(z_t, x, told):
        return torch.tanh(0.5 * z_t + x) + 0.01 * column(told, z_t)

    answers = [network_of(name, estimate, target)(y_t, x, sigma) for name in PREDICTIONS]
    for answer in answers[1:]:
        assert torch.allclose(answer, answers[0], rtol=1e-7, atol=1e-8 / math.sqrt(alpha_bar(sigma)))


@pytest.mark.parametrize("prediction", PREDICTIONS)
@given(shape=shapes, seed=seeds, sigma=st.floats(1e-4, 0.9999), target=TARGETS)
def test_a_network_that_outputs_its_objective_makes_a_perfect_denoiser(prediction, shape, seed, sigma, target):
    y, x, eps = fields(shape, torch.float64, seed, 3)
    objective = NetDenoiser(unused, prediction, target).objective(y, x, sigma, eps)
    denoiser = NetDenoiser(lambda z_t, x, told: objective, prediction, target)
    y_t = renoise(y, sigma, eps)
    assert torch.allclose(denoiser(y_t, x, sigma), y, rtol=1e-7, atol=1e-7)
    assert torch.equal(denoiser.output(y_t, x, sigma), objective)


@given(shapes, dtypes, seeds, levels)
def test_a_denoiser_does_not_know_its_schedule(shape, dtype, seed, sigma):
    """The network is told a log-SNR, so a level means the same in every schedule, at every index."""
    y_t, x = fields(shape, dtype, seed, 2)
    low, high = Schedule(sorted({sigma, 0.5})), Schedule(sorted({1e-6, 1e-5, sigma}))
    denoiser = NetDenoiser(lambda z_t, x, told: z_t * column(told, z_t))
    a, b = (denoiser(y_t, x, s.sigma[s.sigma.index(sigma)]) for s in (low, high))
    assert torch.equal(a, b)


@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_one_level_per_sample(prediction, rng):
    y_t, x = torch.randn(3, 2, 8, generator=rng), torch.randn(3, 2, 8, generator=rng)
    each = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    denoiser = NetDenoiser(lambda z_t, x, told: z_t * torch.tanh(column(told, z_t)), prediction, residual(0.7))
    together = denoiser(y_t, x, each)
    alone = torch.cat([denoiser(y_t[i : i + 1], x[i : i + 1], s) for i, s in enumerate(each.tolist())])
    assert torch.allclose(together, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("prediction", PREDICTIONS)
@pytest.mark.parametrize("sigma", [1e-6, 1 - 1e-9])
def test_extreme_levels_stay_finite_in_float32(prediction, sigma, rng):
    y, x, eps = (torch.randn(2, 1, 16, generator=rng) for _ in range(3))
    estimate = NetDenoiser(lambda z_t, x, told: 0.9 * z_t, prediction)(renoise(y, sigma, eps), x, sigma)
    assert estimate.isfinite().all()


def test_a_network_module_is_found_by_the_denoiser():
    class Net(torch.nn.Conv1d):
        def forward(self, z_t, x, told):
            return super().forward(torch.cat([z_t, x], 1))

    denoiser = NetDenoiser(Net(2, 1, 3, padding=1))
    assert len(list(denoiser.parameters())) == 2
    y_t = torch.zeros(1, 1, 8)
    denoiser(y_t, y_t, 0.5).sum().backward()
    assert all(p.grad is not None for p in denoiser.parameters())


def test_an_unknown_prediction_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"no prediction 'epsilon': there are eps, x0, v, scaled; did you mean eps\?"):
        NetDenoiser(unused, "epsilon")


def test_the_contract_is_checked(rng):
    y_t = torch.randn(4, 2, 8, generator=rng)
    with pytest.raises(ValueError, match=r"shape \(4, 1, 8\).*\(4, 2, 8\)"):
        ask(lambda y_t, x, sigma: y_t[:, :1], y_t, y_t, 0.5)
    broken = y_t.clone()
    broken[1] = math.nan
    broken[3, 0, 0] = math.inf
    with pytest.raises(NonFiniteError, match=r"σ = 0\.5 for 2 of 4 samples"):
        ask(lambda y_t, x, sigma: broken, y_t, y_t, 0.5)
    assert ask(lambda *a: broken, y_t, y_t, 0.5, allow_nonfinite=True) is broken
