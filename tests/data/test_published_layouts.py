"""Files as other groups publish them (LPSDA, SDA, ACDM, The Well) come back bit for bit, with what they mean."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from data_files import flow, same

from biasbound.data.formats import detect, load, save


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
