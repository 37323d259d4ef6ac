import math

import pytest
import torch
from hypothesis import given
from strategies import dtypes, fields, levels, seeds, shapes

from biasbound.core.noise import alpha_bar, renoise
from biasbound.core.oracle import AffineOracle, GaussianOracle, WienerOracle


def test_the_gaussian_oracle_is_the_conditional_expectation(rng):
    """E[y | y_t, x] makes an error that is uncorrelated with its input, of variance r²(1 − k)."""
    oracle, sigma = GaussianOracle(0.4), 0.3
    x, y = oracle.pairs((1, 1, 400_000), rng)
    y_t = renoise(y, sigma, torch.randn(y.shape, generator=rng))
    error = (oracle(y_t, x, sigma) - y).double()
    expected = 0.16 * (1 - oracle.gain(sigma))
    n = error.numel()
    assert error.square().mean().item() == pytest.approx(expected, abs=3 * expected * math.sqrt(2 / n))
    covariance = (error * (y_t - math.sqrt(alpha_bar(sigma)) * x)).mean().item()
    assert abs(covariance) < 4 * math.sqrt(expected / n)


@given(shapes, dtypes, seeds, levels)
def test_a_flat_spectrum_makes_the_wiener_oracle_gaussian(shape, dtype, seed, sigma):
    y_t, x = fields(shape, dtype, seed, 2)
    flat = torch.full(shape[2:], 0.25)
    both = WienerOracle(flat)(y_t, x, sigma), GaussianOracle(0.5)(y_t, x, sigma)
    assert torch.allclose(*both, rtol=1e-4, atol=1e-4)


@given(shapes, seeds, levels)
def test_oracles_take_one_level_per_sample(shape, seed, sigma):
    y_t, x = fields(shape, torch.float64, seed, 2)
    each = torch.full((shape[0],), sigma, dtype=torch.float64)
    spectrum = torch.ones(shape[2:])
    affine = AffineOracle(lambda s: 0.3 * s, lambda s: 0.1 * s)
    for oracle in (affine, GaussianOracle(0.5), WienerOracle(spectrum)):
        assert torch.allclose(oracle(y_t, x, each), oracle(y_t, x, sigma), rtol=1e-6, atol=1e-6)


def test_a_wiener_field_has_the_spectrum_it_was_asked_for(rng):
    power = 1 / (1 + torch.fft.fftfreq(32, 1 / 32).abs()) ** 2
    x, y = WienerOracle(power).pairs((20_000, 1, 32), rng)
    measured = (torch.fft.fft((y - x).double()).abs().square() / 32).mean((0, 1))
    assert torch.allclose(measured, power.double(), rtol=0.05)


@pytest.mark.parametrize(
    ("spectrum", "complaint"),
    [
        (torch.tensor([1.0, -1.0]), "non-negative"),
        (torch.tensor([1.0, math.nan]), "finite"),
        (torch.tensor([1.0, 2.0, 3.0, 4.0]), "symmetric"),
    ],
)
def test_a_spectrum_that_no_real_field_has_is_refused(spectrum, complaint):
    with pytest.raises(ValueError, match=complaint):
        WienerOracle(spectrum)


@pytest.mark.parametrize("std", [0.0, -1.0, math.nan, math.inf])
def test_a_spread_must_be_positive(std):
    with pytest.raises(ValueError, match="positive and finite"):
        GaussianOracle(std)


def test_oracles_learn_on_their_own_pairs_reproducibly():
    for oracle in (AffineOracle(0.1, 0.1), GaussianOracle(0.5), WienerOracle(torch.ones(8))):
        a, b = (oracle.pairs((3, 1, 8), torch.Generator().manual_seed(2)) for _ in range(2))
        assert torch.equal(a[0], b[0])
        assert torch.equal(a[1], b[1])
