"""Scores of ensembles against another library, and for exchangeable members."""

import numpy as np
import pytest
import torch
from draws import draw
from hypothesis import given
from hypothesis import strategies as st

from biasbound import metrics
from biasbound.metrics.rows import About
from biasbound.metrics.score import score


@pytest.mark.long
@given(seed=st.integers(0, 1000), members=st.integers(2, 6), fair=st.booleans())
def test_crps_is_that_of_scoringrules(seed, members, fair):
    import scoringrules  # takes seconds

    x, y = draw(members, 2, 3, 1, 5, seed=seed), draw(2, 3, 1, 5, seed=seed + 1)
    expected = scoringrules.crps_ensemble(y.numpy(), x.numpy(), m_axis=0, estimator="fair" if fair else "nrg").mean(
        (2, 3)
    )
    assert np.allclose(metrics.crps_frames(x, y, fair), expected, atol=1e-6, rtol=1e-6)
    order = torch.randperm(members, generator=torch.Generator().manual_seed(seed))
    assert torch.allclose(metrics.crps_frames(x[order], y, fair), metrics.crps_frames(x, y, fair))


def test_crps_of_one_member_is_its_absolute_error():
    x, y = draw(1, 2, 2, 1, 5), draw(2, 2, 1, 5, seed=1)
    expected = (x[0] - y).abs().mean((2, 3))
    assert torch.allclose(metrics.crps_frames(x, y, fair=False), expected)
    for of in (metrics.crps_frames, metrics.spread_skill):
        with pytest.raises(ValueError, match=r"at least 2 members"):
            of(x, y)
    with pytest.raises(ValueError, match=r"members first"):
        metrics.crps_frames(y, y)


def test_exchangeable_members_have_spread_equal_to_skill_and_flat_ranks():
    every = draw(5, 8, 2, 1, 3200)
    members, truth = every[:4], every[4]
    assert torch.allclose(
        metrics.spread_skill(members, truth), torch.ones(2, dtype=torch.float64), atol=0.02
    )  # four standard errors: 400 values from a tenth as many points had 1.0007 ± 0.0155
    counts = metrics.rank_histogram(members, truth).counts
    assert sum(counts) == truth.numel()
    expected = truth.numel() / 5
    assert sum((c - expected) ** 2 / expected for c in counts) < 18.5  # χ²(4) at 0.001
    assert metrics.spread_skill(members * 0.5, truth).max() < 0.8  # overconfident


@pytest.mark.filterwarnings("ignore::biasbound.metrics.FewSamples")
def test_a_calibrated_ensemble_has_rows_that_say_so():
    """Truth and members are draws of one Gaussian around the same unknown mean; half the spread is seen as such."""
    every = draw(4, 6, 1, 1, 40, 40, seed=3)[:1] + draw(9, 6, 1, 1, 40, 40)
    members, truth = every[:8], every[8]

    def rows(made):
        return {(r.metric, r.step): r.value for r in score(metrics.Scene(made, truth, dt=1.0), About("toy", "me"))}

    good, sure = rows(members), rows(members.mean(0) + 0.5 * (members - members.mean(0)))
    ranks = [good["rank", r] for r in range(9)]
    assert sum(ranks) == pytest.approx(9)
    assert max(abs(r - 1) for r in ranks) < 0.15
    assert good["rank_distance", None] == pytest.approx(sum(abs(r - 1) for r in ranks) / 18)
    assert good["spread_skill", 1] == pytest.approx(1, abs=0.05)
    assert good["ensemble_mse", 1] == pytest.approx(float((members.mean(0) - truth).square().mean()))
    assert sure["rank_distance", None] > 3 * good["rank_distance", None]
    assert sure["crps", 1] > good["crps", 1]
    assert sure["spread_skill", 1] == pytest.approx(good["spread_skill", 1] / 2)


def test_ties_have_a_random_rank_that_the_seed_decides():
    truth = torch.zeros(3, 4, 1, 500)
    members = torch.zeros(3, *truth.shape)
    found = metrics.rank_histogram(members, truth)
    assert found == metrics.rank_histogram(members, truth)
    assert min(found.counts) > 0.9 * truth.numel() / 4
