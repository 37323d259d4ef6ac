"""Rollouts that others wrote are scored like their arrays, or refused."""

import math
import warnings

import numpy as np
import pytest

from biasbound import metrics
from biasbound.data.formats import load, save
from biasbound.data.trajectories import Trajectories
from biasbound.metrics import Scene
from biasbound.metrics.files import open_scene
from biasbound.metrics.rows import About, select
from biasbound.metrics.score import score


@pytest.fixture
def files(tmp_path):
    """A truth of 7 trajectories and 13 frames, and a function that writes a prediction of it."""
    generator = np.random.default_rng(0)
    fields = generator.standard_normal((7, 13, 2, 8, 6)).astype(np.float32)
    flow = Trajectories.from_array(
        fields, dt=0.5, name="flow", domain=((0.0, 2.0), (0.0, 1.0)), boundary=("periodic", "wall")
    )
    save(flow, tmp_path / "test.h5")

    def write(array):
        np.save(tmp_path / "prediction.npy", array)
        return tmp_path / "prediction.npy"

    return fields, load(tmp_path / "test.h5"), write


def scored(scene):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", metrics.FewSamples)
        return score(scene, About("flow", "me"))


def value(rows, metric):
    (row,) = select(rows, metric=metric, step=None)
    return row.value


def test_a_foreign_rollout_is_scored_like_its_arrays(files):
    fields, truth, write = files
    noise = np.random.default_rng(1).standard_normal((3, *fields.shape)).astype(np.float32)
    every = fields + 0.1 * noise
    every[:, :, 0] = fields[:, 0]
    members = every[:, :5, 1:11]
    scene = Scene(
        members,
        fields[:5, 1:11],
        dt=0.5,
        spacing=(0.25, 1 / 6),
        periodic=(True, False),
        spread=fields.std((0, 1, 3, 4), dtype=np.float64),
        correlate="vorticity",
    )
    found = scored(open_scene(write(members), truth, train=truth))
    for a, b in zip(found, scored(scene), strict=True):
        assert (a.metric, a.step) == (b.metric, b.step)
        assert math.isclose(a.value, b.value, rel_tol=1e-6), a.metric
    whole = open_scene(write(every[:, :5, :11]), truth, train=truth, initial=True)
    assert scored(whole) == found
    alone = scored(open_scene(write(members[0]), truth, train=truth))
    assert alone == [r for r in found if r.metric in {a.metric for a in alone}]
    assert open_scene(write(members), truth).spread is None


def test_the_truth_may_be_strided(files):
    fields, truth, write = files
    thin = fields[:, ::3, :, ::2, ::2]
    found = scored(open_scene(write(thin[:, 1:]), truth.stride(time=3, space=2)))
    assert value(found, "mse_mean") == 0
    assert value(found, "correlation_time") == 4 * 1.5


def test_frames_off_by_one_are_noticed(files):
    fields, truth, write = files
    with pytest.raises(ValueError, match=r"first frame .* is the initial state .* initial=True"):
        open_scene(write(fields[:, :-1]), truth)
    with pytest.raises(ValueError, match=r"first frame .* is not the initial state"):
        open_scene(write(fields[:, 1:]), truth, initial=True)
    persistence = np.repeat(fields[:, :1], 12, axis=1)
    assert open_scene(write(persistence), truth).frames == 12


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (np.s_[0, 0], r"give it \(S, K, C, \*N\)"),
        (np.s_[:, 1:, :1], r"states \(1, 8, 6\)"),
        (np.s_[:, 1:, :, ::2], r"channels and stride"),
        (np.s_[:0, 1:], r"has 0 trajectories"),
        (np.s_[:, :0], r"has 0 frames; it needs 1 … 12 without"),
        (np.s_[:], r"has 13 frames; it needs 1 … 12 without"),
    ],
)
def test_a_foreign_rollout_that_does_not_fit_is_refused(files, part, reason):
    fields, truth, write = files
    with pytest.raises(ValueError, match=reason) as error:
        open_scene(write(fields[part]), truth)
    assert "prediction.npy" in str(error.value)


def test_nothing_foreign_is_unpickled(files, tmp_path):
    fields, truth, write = files
    for array, reason in [
        (np.array([{"a": 1}], dtype=object), r"Object arrays cannot be loaded|object"),
        (fields[:, 1:].astype(np.int64), r"holds int64"),
    ]:
        with pytest.raises(ValueError, match=reason):
            open_scene(write(array), truth)
    np.savez(tmp_path / "archive.npz", fields)
    with pytest.raises(ValueError, match=r"archive.npz cannot be read as a .npy array"):
        open_scene(tmp_path / "archive.npz", truth)
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(ValueError, match=r"cannot be read as a \.npy array"):
        open_scene(tmp_path / "text.npy", truth)
    with pytest.raises(ValueError, match=r"none\.npy"):
        open_scene(tmp_path / "none.npy", truth)
