"""MATLAB files of both versions: their axes, complex fields, ends of periodic axes, and damage."""

from __future__ import annotations

import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
from data_files import run
from hypothesis import given, settings
from hypothesis import strategies as st

from biasbound.data.formats import detect, load


def write_v73(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """As MATLAB does: a text block before HDF5, axes from the other end, complex numbers as pairs."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in arrays.items():
            held = np.atleast_2d(values).T
            if held.dtype.kind == "c":
                pairs = np.empty(held.shape, [("real", "f8"), ("imag", "f8")])
                pairs["real"], pairs["imag"] = held.real, held.imag
                held = pairs
            file.create_dataset(name, data=held).attrs["MATLAB_class"] = np.bytes_("double")
        cell = file.create_dataset("words", data=np.array([[104, 105]], dtype=np.uint16))
        cell.attrs["MATLAB_class"] = np.bytes_("char")
    with path.open("r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(512))


WRITERS = {"v5": scipy.io.savemat, "v5c": lambda p, a: scipy.io.savemat(p, a, do_compression=True), "v73": write_v73}
versions = pytest.mark.parametrize("version", WRITERS)
T, X, Y = 0.25 * np.arange(7), np.linspace(-1, 1, 9), np.linspace(0, 3, 5)


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(3)), st.sampled_from([*WRITERS]), st.sampled_from(["t", "tt", "Time"]))
def test_axes_are_found_by_the_vectors_beside_the_field(order, version, name):
    fields = np.random.default_rng(0).normal(size=(7, 9, 5))
    space = [axis for axis in order if axis != 0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "flow.mat")
        arrays = {"u": fields.transpose(order), name: T[None], "x": X[:, None], "y": Y, "nu": np.array(0.1)}
        WRITERS[version](path, arrays)
        assert detect(path) == "matlab"
        t = load(path)
    assert np.array_equal(t.read(0, 1)[0, :, 0], fields.transpose(0, *space))
    assert t.dt == 0.25
    assert t.labels.axes == tuple("txy"[axis] for axis in space)
    assert t.layout.domain == tuple(((0, 0), (-1.0, 1.0), (0.0, 3.0))[axis] for axis in space)
    assert t.layout.boundary == ("open", "open")
    assert t.layout.name == "flow"
    assert t.parameters["nu"].tolist() == [0.1]


@versions
def test_a_complex_field_becomes_two_channels(version, tmp_path):
    real, imaginary = np.random.default_rng(0).normal(size=(2, 9, 7))
    psi = real + 1j * imaginary
    WRITERS[version](tmp_path / "nls.mat", {"psi": psi, "t": T, "x": X})
    t = load(tmp_path / "nls.mat", boundary="open")
    assert t.channels == ("psi_real", "psi_imag")
    assert np.array_equal(t.read(0, 1)[0, :, 0] + 1j * t.read(0, 1)[0, :, 1], psi.T)


def wave(points: np.ndarray) -> np.ndarray:
    """A wave (x, t) that travels around [−1, 1]."""
    return np.sin(np.pi * (points[:, None] - T) + 0.3)


def test_the_doubled_end_of_a_periodic_axis_is_dropped_with_a_word(tmp_path):
    path, doubled = tmp_path / "ks.mat", wave(X)
    doubled[-1] = doubled[0]
    scipy.io.savemat(path, {"u": doubled, "t": T, "x": X})
    for options in ({}, {"boundary": "periodic"}, {"boundary": ["periodic"], "domain": [(0, 5)]}):
        t = load(path, **options)
        assert t.shape == (1, 7, 1, 8)
        assert t.layout.boundary == ("periodic",)
        assert t.layout.domain == tuple(options.get("domain", [(-1.0, 1.0)]))
        assert t.notes == ("ks.mat: the end point of the periodic axis x repeats the first one; it was dropped.",)
        assert np.allclose(np.diff(t.coordinates[0]), t.layout.spacing)
    assert load(path, boundary="open").shape == (1, 7, 1, 9)


def test_ends_that_differ_or_are_fixed_stay(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", {"u": wave(X[:-1]), "t": T, "x": X[:-1]})
    fixed = wave(X)
    fixed[[0, -1]] = 0.0  # a boundary condition, not a copy
    scipy.io.savemat(tmp_path / "b.mat", {"u": fixed, "t": T, "x": X})
    for name in ("a.mat", "b.mat"):
        t = load(tmp_path / name)
        assert t.layout.boundary == ("open",)
        assert "taken as open" in t.notes[0]
    t = load(tmp_path / "a.mat", boundary="periodic")
    assert t.shape == (1, 7, 1, 8)
    assert t.layout.domain[0] == pytest.approx((-1.0, 1.0))


def test_variables_trajectories_and_masks_are_told(tmp_path):
    path, values = tmp_path / "a.mat", np.random.default_rng(0).normal(size=(3, 9, 5, 7))
    land = np.ones((9, 5))
    land[2, 3] = 0
    scipy.io.savemat(path, {"u": values, "v": 2 * values, "t": T, "mask": land})
    for options, sentence in (
        ({}, "found the fields u, v; choose one or several with --variable"),
        ({"variable": "p"}, "found no field 'p'; it has u, v, mask"),
        ({"variable": "u"}, "3 axes are not time; give --dims"),
        ({"variable": "u", "dims": 2, "mask": "ice"}, r"no field 'ice' of shape \(9, 5\)"),
        ({"variable": "u", "dims": 2, "colour": 1}, "matlab has no option 'colour'"),
        ({"variable": "u", "dims": "two"}, r"a\.mat: dims: "),
    ):
        with pytest.raises(ValueError, match=sentence):
            load(path, **options)
    t = load(path, variable="u,v", dims=2, boundary="periodic")
    assert t.channels == ("u", "v")
    assert np.array_equal(t.mask, land == 1)
    assert np.array_equal(t.read(0, 3)[:, :, 1], np.where(land, 2 * np.moveaxis(values, 3, 1), 0))
    scipy.io.savemat(path, {"u": values})
    with pytest.raises(ValueError, match=r"no vector of times .* give --dt"):
        load(path)
    assert load(path, dt=0.1, dims=1, channels="a,b,c,d,e").shape == (3, 9, 5, 7)


@versions
def test_damaged_matlab_files_get_one_sentence(version, tmp_path, capsys):
    path = tmp_path / "a.mat"
    WRITERS[version](path, {"u": np.random.default_rng(0).normal(size=(90, 7)), "t": T})
    whole = path.read_bytes()
    for length in np.linspace(130, len(whole) - 20, 8).astype(int):
        path.write_bytes(whole[:length])
        assert run("info", path) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert str(path) in err
