"""`biasbound data …`: what it prints, its exit codes, and one sentence for each broken file."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from toy_source import ToySource

from biasbound.data import commands
from biasbound.data.formats import load, save
from biasbound.data.pictures import draw, vorticity
from biasbound.data.trajectories import Trajectories


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(commands.SOURCES, "toy", ("toy_source", "ToySource", "waves"))


@pytest.fixture
def path(tmp_path) -> Path:
    """A good native file."""
    t = Trajectories.from_array(
        np.random.default_rng(0).normal(size=(2, 4, 1, 8)).astype(np.float32),
        dt=0.25,
        channels=["u"],
        parameters={"mach": np.array([0.5, 0.75])},
        provenance={"seed": 12},
    )
    save(t, tmp_path / "good.h5")
    return tmp_path / "good.h5"


def run(*arguments) -> int:
    return commands.main(["data", *map(str, arguments)])


def edit(path: Path, name: str, values: np.ndarray | None) -> None:
    """Replace or remove a dataset, keeping its attributes."""
    with h5py.File(path, "r+") as file:
        attributes = dict(file[name].attrs)
        del file[name]
        if values is not None:
            file.create_dataset(name, data=values).attrs.update(attributes)


def truncated(path):
    path.write_bytes(path.read_bytes()[:-200])
    return "truncated (", "expected a whole file"


def empty(path):
    path.write_bytes(b"")
    return "found an empty file", "expected HDF5"


def wrong_key(path):
    with h5py.File(path, "w") as file:
        file["fields"] = np.ones((2, 3))
    return "found HDF5 with ['fields']", "expected HDF5 in The Well's layout"


def lost_key(path):
    edit(path, "t0_fields/u", None)
    return "The Well's but without u", "expected dimensions"


def holding_nan(path):
    with h5py.File(path, "r+") as file:
        file["t0_fields/u"][1, 2, 3] = np.nan
    return "found nan in trajectory 1, frame 2, channel u", "expected finite values"


def wrong_rank(path):
    edit(path, "t0_fields/u", np.ones((2, 4), np.float32))
    return "of shape (2, 4)", "expected (2, 4, 8)"


def zero_length(path):
    edit(path, "t0_fields/u", np.ones((0, 4, 8), np.float32))
    return "of shape (0, 4, 8)", "expected (2, 4, 8)"


def no_trajectories(path):
    with h5py.File(path, "w") as file:
        file["x"] = np.ones((0, 4, 1, 8), np.float32)
    return "found shape (0, 4, 1, 8)", "expected (S, K, C, *N) without zeros"


def integers(path):
    with h5py.File(path, "w") as file:
        file["x"] = np.ones((2, 4, 1, 8), np.int32)
    return "and int32", "expected floats"


def lpsda_rank(path):
    with h5py.File(path, "w") as file:
        file["train/pde_4-8"] = np.ones((2, 8))
    return "found train/pde_4-8 of shape (2, 8)", "expected floats (trajectories, frames, points)"


def lpsda_keys(path):
    with h5py.File(path, "w") as file:
        file["train/pde_4-8"] = np.ones((2, 4, 8))
    return "found ['pde_4-8']", "expected one group"


def lpsda_empty(path):
    with h5py.File(path, "w") as file:
        file["train/pde_4-8"] = np.ones((0, 4, 8))
        file["train/dt"] = file["train/dx"] = np.ones(0)
    return "found shape (0, 4, 1, 8)", "without zeros"


def text(path):
    path.write_text("t,u\n0,1\n")
    return "begins with b't,u", "expected HDF5"


def zip_archive(path):
    with path.open("wb") as file:
        np.savez(file, np.ones(3))
    return "begins with b'PK", "expected HDF5"


def numpy_truncated(path):
    with path.open("wb") as file:
        np.save(file, np.ones((2, 4, 8)))
    path.write_bytes(path.read_bytes()[:-8])
    return "found a truncated array", "8 bytes short"


def numpy_header(path):
    path.write_bytes(b"\x93NUMPY\x01\x00\xff")
    return "found a damaged .npy header", ""


def numpy_rank(path):
    with path.open("wb") as file:
        np.save(file, np.ones((2, 4)))
    return "found shape (2, 4)", "expected (S, K, C, *N)"


def missing(path):
    path.unlink()
    return "no such file or folder", ""


BROKEN = [
    *(truncated, empty, wrong_key, lost_key, holding_nan, wrong_rank, zero_length),
    *(no_trajectories, integers, lpsda_rank, lpsda_keys, lpsda_empty, text, zip_archive),
    *(numpy_truncated, numpy_header, numpy_rank, missing),
]


@pytest.mark.parametrize("damage", BROKEN, ids=lambda f: f.__name__)
@pytest.mark.parametrize("command", ["info", "convert"])
def test_broken_files_get_one_sentence(damage, command, path, tmp_path, capsys):
    found, expected = damage(path)
    before = sorted(p.name for p in tmp_path.iterdir())
    options = ["--dt", "0.1"] if damage.__name__.startswith("numpy") else []
    target = [tmp_path / "out.h5"] if command == "convert" else []
    assert run(command, path, *target, *options) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert str(path) in err
    assert found in err
    assert expected in err
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_file_cut_anywhere_gets_one_sentence(path, capsys):
    whole = path.read_bytes()
    for length in np.linspace(1, len(whole) - 1, 15).astype(int):
        path.write_bytes(whole[:length])
        assert run("info", path) == 2
        assert capsys.readouterr().err.count("\n") == 1


def acdm(folder: Path) -> None:
    rng = np.random.default_rng(0)
    t = Trajectories.from_array(
        rng.uniform(0.5, 1, (2, 3, 4, 6, 4)).astype(np.float32),
        dt=0.1,
        channels=["velocity_x", "velocity_y", "density", "pressure"],
        boundary=["open", "open"],
        parameters={"mach": np.array([0.5, 0.6])},
    )
    save(t, folder, format="acdm")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "velocity_000001.npz",
            None,
            "expected velocity, density and pressure of the same frames",
        ),
        ("velocity_000001.npz", b"", "found a damaged .npz file"),
        ("velocity_000001.npz", np.ones((3, 6, 4)), "found shape (3, 6, 4), expected (2, 6, 4)"),
        ("density_000002.npz", np.zeros((1, 6, 4)), "found inf in trajectory 1, frame 2"),
        ("src/description.json", b"{}", "expected 'Mach Number'"),
        ("src/description.json", b"{", "expected JSON with"),
        ("obstacle_mask.npz", None, "obstacle_mask.npz is missing"),
    ],
)
def test_broken_acdm_folders_get_one_sentence(name, content, sentence, tmp_path, capsys):
    acdm(tmp_path / "tra")
    file = tmp_path / "tra" / "sim_000001" / name
    if content is None:
        file.unlink()
    elif isinstance(content, bytes):
        file.write_bytes(content)
    else:
        np.savez(file, content)
    assert run("info", tmp_path / "tra") == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1


def test_a_real_process_ends_with_code_2_and_no_traceback(path):
    truncated(path)
    command = [sys.executable, "-m", "biasbound.data.commands", "data", "info", str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("biasbound: ")
    assert done.stderr.count("\n") == 1


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from biasbound.data.commands import main\n"
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
    acdm(tmp_path / "tra")
    assert run("convert", tmp_path / "tra", tmp_path / "a.h5", "--momentum") == 0
    assert load(tmp_path / "a.h5").channels[0] == "momentum_x"
    assert run("convert", tmp_path / "a.h5", tmp_path / "tra", "--format", "acdm", "--force") == 2
    assert "is a folder, which is never replaced" in capsys.readouterr().err
    assert run("convert", tmp_path / "a.h5", tmp_path / "copy", "--format", "acdm") == 0
    assert run("convert", tmp_path / "a.h5", tmp_path / "noending") == 2
    assert "names no format" in capsys.readouterr().err


def generate(*options) -> int:
    """Run a generation command as `biasbound data toy` would be registered."""
    given = commands.argparse.ArgumentParser()
    commands.add_parser(given.add_subparsers())
    parsed = given.parse_args(["data", "toy", "--workers", "1", *map(str, options)])
    return parsed.run(parsed)


def test_generate_options_reach_the_source(tmp_path, capsys):
    path = tmp_path / "a.h5"
    options = ["--preset", "smoke", "--split", "test", "--seed", 7, "--trajectories", 3]
    assert generate(*options, "--set", "points=32", "--out", path) == 0
    assert "3 × 5 × 1 × 32 written" in capsys.readouterr().out
    source = ToySource(trajectories=3, frames=5, points=32, split="test", seed=7)
    expected = source.block(0, 3).fields.astype(np.float32)
    assert np.array_equal(load(path).read(0, 3), expected)
    assert generate(*options, "--set", "points=32", "--out", path) == 0
    assert "is there already" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--preset", "huge"], "no preset 'huge'; it has smoke, small"),
        (["--set", "speed=1"], "no setting speed; it has ['batch', "),
        (["--set", "points"], "--set takes NAME=VALUE"),
        (["--trajectories", 0], "trajectories must be at least 1"),
        (["--set", "poison=1"], "found nan in trajectory 1"),
        (["--workers", 0], "workers must be at least 1"),
    ],
)
def test_bad_options_get_one_sentence(options, sentence, tmp_path, capsys):
    assert generate("--out", tmp_path / "a.h5", *options) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1
    assert not (tmp_path / "a.h5").exists()


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


@pytest.mark.parametrize("periodic", [True, False])
def test_vorticity_of_a_rigid_rotation_and_of_a_wave(periodic):
    """Second order: halving the spacing quarters the error; a rotation u = (−y, x) has ω = 2."""
    x = np.linspace(-1, 1, 9)
    rotation = vorticity(-np.tile(x, (9, 1)), np.tile(x, (9, 1)).T, (0.25, 0.25), (False, False))
    assert np.allclose(rotation, 2)
    errors = []
    for n in (16, 32):
        x = 2 * np.pi * np.arange(n) / n
        u, v = np.sin(x)[None] * np.ones((n, 1)), np.cos(2 * x)[:, None] * np.ones((1, n))
        omega = -2 * np.sin(2 * x)[:, None] - np.cos(x)[None]
        error = vorticity(u, v, (2 * np.pi / n,) * 2, (periodic, periodic)) - omega
        errors.append(np.abs(error[2:-2, 2:-2]).max())
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)
