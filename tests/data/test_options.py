"""What a user says about a file, whatever its format and wherever it is read."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import scipy.io
from data_files import acdm_folder, run

import biasbound.data
from biasbound.data.formats import load
from biasbound.data.formats.stream import FrameWriter
from biasbound.data.options import ReadOptions
from biasbound.data.trajectories import Trajectories
from biasbound.study.stages.material import Entry


@pytest.fixture
def path(tmp_path):
    fields = np.random.default_rng(0).normal(size=(2, 4, 2, 6, 5)).astype(np.float32)
    valid = np.ones((6, 5), np.float32)
    valid[2, 3] = 0
    t = Trajectories.from_array(fields, dt=0.25, channels=["u", "v"], static={"sea": valid})
    t.save(tmp_path / "a.h5")
    return tmp_path / "a.h5"


def test_options_say_the_same_of_every_format(path):
    t = load(path)
    t.save(path.with_suffix(".npy"))
    t.save(path.with_suffix(".nc"))
    told = {"variable": "v", "channels": ["w"], "domain": [(0, 2), (-1, 1)], "boundary": ["open", "periodic"]}
    options = ReadOptions.of({**told, "dt": 2, "mask": "sea", "dims": 2}, "here")
    for end in ("h5", "npy", "nc"):
        found = load(path.with_suffix(f".{end}"), options)
        assert (found.channels, found.dt) == (("w",), 2.0)
        assert found.layout.domain == ((0.0, 2.0), (-1.0, 1.0))
        assert found.layout.boundary == ("open", "periodic")
        assert np.array_equal(found.mask, t.static["sea"] == 1)
        assert np.array_equal(found.read(0, 2)[:, :, 0], np.where(found.mask, t.read(0, 2)[:, :, 1], 0))
        assert [float(axis.min()) for axis in found.coordinates] == [0.0, -1.0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"variable": "p"}, "found no variable 'p'; it has u, v"),
        ({"channels": "a,b,c"}, "found 3 names for the channels u, v"),
        ({"domain": [(0, 1)]}, "domain has 1 pairs for 2 space axes"),
        ({"boundary": "open,open,open"}, "boundary has 3 entries for 2 space axes"),
        ({"boundary": "round"}, r"a\.h5: boundary\.0: "),
        ({"mask": "ice"}, "found no field 'ice' for the mask; it has sea"),
        ({"dims": 3}, "found 2 space axes, but dims is 3"),
        ({"dt": -1.0}, "found a time step of -1.0"),
    ],
)
def test_what_does_not_fit_is_refused_by_the_name_of_the_file(path, options, sentence):
    with pytest.raises(ValueError, match=sentence) as error:
        load(path, **options)
    assert str(path) in str(error.value)


def test_commands_take_the_options(path, capsys):
    told = ["--variable", "v", "--domain=-1:1,0:2", "--boundary", "open,wall", "--dt", "3", "--mask", "sea"]
    assert run("info", path, *told) == 0
    out = capsys.readouterr().out
    for part in ("-1 … 1, open", "0 … 2, wall", "dt 3", "29 of 30 points are valid"):
        assert part in out
    assert run("info", path, "--domain=1,2") == 2
    assert "--domain takes LOW:HIGH" in capsys.readouterr().err


def test_one_trajectory_of_ones_own_is_divided_in_time(tmp_path):
    fields = np.random.default_rng(0).normal(size=(16, 100))
    scipy.io.savemat(tmp_path / "mine.mat", {"u": fields, "t": 0.1 * np.arange(100)})
    parts = {}
    for part in ("train", "valid", "test"):
        parts[part] = Entry(str(tmp_path / "mine.mat"), {"boundary": ["periodic"]}, part, 1, 1, ()).open()
    assert [t.layout.frames for t in parts.values()] == [68, 15, 15]
    assert str(parts["test"].division) == "in time 0.7/0.15/0.15, gap 1"
    assert np.array_equal(parts["valid"].read(0, 1)[0, :, 0], fields.T[69:84])


def test_the_base_install_reads_and_writes_what_it_can(path, tmp_path, monkeypatch):
    for package in ("xarray", "h5netcdf", "zarr", "scipy", "scipy.io", "cfgrib"):
        monkeypatch.setitem(sys.modules, package, None)
    t = biasbound.data.open(path)
    t.save(tmp_path / "b.npy")
    t.save(tmp_path / "b.nc")
    with FrameWriter.open(tmp_path / "c.nc", t.layout) as writer:
        for k in range(4):
            writer.append(t.read(0, 2)[:, k])
    assert len(load(acdm_folder(tmp_path / "acdm"))) == 2
    (tmp_path / "d.mat").write_bytes(b"MATLAB 5.0 MAT-file".ljust(128) + bytes(8))
    for name, package in (("b.nc", "h5netcdf"), ("d.mat", "scipy")):
        with pytest.raises(
            ValueError, match=rf"{name} needs {package}: install it with pip install 'biasbound\[io\]'"
        ):
            load(tmp_path / name)
    with pytest.raises(ValueError, match="needs zarr"):
        t.save(tmp_path / "b.zarr")
    with pytest.raises(ValueError, match="needs xarray"):
        t.to_xarray()
