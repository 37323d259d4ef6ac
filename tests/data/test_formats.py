"""Round trips through every format, The Well's layout in all its variety, and files that stay whole."""

from __future__ import annotations

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest

from biasbound import _io as files
from biasbound.data.formats import FORMATS, Format, detect, load, load_splits, native, save
from biasbound.data.trajectories import Trajectories

FLOWS = {
    "ks": (("u",), (16,), ("periodic",)),
    "kolmogorov": (("velocity_x", "velocity_y"), (8, 8), ("periodic",) * 2),
    "transonic": (("velocity_x", "velocity_y", "density", "pressure"), (12, 6), ("open",) * 2),
}


def flow(name: str, dtype="float32", **facts) -> Trajectories:
    channels, grid, boundary = FLOWS[name]
    rng = np.random.default_rng(3)
    fields = rng.uniform(0.5, 1.5, (3, 7, len(channels), *grid)).astype(dtype)
    if name == "transonic":
        facts = {
            "parameters": {"mach": np.array([0.51, 0.6, 0.7]), "reynolds": np.full(3, 1e4)},
            "series": {"drag": rng.random((3, 7)), "lift": rng.random((3, 7))},
            "static": {"mask": (rng.random(grid) > 0.1).astype(np.float32)},
        } | facts
    t = Trajectories.from_array(
        fields,
        dt=0.2,
        channels=channels,
        domain=[(0.0, 2 * np.pi)] * len(grid),
        boundary=boundary,
        provenance={"seed": 1, "split": "valid", "list": [1, 2.5]},
        **facts,
    )
    return replace(t, layout=replace(t.layout, name=name))


def same(a: Trajectories, b: Trajectories, facts=True) -> None:
    assert np.array_equal(a.read(0, len(a)), b.read(0, len(b)))
    assert (a.channels, a.dt, a.layout.grid) == (b.channels, b.dt, b.layout.grid)
    assert a.layout.boundary == b.layout.boundary
    assert np.allclose(a.layout.domain, b.layout.domain, rtol=1e-12)
    if facts:
        for kind in ("parameters", "series", "static"):
            mine, other = getattr(a, kind), getattr(b, kind)
            assert {*mine} == {*other}
            for name in mine:
                assert np.array_equal(mine[name], other[name])


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


@pytest.mark.parametrize(("name", "format"), [("ks", "lpsda"), ("ks", "sda"), ("kolmogorov", "sda")])
def test_foreign_files_keep_every_bit(name, format, tmp_path):
    t = flow(name)
    save(t, tmp_path / "a.h5", format=format)
    assert detect(tmp_path / "a.h5") == format
    same(t, load(tmp_path / "a.h5"))
    save(load(tmp_path / "a.h5"), tmp_path / "b.h5")
    save(load(tmp_path / "b.h5"), tmp_path / "c.h5", format=format)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "c.h5").read_bytes()


def lpsda_file(path, jitter: float) -> dict[str, np.ndarray]:
    """A file as LPSDA's generator writes it: time goes on from a warm-up, dt and dx may vary."""
    rng = np.random.default_rng(0)
    end = 9.8 * rng.uniform(1 - jitter, 1 + jitter, 4)
    length = 64 * rng.uniform(1 - jitter, 1 + jitter, 4)
    arrays = {
        "pde_6-16": rng.normal(size=(4, 6, 16)),
        "x": np.stack([np.linspace(0, (1 - 1 / 16) * L, 16) for L in length]),
        "dx": length / 16,
        "t": np.stack([np.linspace(0, T, 50)[-6:] for T in end]),
        "dt": end / 49,
    }
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[f"train/{name}"] = values
    return arrays


@pytest.mark.parametrize("jitter", [0.0, 0.1])
def test_lpsda_files_come_back_bit_for_bit(jitter, tmp_path):
    arrays = lpsda_file(tmp_path / "KS_train_4.h5", jitter)
    t = load(tmp_path / "KS_train_4.h5")
    assert t.dt == pytest.approx(arrays["dt"].mean(), rel=1e-12)
    assert t.layout.domain[0][1] == pytest.approx(16 * arrays["dx"].mean(), rel=1e-12)
    assert ("dt" in t.parameters) == ("length" in t.parameters) == bool(jitter)
    save(t, tmp_path / "native.h5")
    save(load(tmp_path / "native.h5"), tmp_path / "b.h5", format="lpsda")
    with h5py.File(tmp_path / "b.h5") as file:
        assert {*file["train"]} == {*arrays}
        for name, values in arrays.items():
            assert np.array_equal(file["train"][name], values), name


def test_lpsda_times_follow_a_stride(tmp_path):
    arrays = lpsda_file(tmp_path / "a.h5", 0.1)
    save(load(tmp_path / "a.h5").stride(time=2, space=4), tmp_path / "b.h5", format="lpsda")
    with h5py.File(tmp_path / "b.h5") as file:
        assert np.array_equal(file["train/pde_3-4"], arrays["pde_6-16"][:, ::2, ::4])
        assert np.array_equal(file["train/t"], arrays["t"][:, ::2])
        assert np.allclose(file["train/dt"], 2 * arrays["dt"], rtol=1e-12)
        assert np.allclose(file["train/x"], arrays["x"][:, ::4], rtol=1e-12)


def test_sda_files_of_others_have_their_known_step_and_domain(tmp_path):
    with h5py.File(tmp_path / "train.h5", "w") as file:
        file["x"] = np.ones((2, 3, 2, 4, 4), np.float32)
    t = load(tmp_path / "train.h5")
    assert t.dt == 0.2
    assert t.layout.domain == ((0.0, 2 * np.pi),) * 2
    assert load(tmp_path / "train.h5", dt=0.5).dt == 0.5


def test_acdm_velocity_files_hold_momentum(tmp_path):
    """The trap: what is called velocity on disk is ρu."""
    t = flow("transonic", "float64")
    save(t, tmp_path / "128_tra", format="acdm")
    fields = t.read(0, 3)
    for name, part in {"velocity": fields[1, 2, :2] * fields[1, 2, 2:3], "pressure": fields[1, 2, 3:]}.items():
        with np.load(tmp_path / "128_tra" / "sim_000001" / f"{name}_000002.npz") as file:
            assert np.array_equal(file["arr_0"], part)
    again = load(tmp_path / "128_tra")
    assert again.channels == t.channels
    assert again.dt == 0.1
    assert np.allclose(again.read(0, 3), fields, rtol=1e-15)
    for kind in ("parameters", "series", "static"):
        for name, values in getattr(t, kind).items():
            assert np.array_equal(getattr(again, kind)[name], values)


def test_acdm_momentum_comes_back_bit_for_bit(tmp_path):
    save(flow("transonic"), tmp_path / "a", format="acdm")
    t = load(tmp_path / "a", momentum=True)
    assert t.channels[:2] == ("momentum_x", "momentum_y")
    save(t, tmp_path / "a.h5")
    save(load(tmp_path / "a.h5").select([2, 0]), tmp_path / "b", format="acdm")
    again = load(tmp_path / "b", momentum=True)
    assert np.array_equal(again.read(0, 2), t.read(0, 3)[[2, 0]])
    assert np.array_equal(again.parameters["mach"], [0.7, 0.51])


def test_acdm_gaps_in_the_numbering_are_kept(tmp_path):
    save(flow("transonic"), tmp_path / "a", format="acdm")
    (tmp_path / "a" / "sim_000001").rename(tmp_path / "a" / "sim_000016")
    save(load(tmp_path / "a", momentum=True), tmp_path / "b", format="acdm")
    names = sorted(p.name for p in (tmp_path / "b").iterdir())
    assert names == ["sim_000000", "sim_000002", "sim_000016"]


def well_file(path) -> dict[tuple[str, str], np.ndarray]:
    """Vectors, tensors, fields along one axis, constant fields, scalars of all kinds, mixed edges."""
    rng = np.random.default_rng(0)
    shapes = {  # group, name → shape, varies by (sample, time), along (r, z)
        ("t0_fields", "density"): ((2, 5, 4, 6), (True, True), (True, True)),
        ("t0_fields", "inlet"): ((5, 1, 6), (False, True), (False, True)),
        ("t0_fields", "speed"): ((2, 4, 6), (True, False), (True, True)),
        ("t1_fields", "velocity"): ((2, 5, 4, 6, 2), (True, True), (True, True)),
        ("t1_fields", "gravity"): ((4, 6, 2), (False, False), (True, True)),
        ("t2_fields", "stress"): ((2, 5, 4, 6, 2, 2), (True, True), (True, True)),
    }
    values = {key: rng.random(shape).astype("f4") for key, (shape, _, _) in shapes.items()}
    with h5py.File(path, "w") as file:
        file.attrs.update(dataset_name=b"mix", grid_type="cartesian", n_trajectories=2, Re=7.0)
        file["dimensions/time"] = (10 + 0.3 * np.arange(5)).astype("f4")
        file["dimensions/r"] = np.arange(4, dtype="f4")
        file["dimensions/z"] = np.linspace(-1, 1, 6).astype("f4")
        file["dimensions"].attrs["spatial_dims"] = ["r", "z"]
        for i in range(3):
            file.create_group(f"t{i}_fields").attrs["field_names"] = [
                name for group, name in shapes if group == f"t{i}_fields"
            ]
        for (group, name), (_, (sample, time), along) in shapes.items():
            chunks = {"chunks": True, "compression": "gzip"} if name == "stress" else {}
            d = file[group].create_dataset(name, data=values[group, name], **chunks)
            d.attrs.update(sample_varying=sample, time_varying=time, dim_varying=along)
        scalars = {"nu": np.float64(0.1), "mach": np.array([0.5, 0.7]), "heat": np.arange(5.0)}
        file.create_group("scalars").attrs["field_names"] = [*scalars]
        for name, value in scalars.items():
            file["scalars"][name] = value
            file["scalars"][name].attrs.update(sample_varying=name == "mach", time_varying=name == "heat")
        for name, axis, mask in (("a", "r", [1, 0, 0, 1]), ("b", "z", [1, 0, 0, 0, 0, 0])):
            g = file.create_group(f"boundary_conditions/{name}")
            g.attrs.update(bc_type="PERIODIC" if axis == "r" else "wall", associated_dims=[axis])
            g["mask"] = np.array(mask, dtype=bool)
    return values


def test_a_well_file_with_everything(tmp_path):
    values = well_file(tmp_path / "w.hdf5")
    t = load(tmp_path / "w.hdf5")
    parts = ("rr", "rz", "zr", "zz")
    assert t.channels == (*("density", "inlet", "velocity_r", "velocity_z"), *(f"stress_{p}" for p in parts))
    fields = t.read(0, 2)
    assert np.array_equal(fields[:, :, 0], values["t0_fields", "density"])
    inlet = np.broadcast_to(values["t0_fields", "inlet"], (2, 5, 4, 6))
    assert np.array_equal(fields[:, :, 1], inlet)
    assert np.array_equal(fields[:, :, 3], values["t1_fields", "velocity"][..., 1])
    assert np.array_equal(fields[:, :, 6], values["t2_fields", "stress"][..., 1, 0])
    assert np.array_equal(t.static["speed"], values["t0_fields", "speed"])
    assert np.array_equal(t.static["gravity_z"], values["t1_fields", "gravity"][..., 1])
    assert t.parameters["nu"].tolist() == [0.1, 0.1]
    assert t.parameters["mach"].tolist() == [0.5, 0.7]
    assert t.series["heat"].tolist() == [[0, 1, 2, 3, 4]] * 2
    assert t.dt == 0.3
    assert t.layout.boundary == ("periodic", "open")
    assert t.layout.domain == ((0.0, 4.0), (-1.0, 1.0))
    assert t.provenance["Re"] == 7.0
    save(t, tmp_path / "ours.h5")
    same(t, load(tmp_path / "ours.h5"))


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
    with pytest.raises(ValueError, match="found object"):
        load(tmp_path / "a.npy", dt=0.1)
    save(flow("transonic"), tmp_path / "b", format="acdm")
    np.savez(tmp_path / "b" / "sim_000000" / "obstacle_mask.npz", np.array([None], dtype=object))
    with pytest.raises(ValueError, match="Object arrays cannot be loaded"):
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
