"""Schedules that others find: each has the property that it is named for."""

import itertools
import math

import pytest
import torch

from biasbound.core.front import inference_error
from biasbound.core.oracle import GaussianOracle
from biasbound.core.panel import PANEL, Dense, ays_cost, entropies, least_sum, quantiles, schedules, score_steps
from biasbound.core.predicted import predicted_error
from biasbound.core.schedule import log_uniform

SPREAD = 0.2


def dense(levels=12, pairs=16, **how):
    oracle = GaussianOracle(SPREAD)
    x, y = oracle.pairs((pairs, 1, 128), torch.Generator().manual_seed(1))
    return Dense(oracle, x.double(), y.double(), log_uniform(levels, 5e-3, 0.995), **how)


DENSE = dense()


@pytest.mark.parametrize("name", PANEL)
def test_a_schedule_has_the_calls_that_are_asked_for_and_begins_at_the_top(name):
    for calls in (1, 2, 5):
        found = PANEL[name](DENSE, calls)
        if found is None:
            assert name in ("greedy", "greedy-free")
            continue
        assert found.sigma[-1] == pytest.approx(DENSE.levels.sigma[-1])
        assert len(found) == calls or (name in ("cosine", "linear", "sigmoid") and len(found) <= calls)
        if calls > 1 and name in ("karras", "log-linear", "entropic", "score-optimal", "ays"):
            assert found.sigma[0] == pytest.approx(DENSE.levels.sigma[0])


def test_entropic_levels_divide_the_integral_evenly():
    """∫ E²/r³ dr of the Gaussian, E² = s²r²/(s² + r²), is s²∫ dr/(r(s² + r²)) = ½ ln(r²/(s² + r²))."""
    fine = dense(90)
    total = [math.log(r * r / (SPREAD**2 + r * r)) / 2 for r in fine.ratios]
    steps = torch.tensor(entropies(fine))
    exact = torch.tensor([b - a for a, b in itertools.pairwise(total)])
    assert torch.allclose(steps, exact.to(steps), rtol=0.08)
    index = quantiles(entropies(fine), 6)
    increments = [total[b] - total[a] for a, b in itertools.pairwise(index)]
    assert increments == pytest.approx([sum(increments) / 5] * 5, rel=0.15)


def test_score_optimal_levels_are_equally_far_apart():
    """The score of N(x, s² + r²) is −(z − x)/(s² + r²)."""
    fine = dense(90)
    variances = [SPREAD**2 + r * r for r in fine.ratios]
    rows = zip(fine.ratios, itertools.pairwise(variances), strict=False)
    exact = [r * math.sqrt(b) * (1 / a - 1 / b) for r, (a, b) in rows]
    assert score_steps(fine) == pytest.approx(exact, rel=0.08)
    index = quantiles(exact, 5)
    lengths = [sum(exact[a:b]) for a, b in itertools.pairwise(index)]
    assert lengths == pytest.approx([sum(lengths) / 4] * 4, rel=0.15)


@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_the_least_sum_is_the_least(count):
    cost = torch.rand(7, 7, generator=torch.Generator().manual_seed(count), dtype=torch.float64)

    def total(path):
        return sum(float(cost[t, u]) for t, u in itertools.pairwise(path))

    every = [(0, *inner, 6) for inner in itertools.combinations(range(1, 6), count - 2)] if count > 1 else [(6,)]
    assert tuple(least_sum(cost, count)) == min(every, key=total)


def test_estimates_of_a_gaussian_differ_as_those_of_the_forward_process():
    """E‖D(z_t) − D(z_u)‖² = s⁴ (1/(s² + t²) − 1/(s² + u²)), by which Align Your Steps draws its times."""
    many = dense(6, pairs=64)
    inverse = torch.tensor([1 / (SPREAD**2 + r * r) for r in many.ratios], dtype=torch.float64)
    exact = SPREAD**4 * (inverse[:, None] - inverse[None]).abs()
    assert torch.allclose(many.gaps, exact, rtol=0.1)


def test_no_other_levels_of_the_grid_have_a_lower_objective_than_align_your_steps():
    cost = ays_cost(DENSE)

    def objective(schedule):
        index = [DENSE.levels.sigma.index(s) for s in schedule.sigma]
        return sum(float(cost[t, u]) for t, u in itertools.pairwise(index))

    for calls in (2, 4, 7):
        least = objective(PANEL["ays"](DENSE, calls))
        start = quantiles([1.0] * (len(DENSE.levels) - 1), calls)  # even in log r
        others = [DENSE.ladder(start, "even"), PANEL["entropic"](DENSE, calls), PANEL["score-optimal"](DENSE, calls)]
        assert all(least <= objective(other) * (1 + 1e-12) for other in others)


@pytest.mark.parametrize("calls", range(2, 8))
def test_a_greedy_ladder_with_a_free_start_is_predicted_between_the_greedy_and_the_best(calls):
    """It may begin where the greedy one does, and the best of all ladders need not be greedy."""
    error = {
        name: predicted_error(found, DENSE.table.clean_error, DENSE.table)
        if (found := PANEL[name](DENSE, calls))
        else None
        for name in ("greedy", "greedy-free", "predicted")
    }
    if error["greedy-free"] is None:
        assert error["greedy"] is None
        return
    assert error["predicted"] <= error["greedy-free"] * (1 + 1e-12)
    assert error["greedy"] is None or error["greedy-free"] <= error["greedy"]


def test_quantiles_are_even_where_lengths_are_and_differ_where_they_are_not():
    assert quantiles([1.0] * 8, 5) == [0, 2, 4, 6, 8]
    assert quantiles([1.0] * 8, 1) == [8]
    assert quantiles([1e9, 1.0, 1.0, 1.0], 4)[0] == 0
    assert len(set(quantiles([1e9, 1.0, 1.0, 1.0], 4))) == 4
    with pytest.raises(ValueError, match="no 4 different"):
        quantiles([1.0, 1.0], 4)


def test_no_schedule_of_the_panel_beats_the_front_on_its_own_levels():
    few = dense(6)
    found = list(schedules(few, 4))
    assert len({(name, calls) for name, calls, _ in found}) == len(found)
    error = {
        (name, calls): inference_error(few.denoiser, few.x, few.y, ladder, draws=8).mean
        for name, calls, ladder in found
        if set(ladder.sigma) <= set(few.levels.sigma)
    }
    fronts = {calls: value for (name, calls), value in error.items() if name == "front"}
    assert sorted(fronts) == [1, 2, 3, 4]
    assert all(value >= 0.97 * fronts[calls] for (_, calls), value in error.items())
