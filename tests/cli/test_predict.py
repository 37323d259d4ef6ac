"""Rollouts written as they are made: the same values as in memory, with the data's names and places, whole or not at all."""

import os
import signal
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray
from calling import called, program, refused
from emulators import emulator
from torch import nn
from toys import advected, seeded

import biasbound
from biasbound.data.formats import load, save
from biasbound.data.layout import Labels
from biasbound.data.trajectories import Trajectories
from biasbound.models.emulator import Emulator

ENDS = ("nc", "zarr", "h5", "npy")


def data(frames=4, dt=0.2):
    """Three trajectories on an axis whose points go down, as latitudes do."""
    made = Trajectories.from_array(advected(3, frames=frames).numpy(), dt=dt, channels=["u"], name="waves")
    labels = Labels(("lat",), {"u": "m s-1", "lat": "degrees_north"})
    return replace(made, labels=labels, coordinates=(np.linspace(75.0, 0.0, 16),))


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", ["eps", "direct with history"])
def test_what_is_written_is_the_rollout(kind, end, tmp_path):
    made, given = emulator(kind), data()
    past = made.model.frame.task.past
    written = biasbound.predict(made, given, tmp_path / f"p.{end}", steps=5, members=2, seed=7)
    wanted = made.rollout(given.first(past), 5, members=2, generator=seeded(7)).states.numpy()
    assert written.shape == wanted.shape
    assert written.lost == 0
    if end == "npy":
        np.save(tmp_path / "wanted.npy", wanted)
        assert (tmp_path / "p.npy").read_bytes() == (tmp_path / "wanted.npy").read_bytes()
        return
    found = load(tmp_path / f"p.{end}")
    assert np.array_equal(found.read(0, 6).reshape(wanted.shape), wanted)
    assert (found.channels, found.dt, found.shape) == (("u",), 0.2, (6, 5, 1, 16))
    assert np.array_equal(found.coordinates[0], given.coordinates[0])
    if end != "h5":
        how = {"nc": {"engine": "h5netcdf"}, "zarr": {"engine": "zarr", "consolidated": False}}[end]
        with xarray.open_dataset(tmp_path / f"p.{end}", decode_times=False, **how) as named:
            assert named["u"].dims == ("member", "trajectory", "time", "lat")
            assert (named["u"].attrs["units"], named["lat"].attrs["units"]) == ("m s-1", "degrees_north")
            assert np.allclose(named["time"], 0.2 * (past + np.arange(5)))  # the given frames come before


@pytest.mark.parametrize("kind", ["eps", "direct"])
def test_a_compiled_rollout_asks_the_compiled_network(kind, tmp_path, monkeypatch, capsys):
    """By a compiler that changes nothing: the same file, and every call went through it."""
    asked = []

    def compile_nothing(self, **options):
        self._compiled_call_impl = lambda *inputs: (asked.append(options), self._call_impl(*inputs))[1]

    monkeypatch.setattr(nn.Module, "compile", compile_nothing)
    monkeypatch.setenv("CXX", sys.executable)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "code"))
    emulator(kind).save(tmp_path / "emulator")
    save(data(), tmp_path / "waves.h5")
    plain = ["predict", tmp_path / "emulator", "--data", tmp_path / "waves.h5", "--out"]
    assert called([*plain, tmp_path / "plain.npy"], capsys)[0] == 0
    assert not asked
    assert called([*plain, tmp_path / "compiled.npy", "--compile"], capsys)[0] == 0
    assert (tmp_path / "plain.npy").read_bytes() == (tmp_path / "compiled.npy").read_bytes()
    assert asked == [{"dynamic": False}] * 3 * emulator(kind).nfe


def test_frames_of_a_stream_do_not_depend_on_those_that_follow():
    made, x0 = emulator("v residual ddpm"), data().first()
    few = [*made.stream(x0, 2, members=2, generator=seeded(3), batch=4)]
    more = made.rollout(x0, 4, members=2, generator=seeded(3), batch=4)
    assert torch.equal(torch.stack(few, 2), more.states[:, :, :2])


@pytest.mark.parametrize("end", ENDS)
def test_a_rollout_that_fails_leaves_nothing(end, tmp_path, monkeypatch):
    def failing(self, x0, *rest, **more):
        yield x0[None]
        raise ValueError("the network failed")

    monkeypatch.setattr(Emulator, "stream", failing)
    with pytest.raises(ValueError, match="the network failed"):
        biasbound.predict(emulator("direct"), data(), tmp_path / f"p.{end}")
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.parametrize("end", ["nc", "npy"])
def test_a_killed_rollout_leaves_nothing_under_its_name(end, tmp_path):
    emulator("direct").save(tmp_path / "emulator")
    save(data(), tmp_path / "waves.h5")
    lines = [
        "import os, signal, biasbound as bb",
        "emulator, data = bb.load('emulator'), bb.open('waves.h5')",
        "stream = bb.Emulator.stream",
        "def killed(*given, **more):",
        "    yield next(stream(*given, **more))",
        "    os.kill(os.getpid(), signal.SIGKILL)",
        "bb.Emulator.stream = killed",
        f"bb.predict(emulator, data, 'p.{end}')",
    ]
    done = program("\n".join(lines), start=("-c",), cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stderr
    path = tmp_path / f"p.{end}"
    assert os.path.exists(path.with_name(f".{path.name}.writing"))
    assert not path.exists()
    biasbound.predict(biasbound.load(tmp_path / "emulator"), data(), path)  # and it is not in the way
    assert {p.name for p in tmp_path.iterdir()} == {"emulator", "waves.h5", path.name}


def test_trajectories_that_break_are_counted_in_the_file_too(tmp_path):
    class Growing(torch.nn.Module):
        def forward(self, x):
            return 1e15 * x

    made = emulator("direct")
    made.model.net = Growing()
    written = biasbound.predict(made, data(), tmp_path / "p.npy", steps=4)
    with pytest.warns(UserWarning, match="3 of 3 trajectories"):
        wanted = made.rollout(data().first(), 4)
    assert np.array_equal(written.broken, wanted.broken.numpy())
    assert written.lost == 3


def test_the_command_writes_by_the_ending_of_its_file(tmp_path, capsys):
    emulator("eps").save(tmp_path / "emulator")
    save(data(), tmp_path / "waves.h5")
    argv = ["predict", tmp_path / "emulator", "--data", tmp_path / "waves.h5", "--members", "2", "--out"]
    code, said, _ = called([*argv, tmp_path / "p.nc"], capsys)
    assert code == 0
    assert "2 × 3 × 3 × 1 × 16 (members, trajectories, frames, channels, grid) written" in said
    hint = said.splitlines()[-1].removeprefix("next: biasbound ").split()
    assert called(hint, capsys)[0] == 0
    refused([*argv, tmp_path / "p.nc"], capsys, "p.nc exists already")
    refused([*argv, tmp_path / "p.csv"], capsys, "p.csv", ".nc, .zarr, .h5, .npy")
    fields = data().read(0, 3)
    fields[2, 0, 0, 5] = np.nan
    np.save(tmp_path / "bad.npy", fields)
    bad = [*argv[:3], tmp_path / "bad.npy", "--dt", "0.2", "--dims", "1", "--out", tmp_path / "q.nc"]
    refused(bad, capsys, "bad.npy", "nan in trajectory 2, frame 0, channel u")
    save(data(frames=1), tmp_path / "one.h5")
    argv[3] = tmp_path / "one.h5"
    refused([*argv, tmp_path / "q.nc"], capsys, "one.h5", "--steps")
    assert not (tmp_path / "q.nc").exists()


def test_the_command_projects_every_state_and_says_where_the_data_do_not_obey(tmp_path, capsys):
    emulator("eps").save(tmp_path / "emulator")
    save(data(), tmp_path / "waves.h5")
    argv = ["predict", tmp_path / "emulator", "--data", tmp_path / "waves.h5", "--constrain"]
    code, said, _ = called([*argv, "zero-mean", "--out", tmp_path / "p.npy"], capsys)
    assert code == 0
    assert np.abs(np.load(tmp_path / "p.npy").mean(-1)).max() < 1e-5
    share = (data().first().mean(-1, keepdim=True).expand(-1, -1, 16).norm() / data().first().norm()).item()
    assert ("break zero-mean by" in said) == (share > 1e-4)
    refused([*argv, "zero", "--out", tmp_path / "q.npy"], capsys, "no constraint 'zero'", "divergence-free")
    refused([*argv, "divergence-free", "--out", tmp_path / "q.npy"], capsys, "on a periodic grid")
