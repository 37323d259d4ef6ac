"""Biases along a chain and between any two levels: one pass, any batch, any shape, and what is refused."""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from strategies import dtypes, fields, ladders, seeds, shapes
from toys import exact, seeded

from biasbound.core import bias
from biasbound.core.bias import Estimate, Measure, bias_curve, own_bias, two_step_bias
from biasbound.core.denoise import NetDenoiser, NonFiniteError
from biasbound.core.oracle import AffineOracle, GaussianOracle
from biasbound.core.sample import sample
from biasbound.core.schedule import Schedule, log_uniform

# --- the curve, and everything as a part of it ---------------------------------------------------


def test_the_curve_agrees_with_the_single_biases():
    oracle, schedule = GaussianOracle(0.3), log_uniform(4, 0.1, 0.9)
    x, y = oracle.pairs((64, 1, 512), seeded())
    rows = bias_curve(oracle, x, y, schedule, Measure(generator=seeded(1)))
    assert [row.t for row in rows] == [0, 1, 2, 3]
    assert [row.sigma for row in rows] == list(schedule.sigma)
    assert rows[-1].two_step is rows[-1].delta is rows[-1].rho1 is None
    for row, above in zip(rows, [*schedule.sigma[1:], None], strict=True):
        own = own_bias(oracle, x, y, row.sigma, Measure(generator=seeded(2)))
        clean = bias.clean_error(oracle, x, y, row.sigma, Measure(generator=seeded(3)))
        assert abs(row.own.mean - own.mean) < 4 * math.hypot(row.own.stderr, own.stderr)
        assert abs(row.clean.mean - clean.mean) < 4 * math.hypot(row.clean.stderr, clean.stderr)
        if above is not None:
            two = two_step_bias(oracle, x, y, row.sigma, above, Measure(generator=seeded(4)))
            assert abs(row.two_step.mean - two.mean) < 4 * math.hypot(row.two_step.stderr, two.stderr)
            assert row.delta.mean == pytest.approx(row.two_step.mean - row.own.mean)


@settings(max_examples=15)
@given(seeds, shapes)
def test_the_law_of_cosines_ties_the_two_kinds_of_bias(seed, shape):
    """𝓑_alt² = (𝓑 − ρ)² + 1 − ρ² for each pair and draw; one pair and one draw make it visible."""
    x, y = fields((1, *shape[1:]), torch.float64, seed, 2)
    rows = bias_curve(lambda y_t, x, s: torch.tanh(y_t + x), x, y, Schedule([0.2, 0.6]), Measure(draws=1))
    for b, alt, rho in (
        (rows[0].two_step, rows[0].two_step_alt, rows[0].rho1),
        (rows[0].reb, rows[0].reb_alt, rows[0].rho2),
        (rows[1].reb, rows[1].reb_alt, rows[1].rho2),
    ):
        expected = (b.mean - rho.mean) ** 2 + 1 - rho.mean**2
        assert alt.mean**2 == pytest.approx(expected, rel=1e-6, abs=1e-7 * (1 + b.mean) ** 2)


def test_one_level_has_no_chain_to_be_biased_by_but_its_start():
    """At σ_T → 1 noised truth is the chain's own start, so REB(T) → 1."""
    oracle = AffineOracle(0.2, 0.1)
    x, y = oracle.pairs((16, 1, 64), seeded())
    (row,) = bias_curve(GaussianOracle(0.5), x, y, Schedule([1 - 1e-9]), Measure(generator=seeded(1)))
    assert row.reb.mean == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("batch_size", [7, 64, None])
def test_batches_of_any_size_give_the_same_biases(batch_size):
    """The affine oracle with shared noise has the same bias for every draw, so batching must not show."""
    oracle, schedule = AffineOracle(0.2, 0.3), log_uniform(3, 0.1, 0.9)
    x, y = oracle.pairs((20, 1, 16), seeded())
    options = {"shared": True, "batch_size": batch_size, "generator": seeded(1)}
    assert own_bias(oracle, x, y, 0.5, Measure(**options)).mean == pytest.approx(1.3, rel=1e-4)
    assert [r.own.mean for r in bias_curve(oracle, x, y, schedule, Measure(**options))] == pytest.approx(
        [1.3] * 3, rel=1e-4
    )
    assert all(r.clean.pairs == 20 for r in bias_curve(oracle, x, y, schedule, Measure(**options)))


def test_streaming_never_asks_for_more_than_a_batch():
    largest = 0

    def denoiser(y_t, x, sigma):
        nonlocal largest
        largest = max(largest, len(y_t))
        return 0.5 * y_t

    x = torch.randn(20, 1, 8, generator=seeded())
    own_bias(denoiser, x, x, 0.5, Measure(batch_size=8))
    bias_curve(denoiser, x, x, log_uniform(3), Measure(batch_size=8))
    bias.residual_spectrum(denoiser, x, x, 0.5, Measure(batch_size=8))
    bias.reb_bound(denoiser, x, x, log_uniform(3), Measure(batch_size=8))
    assert largest == 8


def test_rows_are_plain_numbers_with_their_errors(rng):
    x, y = GaussianOracle(0.5).pairs((4, 1, 8), rng)
    rows = [row.as_dict() for row in bias_curve(GaussianOracle(0.5), x, y, log_uniform(3), Measure(generator=rng))]
    back = json.loads(json.dumps(rows))
    assert back == rows
    assert {"t", "sigma", "reb", "reb_stderr", "own_squared", "pairs", "draws"} <= rows[0].keys()
    assert rows[-1]["two_step"] is None


@settings(max_examples=15)
@given(shapes, dtypes, seeds, ladders)
def test_biases_are_finite_for_any_schedule_shape_and_dtype(shape, dtype, seed, ladder):
    x, y = fields(shape, dtype, seed, 2)
    rows = bias_curve(lambda y_t, x, s: torch.tanh(y_t) + 0.1 * x, x, y, Schedule(ladder), Measure(draws=1))
    assert all(math.isfinite(row.reb.mean) and math.isfinite(row.own.mean) for row in rows)


def test_same_seed_same_bytes():
    oracle = GaussianOracle(0.5)
    x, y = oracle.pairs((4, 2, 9), seeded())
    runs = [bias_curve(oracle, x, y, log_uniform(5), Measure(generator=seeded(3))) for _ in range(2)]
    assert runs[0] == runs[1]


# --- extremes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_denoiser_without_error_has_no_bias(dtype):
    x = torch.randn(3, 1, 8, generator=seeded()).to(dtype)
    schedule = Schedule([1e-6, 0.5, 1 - 1e-9])
    assert own_bias(exact, x, x, 0.5) == Estimate(1.0, 0.0, 3, 4, 1.0, 1.0)
    for row in bias_curve(exact, x, x, schedule):
        assert row.reb.mean == row.own.mean == row.rho2.mean == 1
        assert row.reb_alt.mean == row.clean.mean == 0
    for row in bias.reb_bound(exact, x, x, schedule):
        assert row.lam.mean == 0
        assert row.bound.mean >= row.reb.mean == 1
    assert bias.predicted_own_bias(bias.residual_spectrum(exact, x, x, 0.5)).mean == 1


@pytest.mark.parametrize("denoiser", [NetDenoiser(lambda z_t, x, told: 0 * z_t, "x0"), GaussianOracle(0.1)])
def test_all_zero_fields_are_fields_too(denoiser):
    x = torch.zeros(2, 1, 8)
    rows = bias_curve(denoiser, x, x, Schedule([1e-6, 0.5, 1 - 1e-9]), Measure(generator=seeded()))
    assert all(math.isfinite(row.reb.mean) and row.reb.mean >= 0 for row in rows)


def test_extreme_levels_have_finite_biases_with_epsilon_prediction():
    denoiser = NetDenoiser(lambda z_t, x, told: 0.9 * z_t)
    x = torch.randn(4, 1, 16, generator=seeded())
    rows = bias_curve(denoiser, x, x, Schedule([1e-6, 0.5, 1 - 1e-9]), Measure(generator=seeded(1)))
    assert all(math.isfinite(value) for row in rows for value in (row.reb.mean, row.clean.mean, row.own.mean))


def test_a_nan_from_the_network_stops_the_measurement():
    x = torch.randn(4, 1, 8, generator=seeded())

    def breaks_at_low_noise(y_t, x, sigma):
        return y_t if sigma > 0.2 else y_t * math.nan

    with pytest.raises(NonFiniteError, match=r"σ = 0\.1 for 4 of 4"):
        own_bias(breaks_at_low_noise, x, x, 0.1)
    with pytest.raises(NonFiniteError, match=r"σ = 0\.1"):
        bias_curve(breaks_at_low_noise, x, x, Schedule([0.1, 0.5]))
    assert own_bias(breaks_at_low_noise, x, x, 0.5).mean > 0


# --- where the posterior is wide -----------------------------------------------------------------


@pytest.mark.parametrize("transition", ["renoise", "ddpm", "ddim"])
@pytest.mark.parametrize("count", [2, 8, 64])
def test_the_bias_bounds_how_far_members_spread(count, transition):
    """Members do not know y: spread²/skill² = REB² E_clean²/skill² − 1, so that calibration needs a REB of √2 at least.

    Down many levels, ddpm and ddim draw from the posterior: spread² is 1 but for what the last estimate leaves out, 1 − k. Noise that
    is drawn anew forgets at every step: k/(1 + k), half of the posterior's variance at most.
    """
    width, schedule = 0.5, log_uniform(count, 0.1, 0.999)
    oracle = GaussianOracle(width)
    x, y = oracle.pairs((1, 1, 10_000), seeded())
    how = Measure(1, transition=transition, generator=seeded(1))
    reb = bias_curve(oracle, x, y, schedule, how)[0].reb.pooled
    made = sample(oracle, x, schedule, transition=transition, generator=seeded(2))
    spread, k = (made - x).square().mean().item() / width**2, oracle.gain(0.1)
    assert spread == pytest.approx(reb**2 * (1 - k) - 1, abs=0.08)
    assert spread < reb**2 - 1
    if count == 64:
        assert spread == pytest.approx(k / (1 + k) if transition == "renoise" else k, abs=0.08)
        assert reb > math.sqrt(2)
