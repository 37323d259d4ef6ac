import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import dtypes, fields, levels, seeds, shapes

from biasbound.core.denoise import EpsDenoiser, NonFiniteError, VDenoiser, X0Denoiser, ask
from biasbound.core.noise import alpha_bar, log_snr, renoise
from biasbound.core.schedule import Schedule


def unused(z_t, x, told):
    raise AssertionError("the network is not asked")


WRAPPERS = [EpsDenoiser, X0Denoiser, VDenoiser]


def network_of(wrapper, estimate, residual):
    """The network that makes `wrapper` answer with `estimate(z_t, x, log_snr)` in its own variables."""

    def net(z_t, x, told):
        z = estimate(z_t, x, told)
        s = torch.sigmoid(-told).sqrt().reshape(-1, *[1] * (z_t.ndim - 1))
        a = torch.sigmoid(told).sqrt().reshape(-1, *[1] * (z_t.ndim - 1))
        return wrapper(unused, residual).objective(z, (z_t - a * z) / s, a, s)

    return wrapper(net, residual)


@given(shapes, seeds, st.floats(1e-4, 0.9999), st.sampled_from([None, 0.3, 2.0]))
def test_all_parameterisations_of_one_function_agree(shape, seed, sigma, residual):
    y, x, eps = fields(shape, torch.float64, seed, 3)
    y_t = renoise(y, sigma, eps)

    def estimate(z_t, x, told):
        return torch.tanh(0.5 * z_t + x) + 0.01 * told.reshape(-1, *[1] * (z_t.ndim - 1))

    answers = [network_of(w, estimate, residual)(y_t, x, sigma) for w in WRAPPERS]
    for answer in answers[1:]:
        assert torch.allclose(
            answer, answers[0], rtol=1e-7, atol=1e-8 / math.sqrt(alpha_bar(sigma))
        )


@pytest.mark.parametrize("wrapper", WRAPPERS)
@given(
    shape=shapes, seed=seeds, sigma=st.floats(1e-4, 0.9999), residual=st.sampled_from([None, 0.3])
)
def test_a_network_that_outputs_its_target_makes_a_perfect_denoiser(
    wrapper, shape, seed, sigma, residual
):
    y, x, eps = fields(shape, torch.float64, seed, 3)
    target = wrapper(unused, residual).target(y, x, sigma, eps)
    denoiser = wrapper(lambda z_t, x, told: target, residual)
    y_t = renoise(y, sigma, eps)
    assert torch.allclose(denoiser(y_t, x, sigma), y, rtol=1e-7, atol=1e-7)
    assert torch.equal(denoiser.prediction(y_t, x, sigma), target)


@given(shapes, seeds, levels, st.floats(0.01, 10))
def test_the_residual_target_is_an_exact_change_of_variables(shape, seed, sigma, scale):
    """What the network sees is a noised increment with a² + s² = 1, at the log-SNR that it is told."""
    y, x, eps = fields(shape, torch.float64, seed, 3)
    seen = {}

    def net(z_t, x, told):
        seen.update(z_t=z_t, told=told)
        return torch.zeros_like(z_t)

    X0Denoiser(net, scale)(renoise(y, sigma, eps), x, sigma)
    level = torch.sigmoid(-seen["told"]).sqrt().reshape(-1, *[1] * (y.ndim - 1))
    signal = torch.sigmoid(seen["told"]).sqrt().reshape(-1, *[1] * (y.ndim - 1))
    assert seen["told"][0].item() == pytest.approx(
        log_snr(sigma) + 2 * math.log(scale), rel=1e-9, abs=1e-9
    )
    expected = signal * (y - x) / scale + level * eps
    assert torch.allclose(seen["z_t"], expected, rtol=1e-6, atol=1e-6)


def test_a_residual_scale_a_channel_equals_one_scale_where_they_are_equal(rng):
    y_t, x = (torch.randn(3, 2, 8, generator=rng) for _ in range(2))

    def net(z_t, x, told):
        return 0.5 * z_t

    for wrapper in WRAPPERS:
        one, each = wrapper(net, 0.3)(y_t, x, 0.4), wrapper(net, (0.3, 0.3))(y_t, x, 0.4)
        assert torch.allclose(one, each, rtol=1e-5, atol=1e-6)
    unequal = X0Denoiser(lambda z_t, x, told: torch.ones_like(z_t), (0.5, 2.0))(y_t, x, 0.4) - x
    assert torch.allclose(unequal[:, 0], torch.tensor(0.5))
    assert torch.allclose(unequal[:, 1], torch.tensor(2.0))


@pytest.mark.parametrize("residual", [0.0, -1.0, math.nan, math.inf, (0.5, 0.0)])
def test_a_residual_scale_must_be_positive(residual):
    with pytest.raises(ValueError, match="positive and finite"):
        EpsDenoiser(lambda *a: a[0], residual)


def test_further_condition_channels_only_inform_the_network(rng):
    y_t, x = torch.randn(2, 1, 8, generator=rng), torch.randn(2, 3, 8, generator=rng)
    denoiser = X0Denoiser(lambda z_t, x, told: x[:, 2:3], residual=0.5)
    assert torch.equal(denoiser(y_t, x, 0.3), x[:, :1] + 0.5 * x[:, 2:3])


@given(shapes, dtypes, seeds, levels)
def test_a_denoiser_does_not_know_its_schedule(shape, dtype, seed, sigma):
    """The network is told a log-SNR, so a level means the same in every schedule, at every index."""
    y_t, x = fields(shape, dtype, seed, 2)
    low, high = Schedule(sorted({sigma, 0.5})), Schedule(sorted({1e-6, 1e-5, sigma}))
    denoiser = EpsDenoiser(lambda z_t, x, told: z_t * told.reshape(-1, *[1] * (z_t.ndim - 1)))
    a, b = (denoiser(y_t, x, s.sigma[s.sigma.index(sigma)]) for s in (low, high))
    assert torch.equal(a, b)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_one_level_a_sample(wrapper, rng):
    y_t, x = torch.randn(3, 2, 8, generator=rng), torch.randn(3, 2, 8, generator=rng)
    levels = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    denoiser = wrapper(lambda z_t, x, told: z_t * torch.tanh(told).reshape(-1, 1, 1), residual=0.7)
    together = denoiser(y_t, x, levels)
    alone = torch.cat(
        [denoiser(y_t[i : i + 1], x[i : i + 1], s) for i, s in enumerate(levels.tolist())]
    )
    assert torch.allclose(together, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("sigma", [1e-6, 1 - 1e-9])
def test_extreme_levels_stay_finite_in_float32(wrapper, sigma, rng):
    y, x = torch.randn(2, 1, 16, generator=rng), torch.randn(2, 1, 16, generator=rng)
    y_t = renoise(y, sigma, torch.randn(2, 1, 16, generator=rng))
    estimate = wrapper(lambda z_t, x, told: 0.9 * z_t, residual=None)(y_t, x, sigma)
    assert estimate.isfinite().all()


def test_a_network_module_is_found_by_the_wrapper():
    class Net(torch.nn.Conv1d):
        def forward(self, z_t, x, told):
            return super().forward(torch.cat([z_t, x], 1))

    denoiser = EpsDenoiser(Net(2, 1, 3, padding=1))
    assert len(list(denoiser.parameters())) == 2
    y_t = torch.zeros(1, 1, 8)
    denoiser(y_t, y_t, 0.5).sum().backward()
    assert all(p.grad is not None for p in denoiser.parameters())


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
