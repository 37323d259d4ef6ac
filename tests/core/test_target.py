import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import fields, levels, seeds, shapes, signal_and_noise

from biasbound.core.denoise import PREDICTIONS, NetDenoiser
from biasbound.core.noise import coefficients, log_snr, renoise
from biasbound.core.target import PLAIN, Target, residual

scales = st.floats(0.01, 10)


@given(shapes, seeds, st.none() | scales)
def test_decode_inverts_encode(shape, seed, scale):
    target = PLAIN if scale is None else residual(scale)
    y, x = fields(shape, torch.float64, seed, 2)
    assert torch.allclose(target.decode(target.encode(y, x), x), y, rtol=1e-12, atol=1e-12)
    assert torch.allclose(target.encode(target.decode(y, x), x), y, rtol=1e-9, atol=1e-9)


@given(shapes, seeds, levels, scales)
def test_entering_gives_an_exactly_noised_increment(shape, seed, sigma, scale):
    """z_t = a z + s ε with the same ε and a² + s² = 1, at the log-SNR + 2 log r."""
    y, x, eps = fields(shape, torch.float64, seed, 3)
    target = residual(scale)
    z_t, a, s = target.enter(renoise(y, sigma, eps), x, *coefficients(sigma, y))
    assert a**2 + s**2 == pytest.approx(1, rel=1e-12)
    assert torch.allclose(z_t, a * target.encode(y, x) + s * eps, rtol=1e-6, atol=1e-6)
    assert 2 * math.log(a / s) == pytest.approx(log_snr(sigma) + target.shift, rel=1e-9, abs=1e-9)


@given(shapes, seeds, levels, scales)
def test_the_network_is_told_the_level_of_what_it_sees(shape, seed, sigma, scale):
    y, x, eps = fields(shape, torch.float64, seed, 3)
    seen = {}

    def net(z_t, x, told):
        seen.update(z_t=z_t, told=told)
        return torch.zeros_like(z_t)

    NetDenoiser(net, "x0", residual(scale))(renoise(y, sigma, eps), x, sigma)
    a, s = signal_and_noise(seen["told"], y)
    assert torch.allclose(seen["z_t"], a * (y - x) / scale + s * eps, rtol=1e-6, atol=1e-6)


def test_the_plain_target_changes_nothing(rng):
    y, x = torch.randn(2, 3, 1, 8, generator=rng)
    assert PLAIN.encode(y, x) is PLAIN.decode(y, x) is y
    assert PLAIN.enter(y, x, 0.8, 0.6) == (y, 0.8, 0.6)
    assert (PLAIN.shift, PLAIN.unit(y)) == (0, 1)


def test_one_scale_per_channel_equals_one_scale_where_they_are_equal(rng):
    y_t, x = (torch.randn(3, 2, 8, generator=rng) for _ in range(2))
    for prediction in PREDICTIONS:
        one, each = (NetDenoiser(lambda z, x, t: 0.5 * z, prediction, residual(r)) for r in (0.3, (0.3, 0.3)))
        assert torch.allclose(one(y_t, x, 0.4), each(y_t, x, 0.4), rtol=1e-5, atol=1e-6)
    unequal = residual((0.5, 2.0)).decode(torch.ones(3, 2, 8), x) - x
    assert torch.allclose(unequal, torch.tensor([0.5, 2.0])[:, None].expand(3, 2, 8), atol=1e-6)


def test_the_guess_may_be_any_function_of_the_condition(rng):
    """By default the first channels of x; the others only inform."""
    y, x = torch.randn(2, 1, 8, generator=rng), torch.randn(2, 3, 8, generator=rng)
    assert torch.equal(residual(0.5).decode(y, x), x[:, :1] + 0.5 * y)
    mean = residual(0.5, lambda x: x.mean(1, keepdim=True))
    assert torch.equal(mean.decode(y, x), x.mean(1, keepdim=True) + 0.5 * y)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, (0.5, 0.0)])
def test_a_residual_scale_must_be_positive(scale):
    with pytest.raises(ValueError, match="positive and finite"):
        residual(scale)


def test_a_target_is_a_value():
    assert residual(0.5) == Target((0.5,))
    assert residual(0.5) != PLAIN
