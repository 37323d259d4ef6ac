"""The exact front: the best ladder for every number of calls."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import seeded

from biasbound.core.bias import Estimate, error_norm
from biasbound.core.front import at_most, best_schedule, optimal_schedules, pair_errors, paired_schedule
from biasbound.core.oracle import AffineOracle, GaussianOracle
from biasbound.core.sample import sample
from biasbound.core.schedule import SIGMA_MAX, Schedule, log_uniform


def faint(count):
    """Levels whose noise is far below any error here, under a top that is almost all noise."""
    return [*(1e-9 * 2**i for i in range(count - 1)), SIGMA_MAX]


def chained(ladder, error, gain):
    """E_inf of the affine oracle where no noise is seen: e ← c + κ e down the ladder, with κ = 0 at the top."""
    found = 0.0
    for s in reversed(ladder):
        found = error[s] + gain[s] * found
    return found


@given(st.integers(2, 8), st.integers(0, 2**31))
def test_the_front_is_what_trying_every_ladder_finds(count, seed):
    levels, rng = faint(count), torch.Generator().manual_seed(seed)
    error = dict(zip(levels, torch.rand(count, generator=rng).add(0.01).tolist(), strict=True))
    gain = dict(zip(levels, [*torch.rand(count - 1, generator=rng).tolist(), 0.0], strict=True))
    oracle = AffineOracle(error=error.__getitem__, sensitivity=gain.__getitem__)
    front = optimal_schedules(oracle, *oracle.pairs((2, 1, 4), seeded()), levels, calls=count)
    assert list(front) == list(range(1, count + 1))
    for k, (ladder, found) in front.items():
        every = [(*below, levels[-1]) for below in combinations(levels[:-1], k - 1)]
        least = min(chained(one, error, gain) for one in every)
        assert found.mean == pytest.approx(least, rel=1e-4)
        assert chained(ladder.sigma, error, gain) == pytest.approx(least, rel=1e-4)
        assert ladder.sigma[-1] == levels[-1]


@pytest.mark.parametrize("transition", ["renoise", "ddpm", "ddim"])
def test_its_errors_are_those_of_sampling(transition):
    oracle, levels = GaussianOracle(0.3), log_uniform(5, 0.05, 0.99)
    x, y = oracle.pairs((256, 1, 16), seeded())
    front = optimal_schedules(oracle, x, y, levels, 4, draws=2, generator=seeded(1), transition=transition)
    for ladder, found in front.values():
        made = [sample(oracle, x, ladder, generator=seeded(s), transition=transition) for s in (2, 3)]
        fresh = Estimate.of(torch.stack([error_norm(one - y) for one in made]).mean(0), 2)
        assert abs(found.mean - fresh.mean) < 4 * (found.stderr + fresh.stderr)


def test_one_call_is_the_top_alone_and_a_longer_front_begins_like_a_shorter_one():
    oracle, levels = GaussianOracle(0.3), log_uniform(6, 0.05, 0.99)
    x, y = oracle.pairs((16, 1, 16), seeded())
    short, long = (optimal_schedules(oracle, x, y, levels, k, generator=seeded(1)) for k in (3, 99))
    assert short[1][0].sigma == levels.sigma[-1:]
    assert list(long) == [1, 2, 3, 4, 5, 6]  # no ladder has more calls than there are levels
    assert long[6][0] == levels
    assert {k: long[k] for k in short} == short
    again = optimal_schedules(oracle, x, y, [*levels.sigma, *levels.sigma][::-1], 3, generator=seeded(1))
    assert again == short


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=8), st.floats(0, 1))
def test_more_calls_at_hand_are_never_worse_and_the_best_is_the_shortest_within_its_error(errors, stderr):
    levels = log_uniform(10, 0.01, 0.99).sigma
    front = {k: (Schedule(levels[-k:]), Estimate(e, stderr, 8, 2)) for k, e in enumerate(errors, 1)}
    least = [at_most(front, k)[1].mean for k in range(1, len(errors) + 3)]
    assert least == sorted(least, reverse=True)
    assert least[-1] == min(errors)
    chosen = len(best_schedule(front))
    assert errors[chosen - 1] <= min(errors) + stderr
    assert all(e > min(errors) + stderr for e in errors[: chosen - 1])


def test_where_refinement_does_not_pay_the_best_is_one_call():
    oracle = AffineOracle(error=lambda s: 0.1 if s > 0.9 else 0.2, sensitivity=lambda s: 0.0)
    front = optimal_schedules(oracle, *oracle.pairs((4, 1, 8), seeded()), log_uniform(5, 0.05, 0.99))
    assert len(best_schedule(front)) == 1
    assert at_most(front, 5)[0].sigma == (0.99,)


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ({"calls": 0}, "0 calls"),
        ({"draws": 0}, "0 draws"),
        ({"levels": []}, "at least one noise level"),
        ({"levels": [0.5, 1.5]}, "strictly between 0 and 1"),
        ({"x": torch.zeros(0, 1, 8), "y": torch.zeros(0, 1, 8)}, "0 and 0 fields"),
    ],
)
def test_what_has_no_front_is_refused(how, complaint):
    given = {"x": torch.zeros(4, 1, 8), "y": torch.zeros(4, 1, 8), "levels": [0.1, 0.9]} | how
    with pytest.raises(ValueError, match=complaint):
        optimal_schedules(GaussianOracle(0.3), **given)


def test_a_ladder_has_a_call():
    with pytest.raises(ValueError, match="at least 1 call"):
        at_most({1: (Schedule([0.9]), Estimate(1.0, 0.0, 2, 1))}, 0)


@pytest.mark.parametrize(("gain", "calls"), [(0.97, 2), (1.0, 1), (1.05, 1)])
def test_ladders_are_compared_pair_by_pair(gain, calls):
    """Errors that differ a hundredfold between pairs hide a gain of 3 % from their mean, but not from each pair."""
    x = torch.randn(40, 1, 16, generator=torch.Generator().manual_seed(0))
    size = torch.logspace(-2, 0, 40).reshape(-1, 1, 1)

    def denoiser(y_t, x, sigma):
        return x + size[: len(x)] * (gain if sigma < 0.5 else 1.0)

    front = optimal_schedules(denoiser, x, x, [0.1, 0.9])
    assert len(best_schedule(front)) == 1
    assert len(paired_schedule(denoiser, x, x, front)) == calls
    for ladder, error in front.values():  # without randomness in the answer all ways to measure agree
        assert pair_errors(denoiser, x, x, ladder).mean().item() == pytest.approx(error.mean)
