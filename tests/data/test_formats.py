"""Round trips through every format, The Well's layout in all its variety, and files that stay whole."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from data_files import FLOWS, flow, same

from biasbound import _io as files
from biasbound.data.formats import FORMATS, Format, detect, load, load_splits, native, save
from biasbound.data.trajectories import Trajectories


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("end", ["h5", "npy"])
def test_complete_formats_keep_everything(name, dtype, end, tmp_path):
    t = flow(name, dtype)
    save(t, tmp_path / f"a.{end}")
    again = load(tmp_path / f"a.{end}")
    assert again.layout == t.layout
    assert again.provenance == t.provenance
    assert again.dtype == t.dtype
    same(t, again)


def test_a_folder_of_files_is_one_set(tmp_path):
    t = flow("kolmogorov")
    (tmp_path / "train").mkdir()
    save(t.select([0, 1]), tmp_path / "train" / "a.h5")
    save(t.select([2]), tmp_path / "train" / "b.hdf5")
    same(t, load(tmp_path / "train"))


def test_splits_are_found_by_name(tmp_path):
    t = flow("ks")
    for s, name in enumerate(["KS_train_512.h5", "KS_valid.h5", "KS_test.h5"]):
        save(t.select(s), tmp_path / name, format="lpsda")
    parts = load_splits(tmp_path)
    assert {*parts} == {"train", "valid", "test"}
    for s, name in enumerate(["train", "valid", "test"]):
        assert np.array_equal(parts[name].read(0, 1), t.read(s, s + 1))
    with pytest.raises(ValueError, match="found one file per split"):
        load(tmp_path)
    (tmp_path / "train.h5").touch()
    with pytest.raises(ValueError, match="both look like train"):
        load_splits(tmp_path)


def test_a_plain_array_needs_a_step_and_clear_axes(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((2, 3, 4, 5), np.float32))
    with pytest.raises(ValueError, match="found no time step"):
        load(tmp_path / "a.npy")
    with pytest.raises(ValueError, match=r"may be \(S, K, C, N\) or .* put the domain"):
        load(tmp_path / "a.npy", dt=0.1)
    assert load(tmp_path / "a.npy", dt=0.1, axes=1).shape == (2, 3, 4, 5)
    assert load(tmp_path / "a.npy", dt=0.1, axes=2).shape == (2, 3, 1, 4, 5)
    (tmp_path / "a.json").write_text(json.dumps({"dt": 0.3, "domain": [[0, 1], [0, 2]]}))
    assert load(tmp_path / "a.npy").shape == (2, 3, 1, 4, 5)
    assert load(tmp_path / "a.npy").dt == 0.3
    np.save(tmp_path / "b.npy", np.ones((2, 3, 8)))
    assert load(tmp_path / "b.npy", dt=1.0).shape == (2, 3, 1, 8)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", r"a\.json is damaged \(Invalid JSON.*correct it"),
        ("[]", r"a\.json is damaged .*correct it"),
        ('{"dt": "fast"}', r"a\.json: dt: .*number"),
        ('{"dt": 1, "static": {"mask": [[1], [1, 2]]}}', r"a\.json: found values that make no"),
        ('{"dt": 1, "channels": ["u", "v"]}', "found 2 names for 3 channels"),
    ],
)
def test_a_broken_description_beside_an_array_gets_one_sentence(text, sentence, tmp_path):
    np.save(tmp_path / "a.npy", np.ones((2, 3, 8)))
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        load(tmp_path / "a.npy")


@pytest.fixture
def table(monkeypatch):
    """A format of someone else: one trajectory of one channel as a table, a frame per row."""

    def read(path, dt=1.0):
        return Trajectories.from_array(np.loadtxt(path)[None, :, None], dt=dt, name=str(path))

    made = Format("a table of numbers", lambda path: path.suffix == ".txt", read)
    monkeypatch.setitem(FORMATS, "table", made)
    return made


def test_a_registered_format_is_recognised_and_read(table, tmp_path):
    rows = np.arange(12.0).reshape(3, 4)
    np.savetxt(tmp_path / "a.txt", rows)
    assert detect(tmp_path / "a.txt") == "table"
    t = load(tmp_path / "a.txt", dt=0.5)
    assert np.array_equal(t.read(0, 1)[0, :, 0], rows)
    assert t.dt == 0.5
    with pytest.raises(ValueError, match="table has no option 'momentum'; it has dt"):
        load(tmp_path / "a.txt", momentum=True)
    with pytest.raises(ValueError, match="found the format table, but sda was asked for"):
        load(tmp_path / "a.txt", format="sda")
    with pytest.raises(ValueError, match="table can be read but not written"):
        save(t, tmp_path / "b.txt", format="table")
    (tmp_path / "a.csv").write_text("1,2")
    with pytest.raises(ValueError, match=r"a \.npy array, .* or a table of numbers$"):
        detect(tmp_path / "a.csv")


def test_a_format_that_was_asked_for_goes_before_those_that_also_match(table, tmp_path):
    path = tmp_path / "a.txt"
    save(flow("ks"), path, format="native")
    assert detect(path) == "native"
    with pytest.raises(ValueError, match="codec"):
        load(path, format="table")
    same(load(path, format="well"), flow("ks"))


def test_nothing_is_unpickled(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"of object|found object"):
        load(tmp_path / "a.npy", dt=0.1)
    save(flow("transonic"), tmp_path / "b", format="acdm")
    np.savez(tmp_path / "b" / "sim_000000" / "obstacle_mask.npz", np.array([None], dtype=object))
    with pytest.raises(ValueError, match=r"found a damaged \.npz file|Object arrays cannot be loaded"):
        load(tmp_path / "b")


@pytest.mark.parametrize(("name", "format"), [("kolmogorov", "lpsda"), ("transonic", "sda"), ("ks", "acdm")])
def test_formats_say_what_they_cannot_hold(name, format, tmp_path):
    with pytest.raises(ValueError, match="hold"):
        save(flow(name), tmp_path / "a", format=format)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("format", ["native", "lpsda", "sda", "numpy"])
def test_an_interrupted_write_leaves_the_old_file(format, tmp_path, monkeypatch):
    t = flow("ks")
    path = tmp_path / ("a.npy" if format == "numpy" else "a.h5")
    save(t, path, format=format)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    class Cut(Trajectories):
        def pieces(self, limit=1):
            yield from list(super().pieces())[:1]
            raise KeyboardInterrupt

    cut = Cut(**{name: getattr(t, name) for name in t.__dataclass_fields__})
    with pytest.raises(KeyboardInterrupt):
        save(cut, path, format=format, overwrite=True)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    with pytest.raises(ValueError, match="exists already"):
        save(t, path, format=format)


def test_a_locked_target_is_refused_and_a_stale_lock_is_not(tmp_path):
    path = tmp_path / "a.h5"
    (tmp_path / ".a.h5.lock").touch()  # what a killed process leaves behind
    save(flow("ks"), path)
    with files.lock(tmp_path / ".a.h5.lock"), pytest.raises(ValueError, match="is locked"):
        save(flow("ks"), path, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["a.h5"]


def test_values_that_overflow_the_file_are_refused(tmp_path):
    t = Trajectories.from_array(np.full((1, 2, 1, 4), 1e300), dt=1.0)
    with pytest.raises(ValueError, match="as float32: found inf in trajectory 0, frame 0"):
        native.write_pieces(
            tmp_path / "a.h5", t.layout, t.pieces(), parameters={}, series={}, static={}, provenance={}
        )
    assert not any(tmp_path.iterdir())


def test_one_name_twice_is_refused(tmp_path):
    t = replace(flow("ks"), static={"u": np.zeros(16, np.float32)})
    with pytest.raises(ValueError, match="used twice"):
        save(t, tmp_path / "a.h5")
