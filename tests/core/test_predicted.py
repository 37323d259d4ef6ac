"""Ladders of least predicted error: the prediction is a sum over jumps, and the search over ladders is exact."""

import itertools
import math

import pytest
import torch

from biasbound.core.bias import Measure, TwoStepTable
from biasbound.core.front import inference_error, optimal_schedules
from biasbound.core.oracle import AffineOracle, GaussianOracle
from biasbound.core.predicted import predicted_error, predicted_schedules
from biasbound.core.schedule import Schedule, log_uniform

LEVELS = [0.02, 0.05, 0.1, 0.3, 0.6, 0.99]


def clean(sigma):
    return 0.1 + sigma


def bias(to, start):
    return 1 + 0.03 * (start / to) ** 0.7


def predicted(ladder):
    """√(E_clean(σ_0)² + Σ (𝓑² − 1) E_clean²), jump by jump from the top."""
    square = clean(min(ladder)) ** 2
    for start, to in itertools.pairwise(sorted(ladder, reverse=True)):
        square += (bias(to, start) ** 2 - 1) * clean(to) ** 2
    return math.sqrt(square)


@pytest.mark.parametrize("calls", range(1, 7))
def test_no_ladder_of_as_many_calls_has_a_lower_prediction(calls):
    ladder, error = predicted_schedules(LEVELS, clean, bias, 6)[calls]
    every = [(*some, LEVELS[-1]) for some in itertools.combinations(LEVELS[:-1], calls - 1)]
    assert len(ladder) == calls
    assert error == pytest.approx(predicted(ladder.sigma)) == pytest.approx(min(map(predicted, every)))
    assert predicted_error(ladder, clean, bias) == pytest.approx(error)


def test_without_bias_the_error_is_that_of_the_last_level():
    errors = {0.1: 3.0, 0.2: 1.0, 0.5: 2.0, 0.9: 4.0}
    found = predicted_schedules(errors, errors.get, lambda to, start: 0.999)  # a measured bias may be below 1
    assert {k: error for k, (_, error) in found.items()} == {1: 4.0, 2: 1.0, 3: 1.0, 4: 3.0}
    assert found[2][0].sigma == (0.2, 0.9)


def test_every_pair_of_levels_is_asked_once():
    asked = []
    predicted_schedules(LEVELS, clean, lambda *pair: asked.append(pair) or 1.1)
    assert len(asked) == len(set(asked)) == 15
    assert all(to < start for to, start in asked)


@pytest.mark.parametrize(
    "oracle", [GaussianOracle(0.2), AffineOracle(lambda s: 0.1 * s, 0.3)], ids=["gauss", "affine"]
)
def test_with_two_calls_it_is_the_exact_front(oracle):
    """The two-step bias from the top *is* E_inf/E_clean of a chain of two; noise is the only difference."""
    x, y = oracle.pairs((32, 1, 256), torch.Generator().manual_seed(0))
    levels = log_uniform(9, 1e-2, 0.995)
    table = TwoStepTable(dict.fromkeys(levels.sigma, oracle), x, y, Measure(4))
    ladder, error = predicted_schedules(levels, table.clean_error, table, 2)[2]
    front = optimal_schedules(oracle, x, y, levels, 2, draws=4)[2][1].mean
    assert inference_error(oracle, x, y, ladder, draws=4).mean == pytest.approx(front, rel=0.02)
    assert error == pytest.approx(front, rel=0.02)


@pytest.mark.parametrize("calls", [3, 4, 5])
def test_on_a_gaussian_its_measured_error_is_near_that_of_the_front(calls):
    oracle = GaussianOracle(0.2)
    x, y = oracle.pairs((32, 1, 256), torch.Generator().manual_seed(0))
    levels = log_uniform(9, 1e-2, 0.995)
    table = TwoStepTable(dict.fromkeys(levels.sigma, oracle), x, y, Measure(4))
    ladder, _ = predicted_schedules(levels, table.clean_error, table, calls)[calls]
    front = optimal_schedules(oracle, x, y, levels, calls, draws=4)[calls][1].mean
    assert inference_error(oracle, x, y, ladder, draws=4).mean <= 1.05 * front


def test_no_calls_are_refused():
    with pytest.raises(ValueError, match="at least 1 call"):
        predicted_schedules(LEVELS, clean, bias, 0)


@pytest.mark.parametrize(
    "ladder", [(0.02, 0.99), (0.02, 0.1, 0.99), (0.05, 0.1, 0.3, 0.99), (0.02, 0.05, 0.1, 0.3, 0.6, 0.99)]
)
def test_where_no_level_amplifies_what_it_is_handed_it_is_an_upper_bound(ladder):
    """A Gaussian's denoiser shrinks what it is handed, so that a chain of more than two calls errs less."""
    oracle = GaussianOracle(0.2)
    x, y = oracle.pairs((64, 1, 256), torch.Generator().manual_seed(0))
    table = TwoStepTable(dict.fromkeys(ladder, oracle), x, y, Measure(8))
    bound = predicted_error(Schedule(ladder), table.clean_error, table)
    reached = inference_error(oracle, x, y, Schedule(ladder), draws=8).mean
    assert reached <= 1.01 * bound
    assert len(ladder) > 2 or bound == pytest.approx(reached, rel=0.02)
