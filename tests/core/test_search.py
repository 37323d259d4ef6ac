import itertools
import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from biasbound.core.bias import Estimate, Measure, TwoStepTable, own_bias
from biasbound.core.oracle import AffineOracle, GaussianOracle
from biasbound.core.schedule import Schedule, log_uniform
from biasbound.core.search import (
    Exploration,
    ForcedTransition,
    Infeasible,
    NothingSolved,
    explore,
    greedy_schedule,
    start_level,
)


@st.composite
def landscapes(draw, monotone):
    """Levels and the bias of each jump; monotone: a jump that spans another is not less biased."""
    n = draw(st.integers(2, 7))
    levels = tuple(0.1 * (i + 1) for i in range(n))
    raw = {
        pair: draw(st.floats(0.9, 1.2))
        for pair in itertools.combinations(range(n), 2)  # (to, from)
    }
    if monotone:
        raw = {(i, j): max(b for (a, c), b in raw.items() if i <= a and c <= j) for i, j in raw}
    return levels, {(levels[i], levels[j]): b for (i, j), b in raw.items()}


def quiet_greedy(levels, biases, tau):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForcedTransition)
        return greedy_schedule(levels, lambda to, start: biases[to, start], tau)


taus = st.floats(1.0, 1.2)


@given(landscapes(monotone=False), taus)
def test_no_interior_level_is_unnecessary(landscape, tau):
    levels, biases = landscape
    sigma = quiet_greedy(levels, biases, tau).sigma
    assert sigma[0] == levels[0]
    assert sigma[-1] == levels[-1]
    for below, above in zip(sigma, sigma[2:], strict=False):
        assert biases[below, above] > tau


@given(landscapes(monotone=False), taus)
def test_every_step_is_within_tau_or_on_record_as_forced(landscape, tau):
    levels, biases = landscape
    schedule = quiet_greedy(levels, biases, tau)
    over = [[a, b] for a, b in itertools.pairwise(schedule.sigma) if biases[a, b] > tau]
    assert schedule.meta["forced"] == over
    assert [s["bias"] for s in schedule.meta["steps"]] == [biases[p] for p in itertools.pairwise(schedule.sigma)]
    assert (schedule.meta["method"], schedule.meta["tau"]) == ("greedy", tau)


@given(landscapes(monotone=True), taus)
def test_the_greedy_ladder_is_as_short_as_any(landscape, tau):
    levels, biases = landscape
    interior = levels[1:-1]
    ladders = (
        (levels[0], *chosen, levels[-1])
        for size in range(len(interior) + 1)
        for chosen in itertools.combinations(interior, size)
    )
    feasible = [ladder for ladder in ladders if all(biases[p] <= tau for p in itertools.pairwise(ladder))]
    found = quiet_greedy(levels, biases, tau)
    if feasible:
        assert len(found) == min(map(len, feasible))
        assert found.meta["forced"] == []
    else:
        assert found.meta["forced"]


@given(landscapes(monotone=True), taus, taus)
def test_a_looser_tau_never_lengthens_the_ladder(landscape, tau, other):
    levels, biases = landscape
    strict, loose = sorted((tau, other))
    assert len(quiet_greedy(levels, biases, loose)) <= len(quiet_greedy(levels, biases, strict))


def test_the_affine_landscape_gives_the_predicted_ladder():
    """c ∝ σ and κ = 0.02: jumps of ratio up to (τ − 1)/κ = 2.5 are feasible, whatever the level."""
    levels = log_uniform(50, 1e-3, 0.999, over="sigma").sigma
    ladder = greedy_schedule(levels, lambda to, start: 1 + 0.02 * start / to, 1.05)
    grid_ratio = levels[1] / levels[0]
    for low, high in itertools.pairwise(ladder.sigma[:-1]):
        assert 2.5 / grid_ratio < high / low <= 2.5


def test_an_infeasible_gap_is_forced_with_a_warning_or_refused():
    biases = {(0.1, 0.5): 1.3, (0.1, 0.9): 1.5, (0.5, 0.9): 1.01}
    with pytest.warns(ForcedTransition, match=r"σ = 0\.1 .*τ = 1\.05.*0\.5, has 1\.3"):
        schedule = greedy_schedule([0.1, 0.5, 0.9], lambda a, b: biases[a, b], 1.05)
    assert schedule.sigma == (0.1, 0.5, 0.9)
    assert schedule.meta["forced"] == [[0.1, 0.5]]
    with pytest.raises(Infeasible, match="finer grid"):
        greedy_schedule([0.1, 0.5, 0.9], lambda a, b: biases[a, b], 1.05, infeasible="raise")


def test_an_infinite_bias_is_infeasible_and_a_nan_is_an_error():
    with pytest.warns(ForcedTransition):
        schedule = greedy_schedule([0.1, 0.9], lambda a, b: math.inf)
    assert schedule.meta["steps"][0]["bias"] is None
    with pytest.raises(ValueError, match="NaN"):
        greedy_schedule([0.1, 0.9], lambda a, b: math.nan)


@pytest.mark.parametrize("tau", [0.99, 0.0, -1.0, math.nan, math.inf])
def test_tau_below_one_is_refused(tau):
    with pytest.raises(ValueError, match="τ must be a finite number of at least 1"):
        greedy_schedule([0.1, 0.9], lambda a, b: 1.0, tau)
    with pytest.raises(ValueError, match="τ must be"):
        explore([0.1, 0.9], lambda levels: (None, {}), tau=tau, rounds=1)


def test_an_empty_grid_is_refused():
    with pytest.raises(ValueError, match="at least one noise level"):
        greedy_schedule([], lambda a, b: 1.0)
    with pytest.raises(ValueError, match="at least one noise level"):
        explore([], lambda levels: (None, {}), rounds=1)


def test_one_level_is_a_ladder():
    assert greedy_schedule([0.5], lambda a, b: 1.0).sigma == (0.5,)


def test_the_ladder_can_start_higher():
    schedule = greedy_schedule([0.1, 0.3, 0.9], lambda a, b: 1.0, start=0.3)
    assert schedule.sigma == (0.3, 0.9)
    with pytest.raises(ValueError, match="not one of the levels"):
        greedy_schedule([0.1, 0.9], lambda a, b: 1.0, start=0.2)


def test_start_rules():
    errors = {0.1: Estimate(1.00, 0.05, 9, 4), 0.3: Estimate(1.04, 0.05, 9, 4), 0.9: Estimate(3.0, 0.1, 9, 4)}
    assert start_level(errors) == 0.1
    assert start_level(errors, errors.__getitem__, "error") == 0.3  # flat below: the highest within one error
    with pytest.raises(ValueError, match="clean-input error"):
        start_level(errors, rule="error")


# --- Phase 1 ----------------------------------------------------------------------------------------


def scripted(biases_by_round):
    """A callback that plays given own biases and records which levels it was asked for."""
    asked = []

    def advance(levels):
        asked.append(levels)
        biases = biases_by_round[len(asked) - 1]
        return f"checkpoint {len(asked)}", {s: biases[s] for s in levels}

    return advance, asked


ROUNDS = [{0.1: 1.9, 0.3: 1.5, 0.9: 1.01}, {0.1: 1.5, 0.3: 1.04}, {0.1: 1.2}, {0.1: 1.1}, {0.1: 1.0}]


def test_solved_levels_keep_their_checkpoint_and_leave_training():
    advance, asked = scripted(ROUNDS)
    found = explore([0.1, 0.3, 0.9], advance, rounds=9)
    assert asked == [(0.1, 0.3, 0.9), (0.1, 0.3), (0.1,), (0.1,), (0.1,)]
    assert found.checkpoints() == {0.1: "checkpoint 5", 0.3: "checkpoint 2", 0.9: "checkpoint 1"}
    assert {s: v.bias for s, v in found.solved.items()} == {0.9: 1.01, 0.3: 1.04, 0.1: 1.0}
    assert found.stopped == "all solved"
    assert [dict(h) for h in found.history] == ROUNDS


@pytest.mark.parametrize(
    ("limits", "rounds", "reason"),
    [
        ({"rounds": 3}, 3, "budget"),
        ({"rounds": 9, "patience": 2}, 4, "patience"),
        ({"rounds": 9, "patience": 3}, 5, "all solved"),
    ],
)
def test_exploration_stops_by_budget_or_patience(limits, rounds, reason):
    advance, asked = scripted(ROUNDS)
    found = explore([0.1, 0.3, 0.9], advance, **limits)
    assert (len(asked), found.stopped) == (rounds, reason)


@pytest.mark.parametrize("cut", range(1, 5))
def test_an_interrupted_exploration_goes_on_where_it_was(cut):
    whole = explore([0.1, 0.3, 0.9], scripted(ROUNDS)[0], rounds=5)
    advance, asked = scripted(ROUNDS)
    saved = []
    explore([0.1, 0.3, 0.9], advance, rounds=cut, on_round=saved.append)
    assert len(saved) == cut
    resumed = explore([0.1, 0.3, 0.9], advance, rounds=5, resume=saved[-1])
    assert resumed == whole
    assert len(asked) == 5


def test_an_unsolved_top_still_starts_the_chain():
    advance, _ = scripted([{0.1: 1.0, 0.9: 1.3}, {0.9: 1.2}])
    found = explore([0.1, 0.9], advance, rounds=2)
    assert found.checkpoints() == {0.1: "checkpoint 1", 0.9: "checkpoint 2"}


def test_nothing_solved_says_what_to_change():
    advance, _ = scripted([{0.1: 2.0, 0.9: 2.0}])
    with pytest.raises(
        NothingSolved, match=r"no level of 2 .*τ = 1\.05 in 1 rounds.*train longer.*larger network.*raise τ"
    ):
        explore([0.1, 0.9], advance, rounds=1).checkpoints()


def test_a_callback_that_forgets_a_level_is_told_which():
    with pytest.raises(ValueError, match=r"no bias for the levels \[0\.9\]"):
        explore([0.1, 0.9], lambda levels: (None, {0.1: 1.0}), rounds=1)
    with pytest.raises(ValueError, match="NaN"):
        explore([0.1, 0.9], lambda levels: (None, {0.1: math.nan, 0.9: 1.0}), rounds=1)
    with pytest.raises(ValueError, match="at least 1"):
        explore([0.1], lambda levels: (None, {}), rounds=0)


def test_exploration_finds_the_stability_threshold_of_the_gaussian_oracle():
    """𝓑^(own) = 1 + k ≤ τ with shared noise: exactly the levels with k ≤ τ − 1."""
    oracle, grid, tau = GaussianOracle(0.05), log_uniform(20), 1.05
    x, y = oracle.pairs((16, 1, 64), torch.Generator().manual_seed(0))

    def advance(levels):
        return oracle, {s: own_bias(oracle, x.double(), y.double(), s, Measure(shared=True, draws=1)) for s in levels}

    found = explore(grid, advance, tau=tau, rounds=1)
    assert set(found.solved) == {s for s in grid.sigma if oracle.gain(s) <= tau - 1}
    assert 0 < len(found.solved) < len(grid)


# --- the two phases together ------------------------------------------------------------------------


def test_phase_two_asks_for_n_clean_estimates_and_the_visited_pairs_only():
    grid = log_uniform(12, 0.02, 0.99)
    calls, visited = [], []

    class Counting(AffineOracle):
        def __call__(self, y_t, x, sigma):
            calls.append(sigma)
            return super().__call__(y_t, x, sigma)

    checkpoint = Counting(lambda s: 0.3 * s, 0.02)
    x, y = checkpoint.pairs((8, 1, 16), torch.Generator().manual_seed(0))
    draws = 2
    table = TwoStepTable(dict.fromkeys(grid.sigma, checkpoint), x, y, Measure(draws=draws))

    def recording(to, start):
        visited.append((to, start))
        return table(to, start)

    ladder = greedy_schedule(grid.sigma, recording, 1.06)
    assert len(ladder) < len(grid)
    assert len(set(visited)) == len(visited)
    assert len(calls) <= draws * (len(grid) + len(visited))
    # No pair is visited below the first feasible one of each step.
    for low, high in itertools.pairwise(ladder.sigma):
        assert all(start >= high for to, start in visited if to == low)
    before = len(calls)
    table(*visited[0])
    assert len(calls) == before


def test_the_searched_ladder_keeps_the_chain_near_tau():
    from biasbound.core.bias import bias_curve

    oracle = AffineOracle(lambda s: 0.3 * s, 0.02)
    x, y = oracle.pairs((16, 1, 64), torch.Generator().manual_seed(0))
    grid = log_uniform(40, 1e-3, 0.999, over="sigma")
    ladder = greedy_schedule(grid.sigma, TwoStepTable(dict.fromkeys(grid.sigma, oracle), x, y), 1.05)
    rows = bias_curve(oracle, x, y, ladder)
    assert max(row.reb.mean for row in rows) < 1.06
    assert len(ladder) <= 10


def test_exploration_is_a_plain_value():
    state = Exploration((0.1, 0.9), 1.05)
    assert state.open == (0.1, 0.9)
    assert state.idle == 0
    assert Schedule(state.levels).sigma == state.levels
