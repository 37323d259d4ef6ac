"""What ladders are compared by: errors, or the score of an ensemble."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import seeded

from biasbound.core.bias import error_norm
from biasbound.core.crps import crps
from biasbound.core.front import at_most, optimal_schedules, pair_errors
from biasbound.core.oracle import GaussianOracle
from biasbound.core.schedule import log_uniform
from biasbound.core.score import pair_scores


@given(st.integers(2, 6), st.floats(0.1, 10), st.integers(0, 2**31))
def test_the_crps_by_its_definition_scales_with_the_errors_and_forgets_their_order(count, scale, seed):
    errors = torch.randn(count, 3, 5, generator=seeded(seed), dtype=torch.float64)
    gaps = (errors[:, None] - errors[None]).abs().sum((0, 1))
    assert torch.allclose(crps(errors), errors.abs().mean(0) - gaps / (2 * count * (count - 1)))
    assert torch.allclose(crps(errors, fair=False), errors.abs().mean(0) - gaps / (2 * count**2))
    assert torch.allclose(crps(scale * errors.flip(0)), scale * crps(errors))


def test_equal_members_score_their_absolute_error_and_one_has_no_fair_score():
    errors = torch.randn(1, 4, 3, generator=seeded())
    assert torch.allclose(crps(errors.expand(5, -1, -1)), errors[0].abs(), atol=1e-6)
    assert torch.equal(crps(errors, fair=False), errors[0].abs())
    with pytest.raises(ValueError, match="at least 2 members"):
        crps(errors)


def test_per_pair_the_error_is_the_mean_norm_over_the_draws():
    errors = torch.randn(3, 4, 1, 8, generator=seeded())
    assert torch.allclose(pair_scores(errors), torch.stack([error_norm(e) for e in errors]).mean(0))
    assert pair_scores(errors, "crps").shape == (4,)


def test_where_the_answer_is_a_distribution_the_crps_pays_for_refining_and_the_error_does_not():
    """y = x + 0.5 ε: the least error is that of the mean, and the least CRPS that of the posterior, 0.5/√π."""
    oracle, levels = GaussianOracle(0.5), log_uniform(7, 0.05, 0.999)
    x, y = oracle.pairs((256, 1, 16), seeded())
    told = {"draws": 4, "generator": seeded(1)}
    by_error = optimal_schedules(oracle, x, y, levels, 5, **told)
    by_crps = optimal_schedules(oracle, x, y, levels, 5, **told, score="crps")
    assert len(at_most(by_error, 5)[0]) == 1
    ladder, found = at_most(by_crps, 5)
    assert len(ladder) > 1
    assert found.mean < 0.9 * by_crps[1][1].mean
    assert found.mean > 0.5 / math.sqrt(math.pi) - 4 * found.stderr  # no forecast is better than the truth's own
    fresh = pair_errors(oracle, x, y, ladder, score="crps")
    assert fresh.mean().item() == pytest.approx(found.mean, rel=0.1)
