"""`biasbound data …`: what it prints, its exit codes, and pictures."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data_files import acdm_folder, good_file, run
from toy_source import ToySource

from biasbound import registry
from biasbound.data.formats import load, save
from biasbound.data.trajectories import Trajectories
from biasbound.flows import FLOWS
from biasbound.report.pictures import draw


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(FLOWS, "toy", ToySource)


@pytest.fixture
def path(tmp_path) -> Path:
    return good_file(tmp_path / "good.h5")


@pytest.mark.long
def test_a_real_process_ends_with_code_2_and_no_traceback(path):
    path.write_bytes(path.read_bytes()[:-200])
    command = [sys.executable, "-m", "biasbound", "data", "info", str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("biasbound: ")
    assert done.stderr.count("\n") == 1


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from biasbound.cli import main\n"
        "try: main(['data', 'ks', '--help'])\n"
        "finally: print({'torch', 'h5py', 'matplotlib'} & {*sys.modules}, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr.strip() == "set()"


def test_info_tells_what_the_file_holds(path, capsys):
    assert run("info", path) == 0
    out = capsys.readouterr().out
    t = load(path)
    fields = t.read(0, 2).astype(np.float64)
    for part in ("2 trajectories, 4 frames, 1 channel, 8 points", "dt 0.25", "mach: 0.5 … 0.75"):
        assert part in out
    for value in (fields.mean(), fields.std(), np.diff(fields, axis=1).std()):
        assert f"{value:.6g}" in out
    assert "provenance  seed: 12" in out


@pytest.mark.parametrize("format", ["native", "lpsda", "sda", "numpy"])
def test_convert_there_and_back(format, path, tmp_path, capsys):
    other = tmp_path / ("b.npy" if format == "numpy" else "b.h5")
    assert run("convert", path, other, "--format", format) == 0
    assert run("convert", other, tmp_path / "c.h5") == 0
    assert np.array_equal(load(tmp_path / "c.h5").read(0, 2), load(path).read(0, 2))
    stamp = other.read_bytes()
    assert run("convert", path, other, "--format", format) == 2
    assert "exists already" in capsys.readouterr().err
    assert other.read_bytes() == stamp
    assert run("convert", path, other, "--format", format, "--force") == 0


def test_convert_into_a_folder_never_replaces_one(tmp_path, capsys):
    acdm_folder(tmp_path / "tra")
    assert run("convert", tmp_path / "tra", tmp_path / "a.h5", "--momentum") == 0
    assert load(tmp_path / "a.h5").channels[0] == "momentum_x"
    assert run("convert", tmp_path / "a.h5", tmp_path / "tra", "--format", "acdm", "--force") == 2
    assert "is a folder, which is never replaced" in capsys.readouterr().err
    assert run("convert", tmp_path / "a.h5", tmp_path / "copy", "--format", "acdm") == 0
    assert run("convert", tmp_path / "a.h5", tmp_path / "noending") == 2
    assert "names no format" in capsys.readouterr().err
    assert run("convert", tmp_path / "a.h5", tmp_path / "b", "--format", "adcm") == 2
    assert "no format 'adcm'" in capsys.readouterr().err


def generate(*options) -> int:
    """Run `biasbound data toy`, with the toy source among the others."""
    return run("toy", "--jobs", 1, *options)


def test_generate_options_reach_the_source(tmp_path, capsys):
    path = tmp_path / "a.h5"
    options = ["--size", "smoke", "--split", "test", "--seed", 7, "--trajectories", 3]
    assert generate(*options, "--set", "points=32", "--out", path) == 0
    assert "3 × 5 × 1 × 32 written" in capsys.readouterr().out
    source = ToySource(trajectories=3, frames=5, points=32, split="test", seed=7)
    expected = source.block(0, 3).fields.astype(np.float32)
    assert np.array_equal(load(path).read(0, 3), expected)
    assert generate(*options, "--set", "points=32", "--out", path) == 0
    assert "is there already" in capsys.readouterr().out


def test_a_flow_may_be_typed_as_module_and_name(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_ALLOWED", set())
    monkeypatch.setitem(FLOWS, "toy_source:ToySource", None)
    del FLOWS["toy_source:ToySource"]
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    assert run("toy_source:ToySource", "--jobs", 1, "--size", "smoke", "--out", paths[0]) == 0
    assert generate("--size", "smoke", "--out", paths[1]) == 0
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_help_lists_the_flows_with_their_titles(capsys):
    with pytest.raises(SystemExit):
        run("--help")
    out = " ".join(capsys.readouterr().out.split())
    for name, title in (
        ("ks", "The Kuramoto–Sivashinsky equation"),
        ("transonic", "Transonic flow past a cylinder"),
        ("toy", "Waves"),
    ):
        assert f"{name} {title}" in out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--size", "huge"], "toy has no size 'huge'; it has smoke, small"),
        (["--set", "speed=1"], "toy has no setting 'speed'; it has trajectories, frames, "),
        (["--set", "points"], "--set takes NAME=VALUE"),
        (["--set", "trajectories=0"], "trajectories must be at least 1"),
        (["--set", "poison=1"], "found nan in trajectory 1"),
        (["--set", "points=many"], "setting points of toy: Input should be a valid integer"),
    ],
)
def test_bad_options_get_one_sentence(options, sentence, tmp_path, capsys):
    assert generate("--out", tmp_path / "a.h5", *options) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1
    assert not (tmp_path / "a.h5").exists()


@pytest.mark.long
@pytest.mark.parametrize("name", ["ks", "kolmogorov", "transonic", "other"])
def test_pictures_of_every_kind(name, tmp_path, capsys):
    channels, grid = {
        "ks": (["u"], (16,)),
        "kolmogorov": (["velocity_x", "velocity_y"], (8, 8)),
        "transonic": (["momentum_x", "momentum_y", "density", "pressure"], (12, 6)),
        "other": (["heat"], (4, 4, 4)),
    }[name]
    rng = np.random.default_rng(0)
    t = Trajectories.from_array(
        rng.uniform(0.5, 1, (2, 5, len(channels), *grid)).astype(np.float32),
        dt=0.1,
        channels=channels,
        static={"mask": np.r_[np.zeros(1), np.ones(np.prod(grid) - 1)].reshape(grid)},
    )
    t = replace(t, layout=replace(t.layout, name=name))
    save(t, tmp_path / "a.h5")
    assert run("info", tmp_path / "a.h5", "--plot", tmp_path / "a.png", "--trajectory", 1) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    figure = draw(t)
    shown = [axes for axes in figure.axes if axes.images]
    assert len(shown) == {"ks": 1, "kolmogorov": 4, "transonic": 8, "other": 4}[name]
    assert shown[-1].get_xlabel()
    assert shown[0].get_ylabel()
    if name != "ks":
        assert shown[1].get_title().endswith("= 0.1")
    assert run("info", tmp_path / "a.h5", "--plot", tmp_path / "a.png") == 2
    assert run("info", tmp_path / "a.h5", "--plot", tmp_path / "b.txt") == 2
    assert run("info", tmp_path / "a.h5", "--plot", tmp_path / "b.png", "--trajectory", 2) == 2
    assert capsys.readouterr().err.count("\n") == 3
