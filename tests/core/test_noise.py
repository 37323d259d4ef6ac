import math

import pytest
import torch
from hypothesis import given
from strategies import dtypes, fields, levels, seeds, shapes

from biasbound.core import noise
from biasbound.core.noise import alpha_bar, draw_index, log_snr, renoise


@given(levels)
def test_level_names_are_inverse_to_each_other(sigma):
    assert noise.sigma_from_log_snr(log_snr(sigma)) == pytest.approx(sigma, rel=1e-12)
    assert noise.sigma_from_alpha_bar(alpha_bar(sigma)) == pytest.approx(sigma, rel=1e-3 if sigma < 1e-5 else 1e-6)
    assert log_snr(sigma) == pytest.approx(math.log(alpha_bar(sigma) / sigma**2), rel=1e-9, abs=1e-9)


def test_alpha_bar_keeps_its_digits_near_one():
    gap = 2.0**-40  # exact in float64, and so are 1 − gap and (1 − σ)(1 + σ)
    assert alpha_bar(1 - gap) == gap * (2 - gap)


def test_floats_give_floats_and_tensors_give_float64():
    assert isinstance(alpha_bar(0.5), float)
    assert log_snr(torch.tensor([0.5, 0.9])).dtype == torch.float64


@given(shapes, dtypes, seeds, levels)
def test_renoise_is_the_forward_process(shape, dtype, seed, sigma):
    y, eps = fields(shape, dtype, seed, 2)
    noisy = renoise(y, sigma, eps)
    expected = math.sqrt(alpha_bar(sigma)) * y.double() + sigma * eps.double()
    assert noisy.dtype == dtype
    assert torch.allclose(noisy.double(), expected, rtol=1e-5, atol=1e-6)


@given(shapes, dtypes, seeds, levels)
def test_one_level_per_sample_equals_one_level_for_all(shape, dtype, seed, sigma):
    y, eps = fields(shape, dtype, seed, 2)
    each = renoise(y, torch.full((shape[0],), sigma, dtype=torch.float64), eps)
    assert torch.allclose(each, renoise(y, sigma, eps), rtol=1e-6, atol=1e-7)


@given(shapes, seeds, levels)
def test_renoise_keeps_unit_variance_fields_at_unit_variance(shape, seed, sigma):
    # Pairwise orthogonal unit "fields": the squared norm is ᾱ + σ² = 1 for every level.
    y, eps = torch.zeros(1, 2, 4, dtype=torch.float64), torch.zeros(1, 2, 4, dtype=torch.float64)
    y[0, 0, 0], eps[0, 1, 3] = 1, 1
    assert renoise(y, sigma, eps).square().sum().item() == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_a_level_outside_the_open_interval_is_refused(bad):
    y = torch.zeros(2, 1, 4)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        renoise(y, bad, y)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        renoise(y, torch.tensor([0.5, bad]), y)


def test_a_level_that_float32_rounds_to_one_is_refused_with_the_reason():
    y = torch.zeros(1, 1, 4)
    with pytest.raises(ValueError, match="float64"):
        renoise(y, torch.tensor([1 - 1e-9], dtype=torch.float32), y)


def test_draws_follow_the_generator_alone():
    like = torch.zeros(2, 3, 5)
    same = [noise.draw(like, torch.Generator().manual_seed(7)) for _ in range(2)]
    assert torch.equal(*same)
    torch.manual_seed(1)
    assert torch.equal(noise.draw(like, torch.Generator().manual_seed(7)), same[0])


def test_the_share_of_the_lowest_level():
    generator = torch.Generator().manual_seed(0)
    t = draw_index(5, 40_000, generator, share=0.6)
    shares = torch.bincount(t, minlength=5) / len(t)
    torch.testing.assert_close(shares, torch.tensor([0.6, 0.1, 0.1, 0.1, 0.1]), atol=0.01, rtol=0)
    assert set(draw_index(1, 8, generator, share=0.6).tolist()) == {0}
    with pytest.raises(ValueError, match=r"share of the lowest level must lie in \(0, 1\), got 1\.5"):
        draw_index(5, 8, generator, share=1.5)
