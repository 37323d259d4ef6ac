"""Laws of the container: views equal slices, windows stay inside, statistics equal their formulas."""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from biasbound.data.batches import Order, permutation
from biasbound.data.formats import load, save
from biasbound.data.join import concatenate
from biasbound.data.layout import Layout
from biasbound.data.statistics import Moments
from biasbound.data.trajectories import Trajectories

SHAPE = (5, 9, 3, 8, 6)


def numbered(shape=SHAPE, **facts) -> Trajectories:
    """Every frame holds 100 s + k, plus small distinct values."""
    s, k, *rest = shape
    frames = 100.0 * np.arange(s)[:, None] + np.arange(k)
    small = np.random.default_rng(0).uniform(0, 0.1, shape)
    fields = (frames.reshape(s, k, *[1] * len(rest)) + small).astype(np.float32)
    return Trajectories.from_array(fields, dt=0.5, **facts)


@pytest.fixture(params=["memory", "contiguous", "chunked"])
def stored(request, tmp_path):
    """The same trajectories in memory, in a native file, and in a compressed file."""
    t = numbered(
        channels=["velocity_x", "density", "velocity_y"],
        parameters={"mach": np.linspace(0.5, 0.9, 5)},
        series={"drag": np.arange(45.0).reshape(5, 9)},
        static={"mask": np.arange(48, dtype=np.float32).reshape(8, 6)},
    )
    if request.param == "memory":
        return t
    save(t, tmp_path / "a.h5")
    if request.param == "chunked":
        compress(tmp_path / "a.h5")
    return load(tmp_path / "a.h5")


def compress(path):
    """Rewrite the fields of a file in small compressed chunks."""
    import h5py

    with h5py.File(path, "r+") as file:
        for name in ("t0_fields/density", "t1_fields/velocity"):
            values, attributes = file[name][:], dict(file[name].attrs)
            del file[name]
            chunks = (1, 4, *values.shape[2:])
            file.create_dataset(name, data=values, chunks=chunks, compression="gzip")
            file[name].attrs.update(attributes)


def whole(t: Trajectories) -> np.ndarray:
    return t.read(0, len(t))


@settings(max_examples=25, deadline=None)
@given(time=st.integers(1, 5), space=st.sampled_from([1, 2]), first=st.integers(0, 3))
def test_views_equal_slices(time, space, first):
    t = numbered(
        static={"mask": np.random.default_rng(1).random((8, 6))}, series={"drag": np.arange(45.0).reshape(5, 9)}
    )
    view = t.select([4, 1, 1], slice(first, None)).stride(time, space)
    expected = whole(t)[[4, 1, 1], first::time, :, ::space, ::space]
    assert np.array_equal(whole(view), expected)
    assert view.shape == expected.shape
    assert view.dt == pytest.approx(0.5 * time)
    assert np.array_equal(view.series["drag"], t.series["drag"][[4, 1, 1], first::time])
    assert np.array_equal(view.static["mask"], t.static["mask"][::space, ::space])
    assert [len(c) for c in view.coordinates] == list(view.layout.grid)


def test_every_storage_reads_the_same(stored):
    t = numbered()
    assert np.array_equal(whole(stored), whole(t))
    view, expected = stored.stride(2, 2), whole(t)[:, ::2, :, ::2, ::2]
    assert np.array_equal(whole(view), expected)
    index = np.array([7, 0, 7, 39, 3])
    assert torch.equal(stored.pairs()[index].frames, t.pairs()[index].frames)


def test_striding_keeps_a_periodic_domain_and_shrinks_an_open_one():
    t = numbered(domain=[(0.0, 4.0), (-1.0, 2.0)], boundary=["periodic", "open"])
    t = replace(t, layout=replace(t.layout, points="ends"))
    thin = Trajectories.open(t.layout, t.reader, name="t").stride(space=2)
    assert thin.layout.domain[0] == (0.0, 4.0)
    assert thin.layout.domain[1] == pytest.approx((-1.0, -1.0 + 4 * 3 / 5))
    assert np.allclose(np.diff(thin.coordinates[0]), 1.0)
    with pytest.raises(ValueError, match="periodic axis of 8 points cannot keep every 3-th"):
        t.stride(space=3)


@pytest.mark.parametrize(("steps", "every"), [(0, 1), (1, 1), (3, 1), (8, 1), (1, 4), (2, 4)])
def test_windows_stay_inside_one_trajectory_and_are_all_there(steps, every):
    windows = numbered().windows(steps, every)
    assert len(windows) == 5 * (9 - steps * every)
    frames = windows[:].frames[:, :, 0, 0, 0].floor()
    assert torch.equal(frames // 100, (frames // 100)[:, :1].expand_as(frames))
    assert torch.equal(frames, frames[:, :1] + every * torch.arange(steps + 1))
    assert len(torch.unique(frames[:, 0])) == len(windows)


def test_pairs_are_consecutive_frames_as_float32():
    t = Trajectories.from_array(whole(numbered()).astype(np.float64), dt=0.5)
    batch = t.pairs()[[0, 8, 39]]
    assert batch.x.dtype == batch.y.dtype == torch.float32
    for row, (s, k) in enumerate([(0, 0), (1, 0), (4, 7)]):
        assert torch.equal(batch.x[row], t[s][k])
        assert torch.equal(batch.y[row], t[s][k + 1])


def test_a_batch_costs_what_it_reads(tmp_path, monkeypatch):
    save(numbered((20, 50, 1, 64)), tmp_path / "a.h5")
    t = load(tmp_path / "a.h5")
    read = []
    plain = os.preadv
    monkeypatch.setattr(os, "preadv", lambda *a: read.append(plain(*a)) or read[-1])
    t.stride(time=4).windows(2)[[0, 17, 100]]
    assert sum(read) == 3 * 3 * 64 * 4


def test_conditions_are_channels_of_x_alone(stored):
    plain, given = stored.pairs(), stored.condition_on("mach", "mask").pairs()
    batch, index = given[[0, 20]], [0, 20]
    assert torch.equal(batch.frames, plain[index].frames)
    assert torch.equal(batch.y, plain[index].y)
    assert torch.equal(batch.x[:, :3], plain[index].x)
    assert batch.x[0, 3].unique().tolist() == [0.5]
    assert batch.x[1, 3].unique().tolist() == pytest.approx([0.7])
    assert torch.equal(batch.x[0, 4], torch.arange(48.0).reshape(8, 6))
    statistics = stored.condition_on("mach").statistics
    assert statistics.condition_mean == pytest.approx([0.7])
    assert statistics.condition_std == pytest.approx([np.std(np.linspace(0.5, 0.9, 5))])
    with pytest.raises(ValueError, match="no parameter or static field 'speed'"):
        stored.condition_on("speed")


def formula(fields: np.ndarray) -> tuple[np.ndarray, ...]:
    wide = np.moveaxis(fields.astype(np.float64), 2, 0).reshape(fields.shape[2], -1)
    step = np.moveaxis(np.diff(fields.astype(np.float64), axis=1), 2, 0)
    step = step.reshape(fields.shape[2], -1)
    return wide.mean(1), wide.std(1), step.mean(1), step.std(1)


@pytest.mark.parametrize("limit", [1, 200, 2000, 1 << 22])
def test_streamed_statistics_equal_the_formula(limit):
    t = numbered()
    fields = whole(t) + 1e4  # a mean far above the spread must not cost precision
    t = Trajectories.from_array(fields, dt=1.0)
    moments = Moments(3)
    for s, k, part in t.pieces(limit):
        assert part.size <= max(limit, 3 * 48)
        moments.add(part, s, k)
    for got, expected in zip(vars(moments.statistics()).values(), formula(fields), strict=False):
        assert got == pytest.approx(expected, rel=1e-9)


def test_statistics_belong_to_the_view(stored):
    for view in (stored, stored.stride(3, 2), stored.select(slice(1, 3))):
        got = view.statistics
        expected = formula(whole(view))
        assert got.mean == pytest.approx(expected[0], rel=1e-9)
        assert got.std == pytest.approx(expected[1], rel=1e-9)
        assert got.increment_mean == pytest.approx(expected[2], rel=1e-9)
        assert got.increment_std == pytest.approx(expected[3], rel=1e-9)


def test_statistics_refuse_what_is_not_finite():
    fields = whole(numbered()).copy()
    fields[3, 4, 1, 0, 0] = np.inf
    t = Trajectories.from_array(fields, dt=1.0, name="bad.npy")
    sentence = r"bad.npy: found inf in trajectory 3, frame 4, channel u1; expected finite values"
    views = t, t.select([0, 3]), t.stride(time=2), t.select(slice(None, None, -1))
    for view in views:  # the place is that in the file, whatever part of it is looked at
        with pytest.raises(ValueError, match=sentence):
            _ = view.statistics


def test_splits_are_disjoint_and_follow_the_cumulated_fractions():
    t = Trajectories.from_array(np.arange(1024.0).reshape(-1, 1, 1, 1), dt=1.0)
    for seed in (None, 3):
        parts = t.split(seed, train=0.8, valid=0.1, test=0.1)
        assert [len(part) for part in parts.values()] == [819, 102, 103]
        kept = np.concatenate([whole(part).ravel() for part in parts.values()])
        assert sorted(kept) == list(range(1024))
        assert (kept == np.arange(1024)).all() == (seed is None)
    with pytest.raises(ValueError, match="sum to at most 1"):
        t.split(train=0.8, test=0.4)
    with pytest.raises(ValueError, match="4 trajectories leave none for the part 'valid'"):
        t.select(slice(4)).split(train=0.8, valid=0.1, test=0.1)


def test_order_visits_every_item_once_an_epoch():
    order = Order(10, 3, seed=5)
    epochs = [np.concatenate(list(islice(order, 3))) for _ in range(4)]
    for items in epochs:
        assert len(np.unique(items)) == 9
    assert not np.array_equal(epochs[0], epochs[1])
    assert not np.array_equal(permutation(50, 0), permutation(50, 1))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 30), st.integers(0, 2**32))
def test_order_resumes_exactly_anywhere(length, size, steps, seed):
    if size > length:
        with pytest.raises(ValueError, match="cannot be drawn"):
            Order(length, size)
        return
    order = Order(length, size, seed)
    list(islice(order, steps))
    again = Order(**order.state())
    for mine, other in zip(islice(order, 5), islice(again, 5), strict=True):
        assert np.array_equal(mine, other)


def test_a_copied_reader_reads_the_same(stored):
    again = copy.deepcopy(stored)
    assert torch.equal(again.pairs()[[1, 20]].frames, stored.pairs()[[1, 20]].frames)


def test_loading_into_memory_changes_nothing(stored):
    view = stored.stride(2, 2).condition_on("mach")
    kept = view.load()
    assert torch.equal(kept.pairs()[[3, 1]].x, view.pairs()[[3, 1]].x)
    assert np.array_equal(whole(kept), whole(view))
    assert np.array_equal(whole(kept.stride(2)), whole(view.stride(2)))


def test_concatenated_files_are_one_array(stored):
    parts = [stored, stored.select([1, 3]), stored.select(4)]
    joined = concatenate(parts, "three")
    assert np.array_equal(whole(joined), np.concatenate([whole(p) for p in parts]))
    view = joined.select([7, 0, 5]).stride(2, 2)
    expected = np.concatenate([whole(p) for p in parts])[[7, 0, 5], ::2, :, ::2, ::2]
    assert np.array_equal(whole(view), expected)
    assert joined.parameters["mach"].shape == (8,)
    assert joined.static["mask"].shape == (8, 6)
    with pytest.raises(ValueError, match="does not continue"):
        concatenate([stored, stored.stride(2)], "two")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"dt": 0.0}, "time step of 0.0"),
        ({"channels": ("a", "a", "b")}, "names must differ"),
        ({"channels": ("a", "b/c", "d")}, "no '/'"),
        ({"frames": 0}, "without zeros"),
        ({"domain": ()}, "one entry per space axis"),
    ],
)
def test_bad_layouts_are_refused_in_a_sentence(change, sentence):
    t = numbered()
    with pytest.raises(ValueError, match=sentence):
        Trajectories.open(replace(t.layout, **change), t.reader, name="t")


def test_windows_that_do_not_fit_are_refused():
    for steps, every in ((9, 1), (3, 3), (-1, 1), (1, 0)):
        with pytest.raises(ValueError, match="do not fit into trajectories of 9"):
            numbered().windows(steps, every)
    with pytest.raises(IndexError, match="numbered 0 … 39"):
        numbered().pairs()[40]


@pytest.mark.parametrize("points", ["left", "centre", "ends"])
def test_the_spacing_is_that_of_the_coordinates(points):
    layout = Layout(
        "waves", 1, 2, ("velocity_x", "velocity_y"), (5, 8), 1.0,
        domain=((0.0, 2.0), (1.0, 4.0)), boundary=("wall", "periodic"), points=points,
    )  # fmt: skip
    for axis, h in zip(layout.coordinates(), layout.spacing, strict=True):
        assert np.diff(axis) == pytest.approx(np.full(len(axis) - 1, h))
    assert layout.periodic == (False, True)
    assert layout.correlate == "vorticity"
