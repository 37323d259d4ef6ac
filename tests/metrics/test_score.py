"""A rollout becomes rows: what the metrics say, breaks, and metrics of others."""

import math
import warnings

import pytest
import torch

from biasbound import metrics
from biasbound.data.layout import Layout
from biasbound.metrics import METRICS, Result, Scene
from biasbound.metrics.rows import About, read_rows, select, write_rows
from biasbound.metrics.score import score, score_steps

ABOUT = About("toy", "me", seed=4, nfe=5, updates=7, seconds=1.5)


def scored(prediction, truth, **facts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", metrics.FewSamples)
        return score(Scene(prediction, truth, dt=0.5, **facts), ABOUT)


def value(rows, metric, step=None):
    (row,) = select(rows, metric=metric, step=step)
    return row.value


def example(members=3, grid=(8, 6), seed=0):
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(6, 12, 2, *grid, generator=generator)
    noise = torch.randn(members, *truth.shape, generator=generator)
    growth = torch.linspace(0.1, 3, 12).reshape(12, 1, *[1] * len(grid))
    return truth + growth * noise, truth


def test_rows_hold_what_the_metrics_say():
    prediction, truth = example()
    one = prediction[0]
    found = scored(prediction, truth, spread=[2.0, 3.0], correlate="vorticity")
    assert {(r.dataset, r.method, r.seed, r.nfe, r.updates, r.seconds) for r in found} == {("toy", "me", 4, 5, 7, 1.5)}
    for step in (1, 10, 12):
        assert math.isclose(value(found, "mse", step), metrics.mse_at(one, truth, step))
        norm = metrics.mse_at(one, truth, step, [2.0, 3.0])
        assert math.isclose(value(found, "mse_norm", step), norm)
        vrmse = metrics.vrmse_frames(one, truth)[:, step - 1].mean()
        assert math.isclose(value(found, "vrmse", step), vrmse)
        crps = metrics.crps_frames(prediction, truth)[:, step - 1].mean()
        assert math.isclose(value(found, "crps", step), crps)
        ratio = metrics.spread_skill(prediction, truth)[step - 1]
        assert math.isclose(value(found, "spread_skill", step), ratio)
    assert math.isclose(value(found, "mse_mean"), metrics.mse(one, truth))
    time = metrics.correlation_time(one, truth, 0.5, of=metrics.vorticity)
    assert value(found, "correlation_time") == time.mean
    assert value(found, "correlation_time_worst") == time.worst
    assert value(found, "correlation_time_best") == time.best
    assert value(found, "never_failed") == time.never_failed
    with pytest.warns(metrics.FewSamples):
        assert value(found, "fsd", 12) == metrics.fsd(one, truth)
    with pytest.warns(metrics.FewSamples):
        assert value(found, "fsd_legacy", 12) == metrics.fsd(one, truth, variant="authors")
    assert value(found, "broken") == value(found, "broken_members") == value(found, "escaped") == 0
    for row in found:
        if row.metric.startswith(("mse", "vrmse", "crps", "spread", "correlation")):
            assert row.low <= row.value <= row.high, row


def test_single_scores_are_of_the_first_member():
    prediction, truth = example()
    alone = scored(prediction[:1], truth)
    many = scored(prediction, truth)
    assert {r.metric for r in many} - {r.metric for r in alone} == {
        "crps",
        "ensemble_mse",
        "spread_skill",
        "rank",
        "rank_distance",
        "broken_members",
    }
    assert [r for r in many if r.metric in {a.metric for a in alone}] == alone


def test_a_break_leaves_nulls_and_the_count(tmp_path):
    prediction, truth = example()
    prediction[0, 2, 6] = torch.nan
    prediction[1, 3, 0] = torch.inf
    found = scored(prediction, truth, spread=[1.0, 1.0])
    assert value(found, "broken") == 1
    assert value(found, "broken_step") == 7
    assert value(found, "broken_members") == 2
    lost = {(r.metric, r.step) for r in found if r.value is None}
    expected = {(m, s) for m in ("mse", "mse_norm", "vrmse", "fsd", "fsd_legacy") for s in (10, 12)}
    expected |= {(f"energy_{band}", s) for band in metrics.BANDS for s in (10, 12)}
    expected |= {(m, s) for m in ("crps", "ensemble_mse", "spread_skill") for s in (1, 10, 12)}
    expected |= {("nrmse_gmean", 12)}
    expected |= {(m, None) for m in ("mse_mean", "mse_norm_mean", "vrmse_mean")}
    assert lost == expected
    write_rows(tmp_path / "rows.jsonl", found)
    assert read_rows(tmp_path / "rows.jsonl") == found


def test_the_geometric_mean_is_over_a_hundred_steps_of_the_mean_over_trajectories():
    truth = torch.ones(2, 120, 1, 4)
    growing = 1 + 1.1 ** torch.arange(120.0).reshape(120, 1, 1)
    prediction = torch.stack([growing * truth[0], truth[1]])
    found = value(scored(prediction[None], truth), "nrmse_gmean", 100)
    assert math.isclose(found, 0.5 * 1.1 ** (99 / 2), rel_tol=1e-4)  # half of it, because one of two is perfect
    assert not select(scored(prediction[None], 0 * truth), metric="nrmse_gmean")


def test_short_rollouts_and_single_trajectories_are_scored():
    prediction, truth = example(members=1, grid=(16,))
    assert {r.step for r in scored(prediction[:, :, :3], truth[:, :3])} == {1, 3, None}
    one = scored(prediction[:, :1], truth[:1])
    assert not select(one, metric="fsd")
    assert all(r.low is None for r in one)
    perfect = scored(truth[None].repeat(2, 1, 1, 1, 1), truth)
    assert not select(perfect, metric="spread_skill")  # neither spread nor error: no ratio
    assert all(r.value is not None for r in perfect)


def test_what_does_not_fit_is_refused_in_a_sentence():
    prediction, truth = example()
    with pytest.raises(ValueError, match=r"members first"):
        scored(truth, truth)
    with pytest.raises(ValueError, match=r"nothing to score"):
        scored(prediction[:0], truth)
    with pytest.raises(ValueError, match=r"step 13"):
        scored(prediction, truth, steps=(1, 13))
    with pytest.raises(ValueError, match=r"spacing needs one entry for each of 2 axes"):
        scored(prediction, truth, spacing=(0.5,))
    with pytest.raises(ValueError, match=r"field or vorticity"):
        scored(prediction, truth, correlate="pressure")
    with pytest.raises(ValueError, match=r"metric 'correlation_time': .*needs a velocity"):
        scored(prediction[:, :, :, :1], truth[:, :, :1], correlate="vorticity")


def test_single_steps_have_the_mean_error_of_all_states():
    prediction, truth = example(members=1)
    raw, norm = score_steps(prediction[0], truth, ABOUT, [2.0, 2.0])
    assert (raw.metric, norm.metric, raw.step) == ("one_step_mse", "one_step_mse_norm", 1)
    assert math.isclose(raw.value, metrics.mse(prediction[0], truth))
    assert math.isclose(norm.value, raw.value / 4)
    assert score_steps(prediction[0], truth, ABOUT) == [raw]


# --- the grid


def test_a_scene_has_the_grid_of_its_layout():
    prediction, truth = example()
    layout = Layout(
        name="flow",
        trajectories=6,
        frames=13,
        channels=("u", "v"),
        grid=(8, 6),
        dt=0.5,
        domain=((0.0, 2.0), (0.0, 3.0)),
        boundary=("periodic", "wall"),
    )
    scene = Scene.on(layout, prediction, truth, steps=[5, 2, 5])
    assert (scene.dt, scene.spacing, scene.periodic) == (0.5, (0.25, 0.5), (True, False))
    assert (scene.steps, scene.correlate) == ((2, 5), "vorticity")
    assert Scene.on(layout, prediction, truth, correlate="field").correlate == "field"


def test_what_a_scene_is_not_told_is_filled_in():
    prediction, truth = example()
    scene = Scene(prediction, truth, dt=0.5)
    assert (scene.spacing, scene.periodic) == ((1.0, 1.0), (True, True))
    assert (scene.steps, scene.frames) == ((1, 10, 12), 12)
    assert torch.equal(scene.first, prediction[0])


# --- metrics of others


def test_a_metric_of_ones_own_has_a_row_and_changes_no_other(monkeypatch):
    def energy_error(scene):
        if scene.truth.shape[2] != 2:  # of velocities only
            return
        made, true = ((x[:, -1] ** 2).mean() for x in (scene.first, scene.truth))
        yield Result("energy_error", made - true, step=scene.frames)

    prediction, truth = example(grid=(16,))
    before = scored(prediction, truth)
    monkeypatch.setitem(METRICS, "energy", energy_error)
    *others, own = scored(prediction, truth)
    assert others == before
    assert (own.metric, own.step, own.unit) == ("energy_error", 12, ("toy", "me", 4))
    expected = (prediction[0, :, -1] ** 2).mean() - (truth[:, -1] ** 2).mean()
    assert own.value == float(expected)
    scalar = scored(prediction[:, :, :, :1], truth[:, :, :1])
    assert not select(scalar, metric="energy_error")


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        ([Result("mse", 1.0, 10)], r"metric 'mine' yields mse at step 10, which is there already"),
        ([Result("own", 1.0), Result("own", 2.0)], r"'mine' yields own, which is there already"),
        ([1.0], r"metric 'mine': it must yield Results, not float"),
    ],
)
def test_results_that_cannot_be_rows_are_refused(monkeypatch, results, reason):
    monkeypatch.setitem(METRICS, "mine", lambda scene: results)
    with pytest.raises(ValueError, match=reason):
        scored(*example(members=1, grid=(8,)))
