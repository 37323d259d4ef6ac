"""Generation: the same bytes however many workers and interruptions, and refusals in a sentence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from toy_source import ToySource

from biasbound._io import lock
from biasbound.data.formats import load
from biasbound.flows import generate as module
from biasbound.flows.generate import generate

TOY = Path(__file__).parents[1] / "toy_source.py"


def alive(group: int) -> list[int]:
    """Processes of a group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, *fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == group and state != "Z":
                found.append(int(entry.name))
    return found


def test_a_file_holds_what_its_source_computes(tmp_path):
    source = ToySource(trajectories=5, dimensions=2)
    assert generate(source, tmp_path / "a.h5", dtype="float64")
    t, block = load(tmp_path / "a.h5"), source.block(0, 5)
    assert np.array_equal(t.read(0, 5), block.fields)
    assert t.layout == source.layout
    assert np.array_equal(t.parameters["speed"], block.parameters["speed"])
    assert np.array_equal(t.series["clock"], block.series["clock"])
    assert np.array_equal(t.static["mask"], block.static["mask"])
    assert source.provenance().items() <= t.provenance.items()
    assert [p.name for p in tmp_path.iterdir()] == ["a.h5"]


def test_the_bytes_do_not_depend_on_the_number_of_workers(tmp_path):
    source = ToySource(trajectories=7)
    seen = []
    generate(source, tmp_path / "a.h5", progress=lambda *state: seen.append(state))
    generate(source, tmp_path / "b.h5", jobs=2)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    assert seen == [(0, 7), (2, 7), (4, 7), (6, 7), (7, 7)]


def test_a_killed_generation_goes_on_to_the_same_file(tmp_path):
    whole, cut = tmp_path / "whole.h5", tmp_path / "cut.h5"
    generate(ToySource(trajectories=12), whole)
    env = os.environ | {"PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, str(TOY), "--out", str(cut), "--jobs", "2", "--delay", "0.5"]
    process = subprocess.Popen(command, env=env, process_group=0)
    part = tmp_path / "cut.h5.part"
    deadline = time.monotonic() + 120
    while len(list(part.glob("block_*.npz"))) < 2:
        assert process.poll() is None, "ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while alive(process.pid):  # workers end with their parent
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not cut.exists()
    assert 2 <= len(list(part.glob("block_*.npz"))) < 6
    seen = []
    generate(ToySource(trajectories=12), cut, progress=lambda *state: seen.append(state))
    assert seen[0][0] >= 4  # trajectories of two blocks
    assert cut.read_bytes() == whole.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cut.h5", "whole.h5"]


def test_a_kill_while_the_file_is_put_together(tmp_path, monkeypatch):
    source = ToySource()
    generate(source, tmp_path / "a.h5")

    def killed(*args, **facts):
        (tmp_path / ".b.h5.writing").write_bytes(b"half a file")
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_pieces", killed)
        with pytest.raises(SystemExit):
            generate(source, tmp_path / "b.h5")
    done = []
    generate(source, tmp_path / "b.h5", progress=lambda *state: done.append(state))
    assert done == [(6, 6)]
    assert (tmp_path / "b.h5").read_bytes() == (tmp_path / "a.h5").read_bytes()


def test_the_same_file_is_not_made_twice_and_another_not_replaced(tmp_path):
    path = tmp_path / "a.h5"
    assert generate(ToySource(), path)
    stamp = path.stat().st_mtime_ns
    assert not generate(ToySource(), path)
    assert path.stat().st_mtime_ns == stamp
    with pytest.raises(ValueError, match="exists already and was not made by this configuration"):
        generate(ToySource(seed=1), path)
    assert generate(ToySource(seed=1), path, overwrite=True)
    assert load(path).provenance["seed"] == 1


def test_an_unfinished_file_of_another_configuration_is_refused(tmp_path):
    path = tmp_path / "a.h5"
    with pytest.raises(ValueError, match="toy: found nan in trajectory 3, frame 9, channel u"):
        generate(ToySource(poison=3), path)
    assert not path.exists()
    assert len(list((tmp_path / "a.h5.part").glob("block_*.npz"))) == 1
    with pytest.raises(ValueError, match="poison is 3 there and -1 here"):
        generate(ToySource(), path)
    assert generate(ToySource(), path, overwrite=True)


def test_errors_in_workers_are_told(tmp_path):
    with pytest.raises(ValueError, match="found nan in trajectory 1"):
        generate(ToySource(poison=1), tmp_path / "a.h5", jobs=2)
    with pytest.raises(ValueError, match="a worker process died"):
        generate(ToySource(crash=2), tmp_path / "b.h5", jobs=2)


def test_two_processes_cannot_write_one_file(tmp_path):
    path = tmp_path / "a.h5"
    with lock(tmp_path / ".a.h5.generating"), pytest.raises(ValueError, match="is locked"):
        generate(ToySource(), path)
    (tmp_path / ".a.h5.generating").touch()  # left behind by a killed process
    assert generate(ToySource(), path)


def test_another_file_in_the_way_is_kept(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["precious"] = 1
    with pytest.raises(ValueError, match="exists already"):
        generate(ToySource(), path)
    with h5py.File(path) as file:
        assert "precious" in file
    with pytest.raises(ValueError, match="does not exist"):
        generate(ToySource(), tmp_path / "no" / "a.h5")
