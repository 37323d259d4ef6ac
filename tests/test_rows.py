"""Rows survive their file, and a score leaves nothing out."""

import json
import math
import warnings
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from biasbound import metrics
from biasbound.data.formats import save
from biasbound.data.trajectories import Trajectories
from biasbound.rows import Row, over_seeds, read_rows, select, write_rows
from biasbound.score import score, score_file

ROW = Row("ks", "unet", 0, "mse", 10, 0.5, 0.4, 0.6, 1, 100, 2.5)
numbers = st.floats(allow_nan=False, allow_infinity=False)
rows = st.builds(
    Row,
    dataset=st.text(max_size=8),
    method=st.text(max_size=8),
    seed=st.integers(0, 9),
    metric=st.sampled_from(["mse", "broken", "fsd"]),
    step=st.none() | st.integers(0, 99),
    value=numbers,
    low=st.none() | numbers,
    high=st.none() | numbers,
    nfe=st.integers(0, 99),
    updates=st.integers(0, 10**9),
    seconds=numbers,
)


# --- files


@given(st.lists(rows, max_size=6))
def test_rows_come_back_as_they_were(tmp_path_factory, found):
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    write_rows(path, found)
    assert read_rows(path) == found


def test_keys_have_the_order_of_the_fields(tmp_path):
    write_rows(tmp_path / "rows.jsonl", [ROW])
    (line,) = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert list(json.loads(line)) == (
        [
            "dataset",
            "method",
            "seed",
            "metric",
            "step",
            "value",
            "low",
            "high",
            "nfe",
            "updates",
            "seconds",
        ]
    )


def test_a_value_that_is_not_finite_is_null_beside_its_reason(tmp_path):
    path = tmp_path / "rows.jsonl"
    lost = replace(ROW, value=None, low=None, high=None)
    with pytest.raises(ValueError, match=r"mse of unet on ks \(seed 0\) has no value"):
        write_rows(path, [lost, replace(ROW, metric="broken", seed=1)])
    assert not path.exists()
    reason = replace(ROW, metric="broken", step=None, value=2.0)
    write_rows(path, [lost, reason])
    assert '"value": null' in path.read_text()
    assert read_rows(path) == [lost, reason]
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match=r"write None"):
            replace(ROW, value=bad)


def changed(**facts):
    return json.dumps(asdict(ROW) | facts)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", r"found Expecting"),
        ("[1]", r"found a JSON list"),
        (changed(extra=1), r"the unknown extra"),
        (json.dumps({"dataset": "ks"}), r"no high, low, method"),
        (changed(seed="0"), r"seed: '0' where int is expected"),
        (changed(seed=True), r"seed: True"),
        (changed(nfe=1.5), r"nfe: 1.5 where int"),
        (changed(dataset=None), r"dataset: None where str"),
        (changed(value="x"), r"value: 'x' where float \| None"),
        (changed().replace("0.5", "NaN"), r"NaN, which JSON does not have"),
        (changed().replace("0.5", "1e999"), r"value of mse is inf"),
        (changed(value=10**400), r"value: "),
    ],
)
def test_a_broken_line_is_named_in_one_sentence(tmp_path, line, reason):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{changed()}\n\n{line}\n")
    with pytest.raises(ValueError, match=rf"rows\.jsonl, line 3: .*{reason}") as error:
        read_rows(path)
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"none\.jsonl: No such file"):
        read_rows(tmp_path / "none.jsonl")
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"not UTF-8"):
        read_rows(tmp_path / "bytes.jsonl")


def test_whole_numbers_are_read_as_floats(tmp_path):
    (tmp_path / "rows.jsonl").write_text(changed(value=1, seconds=2))
    (row,) = read_rows(tmp_path / "rows.jsonl")
    assert isinstance(row.value, float)
    assert isinstance(row.seconds, float)


# --- selection


def test_selection_is_by_equal_fields():
    every = [ROW, replace(ROW, step=1), replace(ROW, step=None), replace(ROW, method="linear")]
    assert select(every, step=None) == [every[2]]
    assert select(every, method="unet", step=10) == [ROW]
    assert select(every) == every
    with pytest.raises(ValueError, match=r"a row has no stride"):
        select(every, stride=1)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6))
def test_the_mean_over_seeds_is_numpys(values):
    found = over_seeds([replace(ROW, seed=i, value=v) for i, v in enumerate(values)])
    assert math.isclose(found.mean, np.mean(values), rel_tol=1e-9, abs_tol=1e-9)
    spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
    assert math.isclose(found.spread, spread, rel_tol=1e-6, abs_tol=1e-6)
    assert (found.seeds, found.lost) == (len(values), 0)


def test_a_lost_seed_is_not_averaged_away():
    found = over_seeds([ROW, replace(ROW, seed=1, value=None)])
    assert (found.mean, found.seeds, found.lost) == (None, 2, 1)
    assert over_seeds([]) is None
    with pytest.raises(ValueError, match=r"one for each seed"):
        over_seeds([ROW, ROW])


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
