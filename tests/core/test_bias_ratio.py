import json
import math
from dataclasses import replace
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import fields, seeds, shapes
from toys import exact, seeded

from biasbound.core import bias
from biasbound.core.bias import Estimate, Measure, bias_curve, own_bias, pooled, two_step_bias
from biasbound.core.noise import alpha_bar
from biasbound.core.oracle import AffineOracle, GaussianOracle
from biasbound.core.sample import Transition
from biasbound.core.schedule import log_uniform

TRANSITIONS = get_args(Transition)

# --- the ratio and its standard error ------------------------------------------------------------


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
    for seed in range(40):
        rng = seeded(seed)
        x, y = oracle.pairs((16, 1, 32), rng)
        runs.append(own_bias(oracle, x, y, 0.5, Measure(draws=2, generator=rng)))
    spread = torch.tensor([r.mean for r in runs]).std().item()
    claimed = sum(r.stderr for r in runs) / len(runs)
    assert 0.7 < claimed / spread < 1.4  # the spread of 40 runs is itself known to 11 %


@pytest.mark.parametrize(
    ("bad", "complaint"), [({"draws": 0}, "at least one noise draw"), ({"batch_size": 0}, "batch_size")]
)
def test_a_measure_that_measures_nothing_is_refused(bad, complaint):
    with pytest.raises(ValueError, match=complaint):
        Measure(**bad)
    with pytest.raises(ValueError, match="no pairs"):
        two_step_bias(exact, torch.zeros(0, 1, 8), torch.zeros(0, 1, 8), 0.1, 0.5)


def test_one_pair_has_no_known_standard_error(rng):
    x, y = AffineOracle(0.1, 0.1).pairs((1, 1, 8), rng)
    assert own_bias(AffineOracle(0.1, 0.1), x, y, 0.5, Measure(generator=rng)).stderr == math.inf


def test_biases_over_zero_clean_error_are_defined():
    zero, some = torch.zeros(2, 3), torch.ones(2, 3)
    assert bias.bias_ratio(zero, zero).tolist() == [1, 1, 1]
    assert bias.bias_ratio(some, zero).tolist() == [math.inf] * 3
    assert Estimate.of(torch.tensor([1.0, math.inf]), 1) == Estimate(math.inf, math.inf, 2, 1)
    assert pooled([Estimate(math.inf, math.inf, 2, 1), Estimate(1.0, 0.1, 2, 1)]).mean == math.inf
    with pytest.raises(ValueError, match="NaN"):
        Estimate.of(torch.tensor([1.0, math.nan]), 1)


# --- the affine oracle: exact algebra ------------------------------------------------------------


@given(st.floats(0, 2), st.floats(1e-3, 1), seeds, shapes, st.floats(1e-4, 0.9999))
def test_own_bias_of_the_affine_oracle_is_one_plus_its_sensitivity(kappa, error, seed, shape, sigma):
    oracle = AffineOracle(error, kappa)
    (x,) = fields(shape, torch.float64, seed, 1)
    for power in (1, 2):
        measured = own_bias(oracle, x, x, sigma, Measure(shared=True, power=power, generator=seeded(seed)))
        assert measured.mean == pytest.approx((1 + kappa) ** power, rel=1e-6)


def test_two_step_bias_of_the_affine_oracle_with_negligible_noise():
    """Where c dominates: 1 + κ(σ_to) c(σ_from)/c(σ_to)."""
    oracle = AffineOracle(lambda s: 100 * s, 0.02)
    x, y = oracle.pairs((8, 1, 16), seeded())
    measured = two_step_bias(oracle, x, y, 0.1, 0.4, Measure(generator=seeded(1)))
    assert measured.mean == pytest.approx(1 + 0.02 * 4, rel=1e-4)


def affine_reb_squared(oracle, schedule):
    """REB² of the affine oracle, c and κ constant: ê_t = c u + κ σ/√ᾱ ε_t + κ ê_{t+1}, in expected squares."""
    c, kappa = oracle.error, oracle.sensitivity
    mean, variance, rebs = None, None, []
    for sigma in reversed(schedule.sigma):
        noise = (kappa * sigma) ** 2 / alpha_bar(sigma)
        if mean is None:  # ŷ_T = ε holds no signal: its error has κ/√ᾱ (ε − √ᾱ y), with y ~ N(0, 1)
            mean, variance = c, noise / sigma**2 + kappa**2
        else:
            mean, variance = c + kappa * mean, noise + kappa**2 * variance
        rebs.append((mean**2 + variance) / (c**2 + noise))
    return rebs[::-1]


def test_reb_of_the_affine_oracle_follows_its_recursion():
    oracle, schedule = AffineOracle(0.3, 0.2), log_uniform(5, 0.05, 0.9)
    x, y = oracle.pairs((64, 1, 4096), seeded())
    rows = bias_curve(oracle, x, y, schedule, Measure(draws=2, generator=seeded(1)))
    for row, expected in zip(rows, affine_reb_squared(oracle, schedule), strict=True):
        assert row.reb_squared.mean == pytest.approx(expected, rel=0.01)


# --- the Gaussian oracle: a perfect denoiser, and still biased -----------------------------------


CONVENTIONS = [Measure(shared=shared, power=power) for shared in (False, True) for power in (1, 2)]


@pytest.mark.parametrize("sigma", [0.05, 0.2, 0.5, 0.95])
@pytest.mark.parametrize("how", CONVENTIONS, ids=str)
def test_own_bias_of_the_gaussian_oracle(sigma, how):
    oracle = GaussianOracle(0.3)
    x, y = (v.double() for v in oracle.pairs((32, 1, 2048), seeded()))
    measured = own_bias(oracle, x, y, sigma, replace(how, generator=seeded(1)))
    expected = oracle.own_bias(sigma, shared=how.shared, power=how.power)
    # 1e-9: with shared noise the ratio is exact for each pair, and its standard error is zero.
    assert abs(measured.mean - expected) <= 3 * measured.stderr + 1e-9


@pytest.mark.parametrize("draws", [1, 2, 5])
@pytest.mark.parametrize("how", CONVENTIONS, ids=str)
def test_stability_is_own_bias_and_clean_error(how, draws):
    """Closed forms of the Gaussian oracle, from 2R calls but where a single draw has no neighbour."""
    oracle, calls, sigma = GaussianOracle(0.3), [], 0.2

    def counted(y_t, x, sigma):
        calls.append(sigma)
        return oracle(y_t, x, sigma)

    x, y = (v.double() for v in oracle.pairs((64, 1, 1024), seeded()))
    found = bias.stability(counted, x, y, sigma, replace(how, draws=draws, generator=seeded(1)))
    assert len(calls) == (3 if draws == 1 and not how.shared else 2 * draws)
    expected = oracle.own_bias(sigma, shared=how.shared, power=how.power)
    assert abs(found.own.mean - expected) <= 3 * found.own.stderr + 1e-9
    clean = bias.clean_error(oracle, x, y, sigma, replace(how, draws=draws, generator=seeded(2)))
    assert abs(found.clean.mean - clean.mean) <= 4 * math.hypot(found.clean.stderr, clean.stderr)
    assert json.loads(json.dumps(found.as_dict()))["own"] == found.own.mean


def test_the_own_bias_is_about_noise_that_is_added_again_whatever_the_transition():
    oracle = GaussianOracle(0.3)
    x, y = oracle.pairs((4, 1, 16), seeded())
    own = [own_bias(oracle, x, y, 0.3, Measure(transition=t, generator=seeded(1))) for t in TRANSITIONS]
    assert own[0] == own[1] == own[2]


def test_fresh_noise_hides_part_of_the_own_bias():
    """The gap that makes the convention matter: 1.94 with shared noise against 1.41 with fresh noise at k = 0.94."""
    oracle = GaussianOracle(1.0)
    sigma = math.sqrt(0.06 / (0.94 + 0.06))  # k = ᾱ/(ᾱ + σ²) = ᾱ = 0.94
    assert oracle.gain(sigma) == pytest.approx(0.94)
    assert oracle.own_bias(sigma, shared=True) == pytest.approx(1.94)
    assert oracle.own_bias(sigma) == pytest.approx(1.413, abs=1e-3)


def test_a_mean_of_ratios_hides_a_tail_that_the_others_show():
    """One pair in ten has a hundred times the error, and its chain trebles it: the mean of the ratios barely moves."""
    clean = torch.full((2, 100), 0.01, dtype=torch.float64)
    clean[:, ::10] = 1.0
    error = clean.clone()
    error[:, ::10] *= 3.0
    found = Estimate.of_ratio(error, clean)
    assert found.mean == pytest.approx(1.2)
    assert found.pooled == pytest.approx(3.0, rel=1e-3)
    assert found.q95 == pytest.approx(3.0)
    squared = Estimate.of_ratio(error, clean, 2)
    assert squared.pooled == pytest.approx(found.pooled**2)
    assert [found.value(s) for s in ("mean", "pooled", "q95")] == [found.mean, found.pooled, found.q95]
    same = Estimate.of_ratio(clean, clean)
    assert (same.mean, same.pooled, same.q95) == (1.0, 1.0, 1.0)
