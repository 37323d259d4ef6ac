"""A rollout becomes rows: what the metrics say, breaks, and rollouts of others."""

import math
import warnings

import numpy as np
import pytest
import torch

from biasbound import metrics
from biasbound.data.formats import save
from biasbound.data.trajectories import Trajectories
from biasbound.metrics.rows import read_rows, select, write_rows
from biasbound.metrics.score import score, score_file

# --- scores of arrays


def scored(prediction, truth, **facts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", metrics.FewSamples)
        return score(prediction, truth, dt=0.5, dataset="toy", method="me", **facts)


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
    found = scored(
        prediction,
        truth,
        seed=4,
        spread=[2.0, 3.0],
        correlate="vorticity",
        nfe=5,
        updates=7,
        seconds=1.5,
    )
    assert {(r.dataset, r.method, r.seed, r.nfe, r.updates, r.seconds) for r in found} == {
        ("toy", "me", 4, 5, 7, 1.5)
    }
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
        "spread_skill",
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
    expected = {
        (m, s) for m in ("mse", "mse_norm", "vrmse", "fsd", "fsd_legacy") for s in (10, 12)
    }
    expected |= {(m, s) for m in ("crps", "spread_skill") for s in (1, 10, 12)}
    expected |= {(m, None) for m in ("mse_mean", "mse_norm_mean", "vrmse_mean")}
    assert lost == expected
    write_rows(tmp_path / "rows.jsonl", found)
    assert read_rows(tmp_path / "rows.jsonl") == found


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
    with pytest.raises(ValueError, match=r"step 13"):
        scored(prediction, truth, steps=(1, 13))
    with pytest.raises(ValueError, match=r"field or vorticity"):
        scored(prediction, truth, correlate="pressure")
    with pytest.raises(ValueError, match=r"needs a velocity"):
        scored(prediction[:, :, :, :1], truth[:, :, :1], correlate="vorticity")


# --- scores of files


@pytest.fixture
def files(tmp_path):
    """A truth of 7 trajectories and 13 frames, and a function that writes a prediction of it."""
    generator = np.random.default_rng(0)
    truth = generator.standard_normal((7, 13, 2, 8, 6)).astype(np.float32)
    flow = Trajectories.from_array(
        truth, dt=0.5, name="flow", domain=((0.0, 2.0), (0.0, 1.0)), boundary=("periodic", "wall")
    )
    save(flow, tmp_path / "test.h5")

    def write(array):
        np.save(tmp_path / "prediction.npy", array)
        return tmp_path / "prediction.npy"

    return truth, tmp_path / "test.h5", write


def quietly(*args, **facts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", metrics.FewSamples)
        return score_file(*args, method="me", **facts)


def test_a_foreign_rollout_is_scored_like_its_arrays(files):
    truth, path, write = files
    noise = np.random.default_rng(1).standard_normal((3, *truth.shape)).astype(np.float32)
    every = truth + 0.1 * noise
    every[:, :, 0] = truth[:, 0]
    members = every[:, :5, 1:11]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", metrics.FewSamples)
        expected = score(
            members, truth[:5, 1:11], dt=0.5, dataset="flow", method="me", spread=truth.std((0, 1, 3, 4), dtype=np.float64),
            periodic=(True, False), spacing=(0.25, 1 / 6), correlate="vorticity",
        )  # fmt: skip
    found = quietly(write(members), path, train=path)
    for a, b in zip(found, expected, strict=True):
        assert (a.metric, a.step) == (b.metric, b.step)
        assert math.isclose(a.value, b.value, rel_tol=1e-6), a.metric
    assert quietly(write(every[:, :5, :11]), path, initial=True, train=path) == found
    alone = quietly(write(members[0]), path, train=path)
    assert alone == [r for r in found if r.metric in {a.metric for a in alone}]
    assert not [r for r in quietly(write(members), path) if r.metric.startswith("mse_norm")]


def test_the_truth_may_be_strided(files):
    truth, path, write = files
    thin = truth[:, ::3, :, ::2, ::2]
    found = quietly(write(thin[:, 1:]), path, time=3, space=2)
    assert value(found, "mse_mean") == 0
    assert value(found, "correlation_time") == 4 * 1.5


def test_frames_off_by_one_are_noticed(files):
    truth, path, write = files
    with pytest.raises(ValueError, match=r"first frame is the initial state .* say initial=True"):
        quietly(write(truth[:, :-1]), path)
    with pytest.raises(ValueError, match=r"first frame is not the initial state"):
        quietly(write(truth[:, 1:]), path, initial=True)
    persistence = np.repeat(truth[:, :1], 12, axis=1)
    assert value(quietly(write(persistence), path), "broken") == 0


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (np.s_[0, 0], r"expected \(S, K, C, \*N\)"),
        (np.s_[:, 1:, :1], r"states \(1, 8, 6\)"),
        (np.s_[:, 1:, :, ::2], r"is there a stride"),
        (np.s_[:0, 1:], r"found 0 trajectories"),
        (np.s_[:, :0], r"found 0 frames, expected 1 … 12 without"),
        (np.s_[:], r"found 13 frames, expected 1 … 12 without"),
    ],
)
def test_a_foreign_rollout_that_does_not_fit_is_refused(files, part, reason):
    truth, path, write = files
    with pytest.raises(ValueError, match=reason) as error:
        quietly(write(truth[part]), path)
    assert "prediction.npy" in str(error.value)


def test_nothing_foreign_is_unpickled(files, tmp_path):
    truth, path, write = files
    for array, reason in [
        (np.array([{"a": 1}], dtype=object), r"Object arrays cannot be loaded|object"),
        (truth[:, 1:].astype(np.int64), r"found int64"),
    ]:
        with pytest.raises(ValueError, match=reason):
            quietly(write(array), path)
    np.savez(tmp_path / "archive.npz", truth)
    with pytest.raises(ValueError, match=r"an archive"):
        quietly(tmp_path / "archive.npz", path)
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(ValueError, match=r"expected a \.npy array"):
        quietly(tmp_path / "text.npy", path)
    with pytest.raises(ValueError, match=r"none\.npy"):
        quietly(tmp_path / "none.npy", path)
