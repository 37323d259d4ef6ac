import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import fields, seeds, shapes
from toys import exact, seeded

from biasbound.core import bias
from biasbound.core.bias import Estimate, bias_curve, own_bias, pooled, two_step_bias
from biasbound.core.noise import alpha_bar
from biasbound.core.oracle import AffineOracle, GaussianOracle, WienerOracle
from biasbound.core.schedule import Schedule, log_uniform

# --- the ratio and its standard error ---------------------------------------------------------------


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30), st.integers(1, 29))
def test_pooling_batches_equals_measuring_them_at_once(values, cut):
    whole = torch.tensor(values, dtype=torch.float64)
    cut = min(cut, len(values) - 1)
    both = pooled([Estimate.of(whole[:cut], 3), Estimate.of(whole[cut:], 3)])
    assert both.mean == pytest.approx(whole.mean().item(), abs=1e-12)
    assert both.stderr == pytest.approx((whole.var() / len(values)).sqrt().item(), abs=1e-12)
    assert (both.pairs, both.draws) == (len(values), 3)


def test_the_standard_error_is_that_of_repeated_measurements():
    oracle = GaussianOracle(0.5)
    runs = []
    for seed in range(60):
        rng = seeded(seed)
        x, y = oracle.pairs((16, 1, 32), rng)
        runs.append(own_bias(oracle, x, y, 0.5, draws=2, generator=rng))
    spread = torch.tensor([r.mean for r in runs]).std().item()
    claimed = sum(r.stderr for r in runs) / len(runs)
    assert 0.75 < claimed / spread < 1.33  # the spread of 60 runs is itself known to 9 %


def test_one_pair_has_no_known_standard_error(rng):
    x, y = AffineOracle(0.1, 0.1).pairs((1, 1, 8), rng)
    assert own_bias(AffineOracle(0.1, 0.1), x, y, 0.5, generator=rng).stderr == math.inf


def test_biases_over_zero_clean_error_are_defined():
    zero, some = torch.zeros(2, 3), torch.ones(2, 3)
    assert bias.bias_ratio(zero, zero).tolist() == [1, 1, 1]
    assert bias.bias_ratio(some, zero).tolist() == [math.inf] * 3
    assert Estimate.of(torch.tensor([1.0, math.inf]), 1) == Estimate(math.inf, math.inf, 2, 1)
    assert pooled([Estimate(math.inf, math.inf, 2, 1), Estimate(1.0, 0.1, 2, 1)]).mean == math.inf
    with pytest.raises(ValueError, match="NaN"):
        Estimate.of(torch.tensor([1.0, math.nan]), 1)


# --- the affine oracle: exact algebra ---------------------------------------------------------------


@given(st.floats(0, 2), st.floats(1e-3, 1), seeds, shapes, st.floats(1e-4, 0.9999))
def test_own_bias_of_the_affine_oracle_is_one_plus_its_sensitivity(
    kappa, error, seed, shape, sigma
):
    oracle = AffineOracle(error, kappa)
    (x,) = fields(shape, torch.float64, seed, 1)
    for power in (1, 2):
        measured = own_bias(oracle, x, x, sigma, shared=True, power=power, generator=seeded(seed))
        assert measured.mean == pytest.approx((1 + kappa) ** power, rel=1e-6)


def test_two_step_bias_of_the_affine_oracle_with_negligible_noise():
    """Where c dominates: 1 + κ(σ_to) c(σ_from)/c(σ_to)."""
    oracle = AffineOracle(lambda s: 100 * s, 0.02)
    x, y = oracle.pairs((8, 1, 16), seeded())
    measured = two_step_bias(oracle, x, y, 0.1, 0.4, generator=seeded(1))
    assert measured.mean == pytest.approx(1 + 0.02 * 4, rel=1e-4)


def affine_reb_squared(oracle, schedule):
    """REB² of the affine oracle, c and κ constant: ê_t = c u + κ σ/√ᾱ ε_t + κ ê_{t+1}, in expected squares."""
    c, kappa = oracle.error, oracle.sensitivity
    mean, variance, rebs = None, None, []
    for sigma in reversed(schedule.sigma):
        noise = (kappa * sigma) ** 2 / alpha_bar(sigma)
        if (
            mean is None
        ):  # ŷ_T = ε holds no signal: its error has κ/√ᾱ (ε − √ᾱ y), with y ~ N(0, 1)
            mean, variance = c, noise / sigma**2 + kappa**2
        else:
            mean, variance = c + kappa * mean, noise + kappa**2 * variance
        rebs.append((mean**2 + variance) / (c**2 + noise))
    return rebs[::-1]


def test_reb_of_the_affine_oracle_follows_its_recursion():
    oracle, schedule = AffineOracle(0.3, 0.2), log_uniform(5, 0.05, 0.9)
    x, y = oracle.pairs((64, 1, 4096), seeded())
    rows = bias_curve(oracle, x, y, schedule, draws=2, generator=seeded(1))
    for row, expected in zip(rows, affine_reb_squared(oracle, schedule), strict=True):
        assert row.reb_squared.mean == pytest.approx(expected, rel=0.01)


# --- the Gaussian oracle: a perfect denoiser, and still biased --------------------------------------


@pytest.mark.parametrize("sigma", [0.05, 0.2, 0.5, 0.95])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("power", [1, 2])
def test_own_bias_of_the_gaussian_oracle(sigma, shared, power):
    oracle = GaussianOracle(0.3)
    x, y = oracle.pairs((64, 1, 4096), seeded())
    x, y = x.double(), y.double()
    measured = own_bias(oracle, x, y, sigma, shared=shared, power=power, generator=seeded(1))
    expected = oracle.own_bias(sigma, shared=shared, power=power)
    # 1e-9: with shared noise the ratio is exact for each pair, and its standard error is zero.
    assert abs(measured.mean - expected) <= 3 * measured.stderr + 1e-9


@pytest.mark.parametrize("draws", [1, 2, 5])
def test_stability_is_own_bias_and_clean_error(draws):
    """Closed forms of the Gaussian oracle, from 2R calls (R > 1)."""
    oracle, calls = GaussianOracle(0.3), []

    def counted(y_t, x, sigma):
        calls.append(sigma)
        return oracle(y_t, x, sigma)

    x, y = (v.double() for v in oracle.pairs((64, 1, 4096), seeded()))
    found = bias.stability(counted, x, y, 0.2, draws=draws, generator=seeded(1))
    assert len(calls) == (3 if draws == 1 else 2 * draws)
    assert abs(found.own.mean - oracle.own_bias(0.2)) <= 3 * found.own.stderr
    clean = bias.clean_error(oracle, x, y, 0.2, draws=draws, generator=seeded(2))
    assert abs(found.clean.mean - clean.mean) <= 4 * math.hypot(found.clean.stderr, clean.stderr)
    assert json.loads(json.dumps(found.as_dict()))["own"] == found.own.mean


def test_fresh_noise_hides_part_of_the_own_bias():
    """The gap that makes the convention matter: 1.94 with shared noise against 1.41 with fresh noise at k = 0.94."""
    oracle = GaussianOracle(1.0)
    sigma = math.sqrt(0.06 / (0.94 + 0.06))  # k = ᾱ/(ᾱ + σ²) = ᾱ = 0.94
    assert oracle.gain(sigma) == pytest.approx(0.94)
    assert oracle.own_bias(sigma, shared=True) == pytest.approx(1.94)
    assert oracle.own_bias(sigma) == pytest.approx(1.413, abs=1e-3)


# --- the Wiener oracle: Appendix C ------------------------------------------------------------------


def decaying(*n):
    k = torch.meshgrid(*(torch.fft.fftfreq(m, 1 / m) for m in n), indexing="ij")
    return 1 / (1 + sum(a**2 for a in k) / 64)


@pytest.mark.parametrize("sigma", [0.3, 0.7])
def test_the_residual_spectrum_of_the_wiener_oracle(sigma):
    oracle = WienerOracle(decaying(32))
    x, y = oracle.pairs((60_000, 1, 32), seeded())
    spectrum = bias.residual_spectrum(
        oracle, x, y, sigma, draws=1, batch_size=20_000, generator=seeded(1)
    )
    assert torch.allclose(spectrum.power[0], oracle.residual_spectrum(sigma), rtol=0.02)
    worst = (
        (spectrum.power[0] - oracle.residual_spectrum(sigma)).abs() / spectrum.stderr[0]
    ).max()
    assert worst < 4.5  # 32 wavenumbers


@pytest.mark.parametrize("n", [(2048,), (48, 48)])
@pytest.mark.parametrize("sigma", [0.3, 0.7])
def test_own_bias_of_the_wiener_oracle_is_what_its_spectrum_predicts(n, sigma):
    oracle = WienerOracle(decaying(*n))
    x, y = oracle.pairs((200, 1, *n), seeded())
    spectrum = bias.residual_spectrum(oracle, x, y, sigma, generator=seeded(1))
    predicted = bias.predicted_own_bias(spectrum)
    measured = own_bias(oracle, x, y, sigma, shared=True, power=2, generator=seeded(2))
    E, c = oracle.residual_spectrum(sigma), alpha_bar(sigma) / sigma**2
    closed = (1 + 2 * c * (E**2).sum() / E.sum() + c**2 * (E**3).sum() / E.sum()).item()
    assert measured.mean == pytest.approx(closed, rel=0.02)
    assert predicted.mean == pytest.approx(closed, rel=0.02)
    assert measured.mean > 1.2  # the level is unstable enough for the comparison to mean something


def test_less_error_means_less_bias_whatever_its_shape():
    """R(cE) = c R(E): uniform rescaling of the error spectrum lowers the predicted bias too."""
    E = decaying(64)[None]
    bias_of = lambda c: (
        bias.predicted_own_bias(bias.ResidualSpectrum(0.5, c * E, 0 * E, 2, 1)).mean
    )
    assert bias_of(0.1) < bias_of(0.5) < bias_of(1.0)
    assert bias_of(0.0) == 1


@given(shapes, seeds)
def test_the_residual_spectrum_holds_all_of_the_error(shape, seed):
    """Parseval: Σ_k E(k) is the mean squared Euclidean norm."""
    x, y = fields(shape, torch.float64, seed, 2)
    spectrum = bias.residual_spectrum(exact, x, y, 0.5, draws=2)
    assert spectrum.power.sum().item() == pytest.approx(
        (x - y).flatten(1).square().sum(1).mean().item()
    )


# --- the bound of Appendix B ------------------------------------------------------------------------


def linear_denoiser(d, seed, scale=1.0):
    """y_est = A_σ y_t + B x with a different random A for each level."""
    known = {}

    def matrices(sigma):
        if sigma not in known:
            rng = seeded(seed + len(known))
            known[sigma] = [
                scale * torch.randn(d, d, generator=rng, dtype=torch.float64) / d**0.5
                for _ in "AB"
            ]
        return known[sigma]

    def denoiser(y_t, x, sigma):
        A, B = matrices(sigma)
        return y_t @ A.T + x @ B.T

    return denoiser, matrices


@settings(max_examples=15)
@given(
    seeds,
    st.lists(st.floats(0.01, 0.99), min_size=2, max_size=5, unique=True).map(sorted),
    st.floats(0.05, 3),
)
def test_the_bound_holds_for_linear_denoisers(seed, ladder, scale):
    denoiser, _ = linear_denoiser(6, seed % 1000, scale)
    x, y = fields((4, 1, 6), torch.float64, seed, 2)
    rows = bias.reb_bound(
        denoiser, x, y, Schedule(ladder), draws=2, generator=seeded(seed), rtol=1e-9
    )
    assert [row.t for row in rows] == list(range(len(ladder) - 1))
    for row in rows:
        assert row.slack_min >= -1e-6 * row.bound.mean


def test_the_jacobian_norm_is_the_largest_singular_value(rng):
    denoiser, matrices = linear_denoiser(12, 3)
    y_t, x = (torch.randn(5, 1, 12, generator=rng, dtype=torch.float64) for _ in range(2))
    found = bias.jacobian_norm(denoiser, y_t, x, 0.5, rtol=1e-10, iterations=2000, generator=rng)
    expected = torch.linalg.matrix_norm(matrices(0.5)[0], 2)
    assert torch.allclose(found, expected.expand(5), rtol=1e-6)
    assert torch.equal(
        bias.jacobian_norm(exact, y_t, x, 0.5, generator=rng), torch.zeros(5, dtype=torch.float64)
    )


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
