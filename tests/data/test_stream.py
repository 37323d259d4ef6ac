"""Frames written as they come: what is read back, whole files or none, and memory that does not grow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray
from hypothesis import given, settings
from hypothesis import strategies as st

from biasbound.data.formats import load
from biasbound.data.formats.stream import FrameWriter
from biasbound.data.labelled import from_xarray
from biasbound.data.layout import Labels, Layout

ENDS = ("nc", "zarr", "h5")
LAYOUT = Layout("flow", 3, 7, ("u", "v"), (8, 6), 0.5, ((0.0, 1.0), (0.0, 2.0)), ("periodic", "open"))


def states(members: int, layout: Layout, seed: int = 0) -> np.ndarray:
    """(M, S, K, C, *N)."""
    return np.random.default_rng(seed).normal(size=(members, *layout.shape)).astype(np.float32)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(ENDS), st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.booleans())
def test_frames_come_back_as_they_were_appended(end, members, rows, frames, tensors):
    layout = replace(LAYOUT, trajectories=rows, frames=frames)
    fields = states(members, layout)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"a.{end}")
        with FrameWriter.open(path, layout, members=members, provenance={"emulator": "e"}) as writer:
            for k in range(frames):
                writer.append(torch.from_numpy(fields[:, :, k]) if tensors else fields[:, :, k])
                assert not path.exists()
        t = load(path)
        assert np.array_equal(t.read(0, members * rows), fields.reshape(-1, *layout.shape[1:]))
        assert replace(t.layout, trajectories=rows) == layout
        assert t.provenance == {"emulator": "e"}
        assert [p.name for p in Path(folder).iterdir()] == [path.name]


@pytest.mark.parametrize("end", ["nc", "zarr"])
def test_channels_times_and_members_have_names(end, tmp_path):
    path, fields = tmp_path / f"a.{end}", states(4, LAYOUT)
    mask = np.ones((8, 6), dtype=bool)
    mask[3] = False
    labels = Labels(("lat", "lon"), {"u": "m s-1", "time": "h"})
    with FrameWriter.open(path, LAYOUT, members=4, labels=labels, mask=mask) as writer:
        for k in range(7):
            writer.append(fields[:, :, k])
    how = {"nc": {"engine": "h5netcdf"}, "zarr": {"engine": "zarr", "consolidated": False}}[end]
    with xarray.open_dataset(path, decode_times=False, **how) as found:
        assert found["u"].dims == ("member", "trajectory", "time", "lat", "lon")
        assert found["u"].attrs["units"] == "m s-1"
        assert np.allclose(found["time"], 0.5 * np.arange(1, 8))  # a rollout does not hold its initial state
        assert np.array_equal(found["v"].isel(member=2, lat=0), fields[2, :, :, 1, 0])
        assert bool(found["v"].isel(lat=3).isnull().all())
        again = from_xarray(found)
    assert np.array_equal(again.mask, mask)
    assert len(again) == 12


@pytest.mark.parametrize("end", ENDS)
def test_files_say_whose_frames_they_hold(end, tmp_path):
    fields = states(2, LAYOUT)
    with FrameWriter.open(tmp_path / f"a.{end}", LAYOUT, members=2) as writer:
        for k in range(7):
            writer.append(fields[:, :, k])
    t = load(tmp_path / f"a.{end}")
    assert t.parameters["member"].tolist() == [0, 0, 0, 1, 1, 1]
    assert t.parameters["start"].tolist() == [0, 1, 2, 0, 1, 2]
    assert t.statistics.mean == pytest.approx(fields.mean((0, 1, 2, 4, 5)), abs=1e-6)
    t.save(tmp_path / "b.nc")  # members have become trajectories
    assert load(tmp_path / "b.nc").parameters["member"].tolist() == t.parameters["member"].tolist()


@pytest.mark.parametrize("end", ENDS)
def test_an_unfinished_file_is_not_kept(end, tmp_path):
    path, fields = tmp_path / f"a.{end}", states(1, LAYOUT)

    def some(count: int, error: BaseException | None = None) -> None:
        with FrameWriter.open(path, LAYOUT) as writer:
            for k in range(count):
                writer.append(fields[0, :, k])
            if error is not None:
                raise error

    with pytest.raises(KeyboardInterrupt):
        some(3, KeyboardInterrupt())
    with pytest.raises(ValueError, match=rf"a\.{end}: found 3 frames, expected 7"):
        some(3)
    with pytest.raises(ValueError, match=r"found frames of shape \(2, 8, 6\), expected \(1, 3, 2, 8, 6\)"):
        FrameWriter.open(path, LAYOUT).append(fields[0, 0, 0])
    assert not path.exists()


def test_more_frames_than_promised_and_unknown_endings_are_refused(tmp_path):
    def nine() -> None:
        with FrameWriter.open(tmp_path / "a.nc", LAYOUT) as writer:
            for _ in range(9):
                writer.append(states(1, LAYOUT)[0, :, 0])

    with pytest.raises(ValueError, match="more than the 7 frames"):
        nine()
    with pytest.raises(ValueError, match=r"a\.csv: frames are written as they come to \.nc, \.zarr, \.h5"):
        FrameWriter.open(tmp_path / "a.csv", LAYOUT)
    assert not any(tmp_path.iterdir())


KILLED = """
import sys, time
import numpy as np
from biasbound.data.formats.stream import FrameWriter
from biasbound.data.layout import Layout
layout = Layout("flow", 1, 10, ("u",), (8,), 0.5, ((0.0, 1.0),), ("periodic",))
with FrameWriter.open(sys.argv[1], layout) as writer:
    writer.append(np.zeros((1, 1, 8), np.float32))
    print("one", flush=True)
    time.sleep(60)
"""


@pytest.mark.long
def test_a_killed_writer_leaves_no_file_and_no_obstacle(tmp_path):
    path = tmp_path / "a.nc"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "one\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not path.exists()
    layout = replace(LAYOUT, frames=1)
    with FrameWriter.open(path, layout) as writer:
        writer.append(states(1, layout)[:, :, 0])
    assert [p.name for p in tmp_path.iterdir()] == ["a.nc"]


MEASURED = """
import resource, sys
import numpy as np
from biasbound.data.formats.stream import FrameWriter
from biasbound.data.layout import Layout
layout = Layout("flow", 4, 500, ("u",), (4096,), 0.5, ((0.0, 1.0),), ("periodic",))
frames = np.random.default_rng(0).normal(size=(4, 1, 4096)).astype(np.float32)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
for path in sys.argv[1:]:
    with FrameWriter.open(path, layout) as writer:
        for k in range(layout.frames):
            writer.append(frames + np.float32(k))
            if k == 49:
                before = peak()
    print(peak() - before)
"""


@pytest.mark.long
def test_memory_does_not_grow_with_the_length(tmp_path):
    """33 MB of frames in each file; what is held does not depend on it."""
    command = [sys.executable, "-c", MEASURED, *(str(tmp_path / f"a.{end}") for end in ENDS)]
    grown = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert len(grown) == len(ENDS)
    assert max(map(float, grown)) < 12
