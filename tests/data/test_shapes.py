"""Laws of bare arrays, of splits in time, and of masks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from biasbound._io import plain
from biasbound.data.formats import load, save
from biasbound.data.splits import divided
from biasbound.data.trajectories import Trajectories

FULL = np.random.default_rng(0).normal(size=(3, 6, 2, 5, 4)).astype(np.float32)


@pytest.mark.parametrize(
    ("part", "hints", "shape"),
    [
        (np.s_[:], {}, (3, 6, 2, 5, 4)),
        (np.s_[:, :, 0], {"dims": 2}, (3, 6, 1, 5, 4)),
        (np.s_[0], {"dims": 2, "channels": ["a", "b"]}, (1, 6, 2, 5, 4)),
        (np.s_[0, :, 0], {"domain": [(0, 1), (0, 2)]}, (1, 6, 1, 5, 4)),
        (np.s_[0, :, 0], {"dims": 1}, (6, 5, 1, 4)),
        (np.s_[0, :, :, :, 0], {"channels": ["a", "b"]}, (1, 6, 2, 5)),
        (np.s_[0, :, :, :, 0], {"boundary": ["open"]}, (6, 2, 1, 5)),
        (np.s_[0, :, 0, :, 0], {}, (1, 6, 1, 5)),
        (np.s_[0, :, 0, :, 0], {"channels": ["u"], "domain": [(-1, 1)], "boundary": ["periodic"]}, (1, 6, 1, 5)),
    ],
)
def test_the_axes_of_a_bare_array_are_told_by_its_hints(part, hints, shape):
    t = Trajectories.from_array(FULL[part], dt=0.1, **hints)
    assert t.shape == shape
    assert np.array_equal(t.read(0, len(t)), FULL[part].reshape(shape))


@pytest.mark.parametrize(
    ("part", "hints", "sentence"),
    [
        (np.s_[0, :, 0], {}, r"may be \(S, K, N\) with dims=1 or \(K, N, N\) with dims=2"),
        (np.s_[0, 0, 0, 0], {}, r"expected \(S, K, C, \*N\) or \(K, \*N\)"),
        (np.s_[:], {"dims": 1}, "cannot have 1 space axes"),
        (np.s_[0, :, 0], {"dims": 3}, "cannot have 3 space axes"),
        (np.s_[:], {"dims": 1, "domain": [(0, 1)] * 2}, "dims tells 1 and domain tells 2 space axes"),
        (np.s_[:], {"channels": ["a"]}, "1 names for 2 channels"),
    ],
)
def test_an_ambiguous_array_is_refused_with_what_to_give(part, hints, sentence):
    with pytest.raises(ValueError, match=sentence):
        Trajectories.from_array(FULL[part], dt=0.1, **hints)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(8, 300), st.integers(0, 9), st.sampled_from([(0.7, 0.15, 0.15), (0.5, 0.25, 0.25), (0.6, 0.2, 0.1)])
)
def test_parts_in_time_are_in_order_apart_and_long_enough(frames, gap, fractions):
    t = Trajectories.from_array(np.arange(2.0 * frames).reshape(2, frames, 1, 1), dt=1.0)
    used = frames - 2 * gap
    if used < 1 or min(np.diff([0, *(int(used * f + 1e-9) for f in np.cumsum(fractions))])) < 2:
        with pytest.raises(ValueError, match=r"which needs two|does not fit"):
            t.split_time(*fractions, gap=gap)
        return
    parts = t.split_time(*fractions, gap=gap)
    stretches = [part.read(0, 1)[0, :, 0, 0].astype(int) for part in parts]
    assert stretches[0][0] == 0
    for before, after in pairwise(stretches):
        assert after[0] - before[-1] == gap + 1
    for stretch, fraction in zip(stretches, fractions, strict=True):
        assert len(stretch) >= 2
        assert abs(len(stretch) - fraction * (frames - 2 * gap)) <= 1
    assert stretches[-1][-1] < frames


def test_data_are_divided_by_trajectory_and_one_trajectory_in_time():
    t = Trajectories.from_array(np.arange(4000.0).reshape(20, 200, 1, 1), dt=1.0)
    several, one = divided(t), divided(t.select(3))
    assert [len(part) for part in several.values()] == [16, 2, 2]
    assert str(several["valid"].division) == "by trajectory 0.8/0.1/0.1, seed 0"
    assert [part.layout.frames for part in one.values()] == [137, 29, 30]
    assert str(one["test"].stride(2).division) == "in time 0.7/0.15/0.15, gap 2"
    told = one["test"].division
    assert told.sentence == (
        "The data were divided in time into 70 % train, 15 % valid and 15 % test, with 2 frames left out between parts."
    )
    assert plain(told)["gap"] == 2
    assert t.division is None


@pytest.mark.parametrize("count", range(1, 13))
def test_any_number_of_trajectories_can_be_divided(count):
    t = Trajectories.from_array(np.arange(40.0 * count).reshape(count, 40, 1, 1), dt=1.0)
    parts = divided(t)
    seen = [set(part.read(0, len(part)).ravel()) for part in parts.values()]
    assert len(set().union(*seen)) == sum(map(len, seen))  # no value is in two parts
    assert min(map(len, seen)) > 0
    if count >= 3:
        assert sum(map(len, seen)) == 40 * count
    if 3 <= count < 10:
        assert [len(part) for part in parts.values()] == [count - 2, 1, 1]


def test_first_frames_are_what_a_rollout_starts_from():
    t = Trajectories.from_array(FULL.astype(np.float64), dt=1.0).select([2, 0])
    assert torch.equal(t.first(), torch.from_numpy(FULL[[2, 0], 0]))
    assert torch.equal(t.first(3), torch.from_numpy(FULL[[2, 0], :3]))
    with pytest.raises(ValueError, match="found 6 frames, of which 7"):
        t.first(7)


def masked() -> tuple[Trajectories, np.ndarray]:
    """Fields that are NaN outside a mask."""
    mask = np.random.default_rng(1).random((5, 4)) > 0.3
    fields = np.where(mask, FULL, np.nan).astype(np.float32)
    return Trajectories.from_array(fields, dt=0.1, mask=mask, static={"depth": np.where(mask, 2.0, np.nan)}), mask


def test_masked_points_are_zero_and_count_nowhere():
    t, mask = masked()
    batch = t.condition_on("depth").pairs()[:]
    assert torch.equal(batch.frames[..., ~torch.from_numpy(mask)], torch.zeros(15, 2, 2, int((~mask).sum())))
    assert torch.equal(batch.frames[:, 0], t.pairs()[:].x)
    assert batch.conditions.isfinite().all()
    assert np.array_equal(t.pairs().mask, mask)
    valid = FULL[..., mask].astype(np.float64)  # S, K, C, points
    got = t.condition_on("depth").statistics
    assert got.mean == pytest.approx(valid.mean((0, 1, 3)), rel=1e-9)
    assert got.std == pytest.approx(valid.std((0, 1, 3)), rel=1e-9)
    assert got.increment_std == pytest.approx(np.diff(valid, axis=1).std((0, 1, 3)), rel=1e-9)
    assert got.condition_mean == pytest.approx([2.0])


def test_views_carry_the_mask(tmp_path):
    t, mask = masked()
    view = replace(t, layout=replace(t.layout, boundary=("open",) * 2)).select([1]).stride(2, 2)
    assert np.array_equal(view.mask, mask[::2, ::2])
    assert np.array_equal(view.load().mask, view.mask)
    for name in ("a.h5", "a.npy"):
        save(t, tmp_path / name)
        again = load(tmp_path / name)
        assert np.array_equal(again.mask, mask)
        assert again.statistics.std == pytest.approx(t.statistics.std)


@pytest.mark.parametrize("format", ["lpsda", "sda", "acdm"])
def test_a_format_without_masks_refuses_one(format, tmp_path):
    with pytest.raises(ValueError, match=f"{format} cannot hold a mask; write one of native, numpy, netcdf, zarr"):
        save(masked()[0], tmp_path / "a.h5", format=format)


def test_nan_outside_the_mask_is_still_refused_by_its_place():
    _, mask = masked()
    fields = np.where(mask, FULL, np.nan).astype(np.float32)
    i, j = np.argwhere(mask)[0]
    fields[2, 3, 1, i, j] = np.nan
    with pytest.raises(ValueError, match=r"a\.nc: found nan in trajectory 2, frame 3, channel u1"):
        Trajectories.from_array(fields, dt=0.1, mask=mask, name="a.nc").measure()
    for wrong, sentence in ((mask.T, "of shape"), (np.zeros_like(mask), "without a valid point")):
        with pytest.raises(ValueError, match=f"a mask {sentence}"):
            Trajectories.from_array(fields, dt=0.1, mask=wrong)


def test_missing_values_at_the_same_points_are_recognised_as_a_mask(tmp_path):
    _, mask = masked()
    fields = np.where(mask, FULL, np.nan).astype(np.float32)
    np.save(tmp_path / "a.npy", fields)
    t = load(tmp_path / "a.npy", dt=0.1)
    assert np.array_equal(t.mask, mask)
    assert "a.npy" in t.notes[0]
    assert np.array_equal(t.select(1).stride(2).notes, t.notes)
    for place in ((0, 0, 0), (1, 4, 1)):  # a value that is missing once is no mask
        broken = fields.copy()
        broken[place][mask] = np.nan
        np.save(tmp_path / "b.npy", broken)
        with pytest.raises(ValueError, match=r"b\.npy: found nan in trajectory 0, frame 0, channel u0"):
            load(tmp_path / "b.npy", dt=0.1).measure()
