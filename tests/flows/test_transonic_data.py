"""The trajectories of the transonic cylinder: sampling, splits, seeds and what is refused."""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import numba
import numpy as np
import pytest

from biasbound.flows.flow import source
from biasbound.flows.transonic import TransonicCylinder
from biasbound.flows.transonic.grid import o_grid
from biasbound.flows.transonic.kernels import jit
from biasbound.flows.transonic.sampling import DOMAIN, Window
from biasbound.study.parsing import presets, read_config

# --- the data set --------------------------------------------------------------------------------

TINY = {"frames": 5, "warmup": 1.0, "cells": (48, 64)}


@pytest.fixture(scope="module")
def pair():
    """One short data set in single and in double precision."""
    single = TransonicCylinder((0.6, 0.8), **TINY)
    double = TransonicCylinder((0.6, 0.8), **TINY, precision="float64")
    return single, single.block(0, 2), double.block(0, 2)


def test_single_precision_gives_the_statistics_of_double(pair):
    _, single, double = pair
    assert single.fields.dtype == np.float32
    assert double.fields.dtype == np.float64
    for moment in (np.mean, np.std):
        a, b = (moment(x.fields.astype(np.float64), axis=(1, 3, 4)) for x in (single, double))
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)
    for name in ("drag", "lift"):
        np.testing.assert_allclose(single.series[name], double.series[name], rtol=5e-3, atol=5e-3)


def test_trajectories_do_not_depend_on_the_block_or_the_run(pair):
    source, whole, _ = pair
    alone = copy.deepcopy(source).block(1, 2)
    assert alone.fields.tobytes() == whole.fields[1:].tobytes()
    assert alone.series["lift"].tobytes() == whole.series["lift"][1:].tobytes()


def test_block_keeps_the_layout(pair):
    source, block, _ = pair
    assert block.fields.shape == source.layout.shape
    assert np.isfinite(block.fields).all()
    assert (block.fields[:, :, 2:] > 0).all()  # ρ and p, inside the cylinder too
    assert block.parameters["mach"].tolist() == [0.6, 0.8]
    assert block.static["mask"].shape == source.layout.grid
    assert set(np.unique(block.static["mask"])) == {0.0, 1.0}
    upstream = block.fields[:, 0, :, 2, 2]
    np.testing.assert_allclose(upstream[:, 0], [0.6, 0.8], atol=0.2)


def test_seed_split_and_index_change_the_start():
    def first(**changes):
        source = TransonicCylinder((0.7, 0.7), **{**TINY, "warmup": 0.0, "frames": 1, **changes})
        return source.block(0, 2).fields

    base = first()
    assert np.abs(base[0] - base[1]).max() > 1e-2
    assert np.abs(base - first(seed=1)).max() > 1e-2
    assert np.abs(base - first(split="valid")).max() > 1e-2


def test_window_samples_where_the_layout_says():
    """Constants come back exactly, coordinates at the centres of the layout's cells."""
    grid, size = o_grid(128, 137), (128, 64)
    window, w = Window(grid, size), np.zeros((4, 141, 132))
    w[0], w[3] = 1.0, 0.7
    w[1:3, 2:-2, 2:-2] = grid.centres
    for ghost, inner in ((slice(0, 2), slice(-4, -2)), (slice(-2, None), slice(2, 4))):
        w[1:3, :, ghost] = w[1:3, :, inner]
    x, y, rho, p = window(w)
    np.testing.assert_allclose(rho, 1.0, atol=1e-9)
    np.testing.assert_allclose(p, 0.7, atol=1e-9)
    (x0, x1), (y0, y1) = DOMAIN
    xs = x0 + (np.arange(128) + 0.5) * (x1 - x0) / 128
    ys = y0 + (np.arange(64) + 0.5) * (y1 - y0) / 64
    near = np.hypot(xs[:, None], ys) < 0.8  # velocity is cut to 0 in the cylinder
    edge = np.ones(size, bool)
    edge[2:-2, 2:-2] = False  # zoom bends lines at its edges
    skip = near | edge
    assert np.abs(x - xs[:, None])[~skip].max() < 0.01
    assert np.abs(y - ys)[~skip].max() < 0.01
    inside = window.mask == 0
    assert inside.mean() * 72 == pytest.approx(np.pi / 4, rel=0.05)
    assert np.abs(np.stack([x, y]))[:, np.hypot(xs[:, None], ys) < 0.25].max() < 1e-3


@pytest.mark.parametrize("size", [(256, 128), (64, 32), (100, 50)])
def test_other_resolutions_share_the_rectangle(size):
    source = TransonicCylinder((0.8,), resolution=size)
    assert source.layout.grid == size
    assert source.layout.domain == TransonicCylinder((0.8,)).layout.domain
    window = Window(o_grid(48, 64), size)
    out = window(np.ones((4, 68, 52)))
    assert out.shape == (4, *size)
    np.testing.assert_allclose(out[2:], 1.0, atol=1e-9)


def test_fields_inside_the_cylinder_join_those_of_the_wall():
    grid = o_grid(64, 88)
    w = np.ones((4, 92, 68))
    w[3, :, 2:-2] = 1 + 0.3 * np.cos(np.arctan2(*grid.centres[::-1]))[0]
    w[3, :, :2], w[3, :, -2:] = w[3, :, -4:-2], w[3, :, 2:4]
    p = Window(grid, (256, 128))(w)[3]
    line = p[:, 64]  # y ≈ 0.02, through the cylinder
    assert np.abs(np.diff(line)).max() < 0.08  # 0.6 over a diameter of 21 points
    assert line.min() > 0.69
    assert line.max() < 1.31


def mach_numbers(size):
    """Of each part of a size: train, valid and the test sets."""
    made = TransonicCylinder.sizes[size]
    parts = {"train": made.train, "valid": made.valid, **made.tests}
    return {part: settings["mach"] for part, settings in parts.items()}


@pytest.mark.parametrize("name", list(TransonicCylinder.sizes))
def test_splits_share_no_mach_number(name):
    parts = mach_numbers(name)
    every = [m for part in parts.values() for m in {*part}]
    assert len(every) == len(set(every))
    low, high = min(parts["train"]), max(parts["train"])
    assert all(m < low for m in parts["extrapolate"])
    assert all(low < m < high for part in parts.keys() - {"train", "extrapolate"} for m in parts[part])


def test_the_record_is_tested_on_twelve_trajectories_of_a_hundred_steps_and_more():
    for test in ("extrapolate", "interpolate"):
        made = source("transonic", "mini", "test", test=test)
        assert len(made.mach) == 4 * len({*made.mach}) == 12
        assert (made.layout.frames - 1) // 2 >= 100
    config = read_config(presets()["transonic-mini"])
    assert (config.data.size, config.data.stride_time) == ("mini", 2)


def test_the_full_size_has_the_mach_numbers_of_the_original():
    parts = mach_numbers("full")
    sims = {p: [round(100 * m - 50, 6) for m in parts[p]] for p in parts if p != "valid"}
    assert sims["extrapolate"] == [0, 1, 2]
    assert sims["long"] == [14, 15]
    assert sims["interpolate"] == [16, 17, 18]
    assert sorted(k for part in sims.values() for k in part) == list(range(41))
    test = source("transonic", "full", "test", test="long", seed=4)
    assert test.mach == (0.64, 0.65)
    assert test.layout.shape == (2, 1000, 4, 128, 64)
    assert test.provenance()["seed"] == 4


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: TransonicCylinder(()), "mach"),
        (lambda: TransonicCylinder((1.2,)), "mach"),
        (lambda: TransonicCylinder((0.5,), frames=0), "frames"),
        (lambda: TransonicCylinder((0.5,), cells=(33, 64)), "cells"),
        (lambda: o_grid(32, 48, wall=1e-7), "rings"),
        (lambda: TransonicCylinder((0.5,), resolution=(512, 64)).block(0, 1), "resolution"),
        (lambda: TransonicCylinder((0.5,)).block(1, 2), "trajectories"),
    ],
)
def test_bad_input_is_named(call, word):
    with pytest.raises(ValueError, match=word):
        call()


# --- numba ---------------------------------------------------------------------------------------


def test_kernels_compile_without_a_cache_folder(monkeypatch):
    real = numba.njit

    def njit(function, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return real(function, **options)

    monkeypatch.setattr(numba, "njit", njit)

    def double(x):
        return 2 * x

    assert jit(double)(3) == 6


def test_fresh_and_cached_kernels_give_the_same_bytes(tmp_path):
    """A worker that compiles and one that finds the cache write the same file."""
    code = """if True:
        import hashlib
        import numpy as np
        from biasbound.flows.transonic.flow import Flow
        from biasbound.flows.transonic.grid import o_grid
        grid = o_grid(16, 24)
        flow = Flow(grid, np.random.default_rng(0).uniform(0.9, 1.1, (4, *grid.shape)))
        flow.advance(0.5)
        print(hashlib.sha256(flow.w.tobytes()).hexdigest())"""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
        for _ in range(2)
    ]
    assert list(tmp_path.rglob("*.nbc"))
    assert runs[0].stdout == runs[1].stdout


@pytest.mark.parametrize("name", ["numba", "scipy"])
def test_a_missing_extra_is_one_sentence(name):
    code = f"import sys; sys.modules[{name!r}] = None; import biasbound.flows.transonic"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert "pip install 'biasbound[transonic]'" in run.stderr.splitlines()[-1]
