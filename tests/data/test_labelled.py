"""Round trips through xarray, NetCDF and Zarr, what dimensions mean, and reading no more than was asked for."""

from __future__ import annotations

import os
import tempfile
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import eccodes
import numpy as np
import pytest
import xarray
from data_files import run
from hypothesis import given, settings
from hypothesis import strategies as st

from biasbound.data.formats import detect, load, save
from biasbound.data.labelled import from_xarray
from biasbound.data.layout import Labels
from biasbound.data.trajectories import Trajectories

ENDS = ("h5", "npy", "nc", "zarr")


@st.composite
def cases(draw) -> dict:
    """What a set of trajectories is like; `made` makes it."""
    rank = draw(st.integers(1, 3))
    return {
        "grid": tuple(draw(st.lists(st.integers(4, 6), min_size=rank, max_size=rank))),
        "channels": draw(st.sampled_from([("u",), ("b", "a"), ("velocity_x", "velocity_y")])),
        "size": (draw(st.integers(1, 3)), draw(st.integers(2, 5))),
        "boundary": draw(st.lists(st.sampled_from(["periodic", "open", "wall"]), min_size=rank, max_size=rank)),
        "points": draw(st.sampled_from(["left", "centre", "ends"])),
        "dt": draw(st.floats(1e-3, 1e3)),
        "dtype": draw(st.sampled_from(["f4", "f8"])),
        "has": draw(st.sets(st.sampled_from(["mask", "facts", "labels"]))),
    }


def made(case: dict) -> Trajectories:
    rng, grid, channels, (s, k) = np.random.default_rng(0), case["grid"], case["channels"], case["size"]
    facts = {}
    if "mask" in case["has"]:
        facts["mask"] = rng.random(grid) > 0.3
        facts["mask"].flat[0] = True
    if "facts" in case["has"]:
        facts |= {"parameters": {"nu": rng.random(s)}, "series": {"drag": rng.random((s, k))}}
        facts |= {"static": {"depth": rng.random(grid).astype(np.float32)}}
    if "labels" in case["has"]:
        names = ("lat", "lon", "height")[: len(grid)]
        facts["labels"] = Labels(names, {channels[0]: "m s-1", "lat": "degrees", "time": "h"})
    t = Trajectories.from_array(
        rng.normal(size=(s, k, len(channels), *grid)).astype(case["dtype"]),
        dt=case["dt"],
        channels=channels,
        domain=[(-1.0, 2.0 + i) for i in range(len(grid))],
        boundary=case["boundary"],
        name="made",
        notes=("a note",),
        provenance={"seed": 3},
        **facts,
    )
    layout = replace(t.layout, points=case["points"])
    return replace(t, layout=layout, coordinates=layout.coordinates())


def same(a: Trajectories, b: Trajectories) -> None:
    assert a.layout == b.layout
    assert a.dtype == b.dtype
    assert np.array_equal(a.read(0, len(a)), b.read(0, len(b)))
    assert (a.notes, dict(a.provenance)) == (b.notes, dict(b.provenance))
    assert a.labels.units == b.labels.units
    assert a.labels.named(len(a.layout.grid)) == b.labels.named(len(a.layout.grid))
    assert np.array_equal(a.mask, b.mask) if a.mask is not None else b.mask is None
    for kind in ("parameters", "series", "static"):
        mine, other = getattr(a, kind), getattr(b, kind)
        assert {*mine} == {*other}
        assert all(np.array_equal(mine[name], other[name]) for name in mine)
    assert all(np.array_equal(x, y) for x, y in zip(a.coordinates, b.coordinates, strict=True))


@settings(max_examples=25, deadline=None)
@given(cases(), st.sampled_from(ENDS))
def test_every_writable_format_keeps_everything(case, end):
    t = made(case)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"a.{end}")
        t.save(path)
        same(t, load(path))


@settings(max_examples=25, deadline=None)
@given(cases())
def test_xarray_keeps_everything(case):
    t = made(case)
    same(t, from_xarray(t.to_xarray()))


def test_a_dataset_that_was_changed_since_says_what_it_is_now():
    values = np.random.default_rng(0).normal(size=(2, 9, 1, 8))
    dataset = Trajectories.from_array(values, dt=0.5, domain=[(0.0, 4.0)], boundary=["periodic"]).to_xarray()
    assert from_xarray(dataset.isel(time=slice(None, None, 2))).dt == 1.0
    assert from_xarray(dataset.isel(time=slice(2, 5))).layout.boundary == ("periodic",)
    part = from_xarray(dataset.isel(x=slice(2, 6)))
    assert (part.layout.domain, part.layout.boundary) == (((1.0, 2.5),), ("open",))
    longer = from_xarray(dataset.assign_coords(x=3 * dataset["x"]), boundary="periodic")
    assert longer.layout.domain == ((0.0, 12.0),)
    moved = from_xarray(dataset, domain=[(0, 1)])
    assert (moved.layout.domain, moved.layout.boundary) == (((0.0, 1.0),), ("periodic",))


def ocean(closing: int = 0) -> object:
    """Temperature on a globe that goes around, with land, packed times and a field of fewer dimensions."""
    lon, lat = np.arange(0, 360 + closing, 30.0), np.arange(60, -61, -30.0)
    land = np.zeros((5, len(lon)), dtype=bool)
    land[1:3, 4:6] = True
    rng = np.random.default_rng(0)
    values = np.where(land, np.nan, rng.normal(size=(6, 5, len(lon))).astype("f4"))
    values[..., -1] = values[..., 0] if closing else values[..., -1]
    return xarray.Dataset(
        {
            "sst": (("time", "latitude", "longitude"), values, {"units": "K"}),
            "depth": (("latitude", "longitude"), rng.random((5, len(lon)))),
            "index": (("time",), rng.random(6)),
        },
        {
            "time": ("time", 6.0 * np.arange(6), {"units": "hours since 2000-01-01"}),
            "latitude": ("latitude", lat, {"units": "degrees_north"}),
            "longitude": ("longitude", lon, {"units": "degrees_east"}),
        },
    )


@pytest.mark.parametrize("closing", [0, 1])
@pytest.mark.parametrize("end", ["nc4", "chunked", "nc3", "zarr", "zarr2"])
def test_a_globe_is_recognised(closing, end, tmp_path):
    dataset, path = ocean(closing), tmp_path / ("sst.zarr" if "zarr" in end else "sst.nc")
    if "zarr" in end:
        dataset.to_zarr(path, consolidated=False, zarr_format=2 if end == "zarr2" else 3)
    elif end == "chunked":
        how = {"zlib": True, "chunksizes": (2, 5, 4)}
        dataset.to_netcdf(path, engine="h5netcdf", encoding={"sst": how})
    else:
        dataset.to_netcdf(path, engine="scipy" if end == "nc3" else "h5netcdf")
    t = load(path)
    assert t.shape == (1, 6, 1, 5, 12)
    assert t.layout.boundary == ("open", "periodic")
    assert t.layout.domain == ((-60.0, 60.0), (0.0, 360.0))
    assert t.dt == 6.0
    assert t.labels.axes == ("latitude", "longitude")
    assert t.labels.units == {
        "sst": "K",
        "time": "hours since 2000-01-01",
        "latitude": "degrees_north",
        "longitude": "degrees_east",
    }
    values = dataset["sst"].values[:, :, :12]
    assert np.array_equal(t.mask, np.isfinite(values[0]))
    assert np.array_equal(t.read(0, 1)[0, :, 0], np.nan_to_num(values))
    assert {*t.static} == {"depth"}
    dropped = [note for note in t.notes if "end point" in note]
    assert len(dropped) == closing
    assert any("missing in every frame" in note and note.startswith(path.name) for note in t.notes)
    assert t.measure().mean == pytest.approx([np.nanmean(values.astype("f8"))])


def test_levels_are_channels_and_members_are_trajectories(tmp_path):
    values = np.random.default_rng(0).normal(size=(3, 2, 5, 2, 4, 6))
    dims = ("number", "trajectory", "time", "level", "y", "x")
    dataset = xarray.Dataset({"t": (dims, values, {"units": "K"})}, {"level": [500, 850], "time": 0.5 * np.arange(5)})
    dataset.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    flat = load(tmp_path / "a.nc", dims=2, boundary="periodic,open")
    assert flat.channels == ("t_500", "t_850")
    assert flat.labels.units == {"t_500": "K", "t_850": "K"}
    assert np.array_equal(flat.read(0, 6), values.reshape(6, 5, 2, 4, 6))
    assert flat.layout.boundary == ("periodic", "open")
    solid = load(tmp_path / "a.nc", boundary="open", channels="T", dt=3.0)
    assert solid.shape == (6, 5, 1, 2, 4, 6)
    assert (solid.channels, solid.dt) == (("T",), 3.0)


def test_a_named_field_is_the_mask_and_variables_are_chosen(tmp_path):
    valid = np.ones((4, 6), dtype=np.int8)
    valid[2] = 0
    fields = {n: (("time", "y", "x"), np.random.default_rng(i).normal(size=(5, 4, 6))) for i, n in enumerate("uvw")}
    dataset = xarray.Dataset({**fields, "mask": (("y", "x"), valid), "sea": (("y", "x"), 1 - valid)})
    dataset = dataset.assign_coords(time=np.arange(5.0))
    t = from_xarray(dataset, variable=["w", "u"])
    assert t.channels == ("w", "u")
    assert np.array_equal(t.mask, valid == 1)
    assert np.array_equal(from_xarray(dataset, mask="sea").mask, valid == 0)
    for options, sentence in (
        ({"variable": "p"}, "no field 'p'; it has u, v, w"),
        ({"mask": "ice"}, "no field 'ice' of zeros and ones for the mask; fields without time: mask, sea"),
        ({"dims": 4}, "cannot have 4 space axes"),
        ({"boundary": ["open", "open", "open"]}, "boundary tells 3|3 entries|3 space axes"),
    ):
        with pytest.raises(ValueError, match=sentence):
            from_xarray(dataset, **options)
    with pytest.raises(ValueError, match="found time steps from 1 to 2, expected equal ones; give --dt"):
        from_xarray(dataset.assign_coords(time=[0.0, 1, 2, 3, 5]))
    with pytest.raises(ValueError, match="no times along time; give the time step with --dt"):
        from_xarray(dataset.drop_vars("time"))


@pytest.mark.parametrize("end", ["nc", "packed", "zarr"])
def test_a_batch_reads_no_other_frames(end, tmp_path, monkeypatch):
    values = np.round(np.random.default_rng(0).normal(size=(4, 40, 1, 16)), 1).astype(np.float32)
    t, path = Trajectories.from_array(values, dt=1.0), tmp_path / ("a.zarr" if end == "zarr" else "a.nc")
    if end == "packed":
        how = {"dtype": "i2", "scale_factor": 0.1, "_FillValue": -999}
        t.to_xarray().to_netcdf(path, engine="h5netcdf", encoding={"u0": how})
    else:
        t.save(path)
    asked, read = [], []
    isel, preadv = xarray.Variable.isel, os.preadv
    monkeypatch.setattr(
        xarray.Variable, "isel", lambda self, part, *a, **k: asked.append(part) or isel(self, part, *a, **k)
    )
    monkeypatch.setattr(os, "preadv", lambda *a: read.append(preadv(*a)) or read[-1])
    windows = load(path).windows(1)
    asked.clear(), read.clear()
    batch = windows[[5, 3 * 39 + 7]]
    costs = [*asked], sum(read)
    assert np.allclose(batch.frames.numpy(), t.windows(1)[[5, 3 * 39 + 7]].frames.numpy(), atol=1e-6)
    again = deepcopy(windows.trajectories).windows(1)[[5, 3 * 39 + 7]]  # by its state, as a worker process gets it
    assert np.array_equal(again.frames.numpy(), batch.frames.numpy())
    if end == "nc":  # plain floats in one piece: bytes as they stand
        assert costs == ([], 2 * 2 * 16 * 4)
    else:
        assert costs[0] == [{"trajectory": 0, "time": slice(5, 7)}, {"trajectory": 3, "time": slice(7, 9)}]


def test_several_files_are_several_trajectories(tmp_path):
    t = Trajectories.from_array(np.random.default_rng(0).normal(size=(3, 5, 1, 8)), dt=1.0, name="run")
    paths = [tmp_path / f"run_{i}.nc" for i in range(3)]
    for i, path in enumerate(paths):
        t.select(i).save(path)
    for given_paths in (paths, tmp_path, str(tmp_path / "run_*.nc")):
        assert np.array_equal(load(given_paths).read(0, 3), t.read(0, 3))
    t.select(2, slice(3)).save(paths[2], overwrite=True)
    with pytest.raises(ValueError, match=r"run_2\.nc does not continue .*run_0\.nc"):
        load(paths)
    with pytest.raises(ValueError, match="no file matches"):
        load(tmp_path / "*.mat")


def small(path: Path) -> Path:
    Trajectories.from_array(np.random.default_rng(0).normal(size=(2, 4, 1, 64)), dt=1.0).save(path)
    return path


def test_damaged_labelled_files_get_one_sentence(tmp_path, capsys):
    whole = small(tmp_path / "a.nc").read_bytes()
    (tmp_path / "b.nc").write_bytes(whole[:-100])
    classic = tmp_path / "c.nc"
    ocean().to_netcdf(classic, engine="scipy")
    classic.write_bytes(classic.read_bytes()[:300])
    small(tmp_path / "d.zarr")
    (tmp_path / "d.zarr" / "u0" / "zarr.json").write_text("{")
    small(tmp_path / "e.zarr")
    next(p for p in (tmp_path / "e.zarr" / "u0" / "c").rglob("*") if p.is_file()).write_bytes(b"xyz")
    (tmp_path / "f.grib").write_bytes(b"GRIB" + bytes(50))
    xarray.Dataset({"a": (("x", "y"), np.ones((2, 3)))}).to_netcdf(tmp_path / "g.nc", engine="h5netcdf")
    for name in ("b.nc", "c.nc", "d.zarr", "e.zarr", "f.grib", "g.nc"):
        assert run("info", tmp_path / name) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1, name
        assert str(tmp_path / name) in err


@pytest.mark.parametrize(
    ("missing", "end", "bundle"), [("xarray", "nc", "io"), ("h5netcdf", "nc", "io"), ("zarr", "zarr", "io")]
)
def test_a_missing_package_is_named_with_its_extra(missing, end, bundle, tmp_path, monkeypatch):
    path = small(tmp_path / f"a.{end}")
    monkeypatch.setitem(__import__("sys").modules, missing, None)
    assert detect(path) == {"nc": "netcdf", "zarr": "zarr"}[end]
    with pytest.raises(
        ValueError, match=rf"a\.{end} needs {missing}: install it with pip install 'biasbound\[{bundle}\]'"
    ):
        load(path)


def grib_file(path: Path, values: np.ndarray) -> None:
    """Temperature at two metres on a globe, every six hours, as a weather centre encodes it."""
    with path.open("wb") as file:
        for k, frame in enumerate(values):
            message = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
            grid = {"Ni": 12, "Nj": 5, "iDirectionIncrementInDegrees": 30, "jDirectionIncrementInDegrees": 30}
            grid |= {"latitudeOfFirstGridPointInDegrees": 60, "latitudeOfLastGridPointInDegrees": -60}
            grid |= {"longitudeOfFirstGridPointInDegrees": 0, "longitudeOfLastGridPointInDegrees": 330}
            moment = {"shortName": "2t", "dataDate": 20200101, "dataTime": 600 * k, "bitsPerValue": 16}
            for key, value in {**grid, **moment}.items():
                eccodes.codes_set(message, key, value)
            eccodes.codes_set_values(message, frame.astype(np.float64).ravel())
            eccodes.codes_write(message, file)
            eccodes.codes_release(message)


def test_a_grib_file_is_read_and_left_alone(tmp_path):
    values = np.random.default_rng(0).normal(280, 5, (4, 5, 12))
    grib_file(tmp_path / "a.grib", values)
    t = load(tmp_path / "a.grib")
    assert t.channels == ("t2m",)
    assert t.layout.boundary == ("open", "periodic")
    assert (t.dt, t.labels.units["t2m"]) == (21600.0, "K")
    assert np.allclose(t.read(0, 1)[0, :, 0], values, atol=1e-2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.grib"]
    with pytest.raises(ValueError, match="can be read but not written"):
        save(t, tmp_path / "b.grib", format="grib")
