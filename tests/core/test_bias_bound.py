"""The recursive bound on the REB, and the norm of a Jacobian that it needs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import fields, seeds
from toys import exact, seeded

from biasbound.core import bias
from biasbound.core.bias import Measure
from biasbound.core.schedule import Schedule


def linear_denoiser(d, seed, scale=1.0):
    """y_est = A_σ y_t + B x with a different random A for each level."""
    known = {}

    def matrices(sigma):
        if sigma not in known:
            rng = seeded(seed + len(known))
            known[sigma] = [scale * torch.randn(d, d, generator=rng, dtype=torch.float64) / d**0.5 for _ in "AB"]
        return known[sigma]

    def denoiser(y_t, x, sigma):
        A, B = matrices(sigma)
        return y_t @ A.T + x @ B.T

    return denoiser, matrices


@settings(max_examples=6)
@given(seeds, st.lists(st.floats(0.01, 0.99), min_size=2, max_size=3, unique=True).map(sorted), st.floats(0.05, 3))
def test_the_bound_holds_for_linear_denoisers(seed, ladder, scale):
    denoiser, _ = linear_denoiser(6, seed % 1000, scale)
    x, y = fields((4, 1, 6), torch.float64, seed, 2)
    rows = bias.reb_bound(denoiser, x, y, Schedule(ladder), Measure(draws=2, generator=seeded(seed)), rtol=1e-9)
    assert [row.t for row in rows] == list(range(len(ladder) - 1))
    for row in rows:
        assert row.slack_min >= -1e-6 * row.bound.mean


def test_the_jacobian_norm_is_the_largest_singular_value(rng):
    denoiser, matrices = linear_denoiser(12, 3)
    y_t, x = (torch.randn(5, 1, 12, generator=rng, dtype=torch.float64) for _ in range(2))
    found = bias.jacobian_norm(denoiser, y_t, x, 0.5, rtol=1e-10, iterations=2000, generator=rng)
    expected = torch.linalg.matrix_norm(matrices(0.5)[0], 2)
    assert torch.allclose(found, expected.expand(5), rtol=1e-6)
    assert torch.equal(bias.jacobian_norm(exact, y_t, x, 0.5, generator=rng), torch.zeros(5, dtype=torch.float64))


def test_the_jacobian_of_each_sample_is_its_own(rng):
    x = torch.tensor([0.5, 2.0, 7.0], dtype=torch.float64).reshape(3, 1, 1).expand(3, 1, 8)
    y_t = torch.randn(3, 1, 8, generator=rng, dtype=torch.float64)
    norms = bias.jacobian_norm(lambda y_t, x, sigma: x * y_t, y_t, x, 0.5, generator=rng)
    assert norms.tolist() == pytest.approx([0.5, 2.0, 7.0])


def test_the_jacobian_goes_through_attention(rng):
    def denoiser(y_t, x, sigma):
        q = y_t.transpose(1, 2)[:, None]
        return torch.nn.functional.scaled_dot_product_attention(q, q, q)[:, 0].transpose(1, 2)

    y_t = torch.randn(2, 4, 8, generator=rng)
    assert bias.jacobian_norm(denoiser, y_t, y_t, 0.5, generator=rng).isfinite().all()
