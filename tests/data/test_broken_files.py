"""Truncated, empty, wrong-key, NaN-holding, wrong-rank and zero-length files: one sentence each, exit code 2."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from data_files import acdm_folder, good_file, run

from biasbound.data.columns import hdf5_column


@pytest.fixture
def path(tmp_path) -> Path:
    return good_file(tmp_path / "good.h5")


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
    return "of shape (0, 4, 8)", "without zeros"


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
        np.save(file, np.ones(8))
    return "found shape (8,)", "expected (S, K, C, *N)"


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


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("velocity_000001.npz", None, "expected velocity, density and pressure of the same frames"),
        ("velocity_000001.npz", b"", "found a damaged .npz file"),
        ("velocity_000001.npz", np.ones((3, 6, 4)), "found shape (3, 6, 4), expected (2, 6, 4)"),
        ("density_000002.npz", np.zeros((1, 6, 4)), "found inf in trajectory 1, frame 2"),
        ("src/description.json", b"{}", "expected 'Mach Number'"),
        ("src/description.json", b"{", "expected JSON with"),
        ("obstacle_mask.npz", None, "obstacle_mask.npz is missing"),
    ],
)
def test_broken_acdm_folders_get_one_sentence(name, content, sentence, tmp_path, capsys):
    file = acdm_folder(tmp_path / "tra") / "sim_000001" / name
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


def test_frames_that_a_dataset_does_not_have_are_damage(tmp_path):
    """Metadata may promise trajectories that the dataset itself lacks; h5py then raises an IndexError."""
    path = tmp_path / "short.h5"
    columns = []
    for trajectories in (2, 1):
        with h5py.File(path, "w") as file:
            file.create_dataset("u", data=np.zeros((trajectories, 3, 4), np.float32), chunks=(1, 1, 4))
            columns.append(hdf5_column(path, file["u"], (4,)))
    with pytest.raises(ValueError, match=r"short\.h5: found damaged frames in /u"):
        columns[0].read(np.array([4]))
