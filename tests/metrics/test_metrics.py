"""Scores are what their formulas say, and say when a rollout broke."""

import math
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from draws import GRIDS, draw, quiet_fsd
from hypothesis import given, settings
from hypothesis import strategies as st

from biasbound import metrics

ROOT = Path(__file__).parents[2]


# --- laws that hold for equal arrays


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_perfect_prediction_has_perfect_scores(grid, dtype):
    truth = draw(5, 4, 2, *grid, dtype=dtype)
    assert metrics.mse(truth, truth) == metrics.mse_at(truth, truth, 4) == 0
    assert bool((metrics.vrmse_frames(truth, truth) == 0).all())
    assert bool((metrics.correlation_frames(truth, truth) == 1).all())
    time = metrics.correlation_time(truth, truth, 0.5)
    assert (time.mean, time.worst, time.best, time.cap) == (2.0, 2.0, 2.0, 2.0)
    assert time.never_failed == 5
    assert quiet_fsd(truth, truth) <= 1e-8
    assert quiet_fsd(truth, truth, variant="authors") <= 1e-5  # its root keeps half of the digits
    assert not metrics.broken(truth).any()
    assert not metrics.escaped(truth, truth).any()


def test_both_libraries_give_the_same_numbers():
    pred, truth = draw(4, 3, 2, 8, 6), draw(4, 3, 2, 8, 6, seed=1)
    for score in (metrics.mse_frames, metrics.vrmse_frames, metrics.correlation_frames):
        assert torch.equal(score(pred, truth), score(pred.numpy(), truth.numpy()))
    assert quiet_fsd(pred, truth) == quiet_fsd(pred.numpy(), truth.numpy())


@settings(max_examples=10)
@given(seed=st.integers(0, 1000))
def test_the_order_of_trajectories_changes_no_mean(seed):
    pred, truth = draw(6, 3, 1, 12, seed=seed), draw(6, 3, 1, 12, seed=seed + 1)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    other = pred[order], truth[order]
    assert math.isclose(metrics.mse(pred, truth), metrics.mse(*other), rel_tol=1e-12)
    a, b = metrics.correlation_time(pred, truth, 1.0), metrics.correlation_time(*other, 1.0)
    assert math.isclose(a.mean, b.mean)
    assert (a.worst, a.best) == (b.worst, b.best)
    assert math.isclose(quiet_fsd(pred, truth), quiet_fsd(*other), rel_tol=1e-9, abs_tol=1e-9)


# --- errors


def test_the_step_counts_from_one():
    truth = torch.zeros(3, 12, 1, 4)
    pred = truth + torch.arange(1.0, 13).reshape(1, 12, 1, 1)
    assert [metrics.mse_at(pred, truth, k) for k in (1, 10, 12)] == [1, 100, 144]
    assert metrics.mse_at(pred, truth, 2, scale=[2.0]) == 1
    for step in (0, 13, -1):
        with pytest.raises(ValueError, match=r"frames 1 … 12"):
            metrics.mse_at(pred, truth, step)


def test_vrmse_of_the_true_mean_is_one_and_eps_is_in_the_denominator():
    truth = draw(3, 2, 2, 32)
    mean = truth.mean(-1, keepdim=True).expand_as(truth)
    assert torch.allclose(metrics.vrmse_frames(mean, truth), torch.ones(3, 2, dtype=torch.float64), atol=1e-6)
    flat = torch.zeros(1, 1, 1, 8)
    assert math.isclose(metrics.vrmse_frames(flat + 1, flat).item(), metrics.VRMSE_EPS**-0.5)
    assert metrics.vrmse_frames(flat + 1, flat, eps=0.25).item() == 2


def test_nrmse_knows_no_units_and_is_that_of_exponax():
    truth, gap = draw(3, 2, 2, 32), draw(3, 2, 2, 32, seed=1)
    assert torch.allclose(metrics.nrmse_frames(0 * truth, truth), torch.ones(3, 2, dtype=torch.float64))
    scale = torch.tensor([2.0, 0.1])[:, None]
    found = metrics.nrmse_frames(truth + gap, truth)
    assert torch.allclose(found, metrics.nrmse_frames(scale * (truth + gap), scale * truth))
    theirs = pytest.importorskip("exponax").metrics.nRMSE
    assert math.isclose(2 * found[1, 0], theirs((truth + gap)[1, 0].numpy(), truth[1, 0].numpy()), rel_tol=1e-5)


def test_arrays_that_do_not_fit_are_refused_in_a_sentence():
    truth = draw(2, 3, 1, 8)
    with pytest.raises(ValueError, match=r"must have the same shape"):
        metrics.mse(truth[:, :2], truth)
    with pytest.raises(ValueError, match=r"\(S, K, C, \*N\)"):
        metrics.mse(truth[0], truth[0])
    with pytest.raises(ValueError, match=r"nothing to score"):
        metrics.mse(truth[:0], truth[:0])
    with pytest.raises(ValueError, match=r"scale needs one positive number"):
        metrics.mse(truth, truth, scale=[1.0, 2.0])
    bad = truth.clone()
    bad[1, 2] = torch.nan
    for score in (metrics.mse, metrics.correlation_frames, quiet_fsd):
        with pytest.raises(ValueError, match=r"truth of trajectory 1 is not finite"):
            score(truth, bad)


# --- correlation


@given(scale=st.floats(1e-12, 1e12), shift=st.floats(-10, 10), seed=st.integers(0, 1000), grid=st.sampled_from(GRIDS))
def test_correlation_does_not_see_scale_and_shift(scale, shift, seed, grid):
    pred, truth = draw(2, 2, 1, *grid, seed=seed), draw(2, 2, 1, *grid, seed=seed + 1)
    plain = metrics.correlation_frames(pred, truth)
    assert torch.allclose(metrics.correlation_frames(scale * (pred + shift), truth), plain, atol=1e-9)
    assert torch.allclose(metrics.correlation_frames(-pred, truth), -plain, atol=1e-12)


def test_correlation_is_numpys():
    pred, truth = draw(3, 2, 2, 5, 7), draw(3, 2, 2, 5, 7, seed=1)
    found = metrics.correlation_frames(pred, truth)
    for s in range(3):
        for k in range(2):
            expected = np.corrcoef(pred[s, k].flatten(), truth[s, k].flatten())[0, 1]
            assert math.isclose(found[s, k], expected, abs_tol=1e-12)


def test_a_constant_correlates_with_nothing_but_itself():
    truth = draw(1, 1, 1, 9)
    flat = torch.full_like(truth, 0.1)
    assert metrics.correlation_frames(flat, truth).item() == 0
    assert metrics.correlation_frames(truth, flat).item() == 0
    assert metrics.correlation_frames(flat, flat).item() == 1


def fading(steps, frames=10, seed=0):
    """A truth, and predictions whose correlation with it is −1 at frame `steps[s]` (0: never)."""
    truth = draw(len(steps), frames, 1, 16, seed=seed)
    pred = truth.clone()
    for s, k in enumerate(steps):
        if k:
            pred[s, k - 1] *= -1  # later frames are perfect again, which must not count
    return pred, truth


def test_correlation_time_is_that_of_the_first_frame_below():
    pred, truth = fading([3, 1, 0, 10])
    time = metrics.correlation_time(pred, truth, 0.5)
    assert time.per_trajectory == (1.5, 0.5, 5.0, 5.0)
    assert time.never_failed == 1  # the one that failed at the last frame has the same time, and failed
    assert time.mean == 3.0
    assert (time.worst, time.best, time.cap) == (0.5, 5.0, 5.0)
    assert time.low <= time.mean <= time.high


def test_worst_and_best_are_tenths_rounded_down_and_at_least_one():
    times = torch.arange(1.0, 26, dtype=torch.float64)[None]
    assert metrics.share(times, 0.1).item() == 1.5
    assert metrics.share(times, -0.1).item() == 24.5
    assert metrics.share(times[:, :4], 0.1).item() == 1


def test_a_time_needs_a_threshold_that_broken_frames_fail():
    truth = draw(2, 2, 1, 8)
    for bad in (0.0, -0.5, 1.5):
        with pytest.raises(ValueError, match=r"threshold"):
            metrics.correlation_time(truth, truth, 1.0, bad)


# --- broken rollouts


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("grid", [(16,), (8, 6)])
def test_a_break_at_a_known_step_shows_in_every_score(value, grid):
    truth = draw(12, 6, 2, *grid)
    pred = truth + 0.01 * draw(12, 6, 2, *grid, seed=1)
    pred[2, 3].view(-1)[5] = value  # frame 4; the later frames are finite again
    assert metrics.broken(pred).tolist() == [0, 0, 4] + [0] * 9
    assert metrics.escaped(pred, truth).tolist() == [0, 0, 4] + [0] * 9

    for frames in (metrics.mse_frames(pred, truth), metrics.vrmse_frames(pred, truth)):
        assert frames[2].isinf().tolist() == [False] * 3 + [True] * 3
        assert int(frames.isinf().sum()) == 3
    assert math.isfinite(metrics.mse_at(pred, truth, 3))
    assert metrics.mse_at(pred, truth, 4) == metrics.mse_at(pred, truth, 6) == math.inf
    assert metrics.mse(pred, truth) == math.inf

    correlation = metrics.correlation_frames(pred, truth)
    assert (correlation[2] == 0).tolist() == [False] * 3 + [True] * 3
    time = metrics.correlation_time(pred, truth, 1.0)
    assert time.per_trajectory == (6.0, 6.0, 4.0) + (6.0,) * 9
    assert (time.worst, time.never_failed) == (4.0, 11)
    if len(grid) == 2:
        spun = metrics.correlation_time(pred, truth, 1.0, of=metrics.vorticity)
        assert spun.per_trajectory[2] == 4.0

    for variant in ("centred", "authors"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", metrics.FewSamples)
            curve = metrics.fsd_curve(pred, truth, variant)
        assert curve.isinf().tolist() == [False] * 3 + [True] * 3

    members = torch.stack([truth + 0.1, pred, truth - 0.1])
    assert metrics.crps_frames(members, truth)[2].isinf().tolist() == [False] * 3 + [True] * 3
    assert metrics.spread_skill(members, truth).isnan().tolist() == [False] * 3 + [True] * 3
    ranks = metrics.rank_histogram(members, truth)
    assert ranks.left_out == 3
    assert sum(ranks.counts) == truth.numel() * (12 * 6 - 3) // (12 * 6)

    energy = metrics.energy_spectrum(pred, len(grid))
    lost = energy.isnan().all(-1)
    assert lost.nonzero().tolist() == [[2, 3]]
    assert not energy[~lost].isnan().any()
    probe = tuple(int(i) for i in (~pred[2, 3, 0].isfinite()).nonzero()[0])
    _, power = metrics.temporal_spectrum(pred, [probe], 1.0)
    assert power[2, 0, 0].isnan().all()
    assert int(power.isnan().any(-1).sum()) == 1


def test_an_absurd_state_is_counted_and_scored_as_it_is():
    truth = draw(3, 4, 1, 8, dtype=torch.float32)
    pred = truth.clone()
    pred[1, 2:] = 3e38
    assert not metrics.broken(pred).any()
    assert metrics.escaped(pred, truth).tolist() == [0, 3, 0]
    assert math.isclose(metrics.mse_frames(pred, truth)[1, 2], 9e76, rel_tol=1e-6)
    assert math.isfinite(quiet_fsd(pred, truth))
    with pytest.raises(ValueError, match=r"positive"):
        metrics.escaped(pred, truth, 0.0)


# --- intervals


def test_a_bootstrap_interval_covers_the_mean_as_often_as_it_says():
    values = draw(300, 40) ** 2  # χ²(1): mean 1, skewed
    found = [metrics.bootstrap(row, draws=400, seed=i) for i, row in enumerate(values)]
    covered = sum(i.low <= 1 <= i.high for i in found) / len(found)
    assert 0.85 < covered < 0.98
    narrow = [metrics.bootstrap(row, draws=400, level=0.5, seed=1) for row in values]
    assert 0.4 < sum(i.low <= 1 <= i.high for i in narrow) / len(narrow) < 0.6


def test_a_bootstrap_depends_on_its_seed_alone():
    values = draw(20)
    assert metrics.bootstrap(values, seed=3) == metrics.bootstrap(values, seed=3)
    assert metrics.bootstrap(values, seed=3) != metrics.bootstrap(values, seed=4)


@pytest.mark.parametrize("values", [[1.0], [1.0, math.inf, 2.0], [1.0, math.nan]])
def test_one_or_broken_trajectories_have_no_interval(values):
    found = metrics.bootstrap(torch.tensor(values, dtype=torch.float64))
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert math.isfinite(found.mean) == (len(values) == 1)
    with pytest.raises(ValueError, match=r"no trajectory"):
        metrics.bootstrap(torch.zeros(0))


# --- the page about them


def test_the_programs_of_the_metrics_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "metrics.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(programs) == 4
    try:
        for program in programs:
            exec(compile(program, "docs/metrics.md", "exec"), {})  # noqa: S102
    finally:
        metrics.METRICS.pop("energy_error", None)  # the page registers it
    said = capsys.readouterr().out
    assert "my-model" in said
    assert "energy_error" in said


def test_the_metrics_page_names_every_metric():
    text = (ROOT / "docs" / "metrics.md").read_text()
    functions = {n for n in metrics.__all__ if n[0].islower()} - {"share", "shells"}
    for name in (*functions, *metrics.METRICS):
        assert f"`{name}`" in text, name
