"""One small good file of every kind that a command reads, with the call that reads it as the command does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from data_files import acdm_folder, flow
from emulators import emulator

from biasbound.cli.schedules import show
from biasbound.core.schedule import linear
from biasbound.data.describe import describe
from biasbound.data.formats import load, save
from biasbound.metrics.files import open_scene
from biasbound.metrics.rows import read_rows
from biasbound.models.emulator import load as load_emulator
from biasbound.models.weights import load_newest, save_tensors
from biasbound.report.study import read_study
from biasbound.study.folder import Unit, open_run
from biasbound.study.parsing import presets, read_config


@dataclass(frozen=True)
class Specimen:
    """A file or folder, and what is done with it; `text` says that JSON or YAML stands in it."""

    name: str
    make: Callable[[Path], Path]
    use: Callable[[Path], Any]


def _look(path: Path) -> None:
    """`biasbound data info`: everything is read once."""
    told = {"dt": 0.5, "dims": 1} if path.suffix in (".npy", ".mat") else {}
    found = load(path, **told)
    describe(found)
    found.read(0, 1)


def _saved(suffix: str, name: str = "ks", **how: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        save(flow(name), folder / f"a{suffix}", **how)
        return folder / f"a{suffix}"

    return make


def _chunked(folder: Path) -> Path:
    path = _saved(".h5")(folder)
    with h5py.File(path, "r+") as file:
        values, attributes = file["t0_fields/u"][()], dict(file["t0_fields/u"].attrs)
        del file["t0_fields/u"]
        made = file["t0_fields"].create_dataset("u", data=values, chunks=(1, 2, 16), compression="gzip")
        made.attrs.update(attributes)
    return path


def _matlab(folder: Path) -> Path:
    from scipy.io import savemat

    path = folder / "a.mat"
    values = np.random.default_rng(0).normal(size=(16, 30))
    savemat(path, {"uu": values, "tt": np.arange(30.0), "x": np.arange(16.0)}, do_compression=True)
    return path


def _matlab73(folder: Path) -> Path:
    path = folder / "a.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["uu"], file["tt"] = np.random.default_rng(0).normal(size=(30, 16)), np.arange(30.0)[:, None]
        file["uu"].attrs["MATLAB_class"] = np.bytes_("double")
    data = bytearray(path.read_bytes())
    data[:116] = b"MATLAB 7.3 MAT-file, by hand".ljust(116)
    path.write_bytes(data)
    return path


def _netcdf3(folder: Path) -> Path:
    import xarray

    found = xarray.Dataset(
        {"u": (("time", "x"), np.random.default_rng(0).normal(size=(9, 8)))}, {"time": np.arange(9.0)}
    )
    found.to_netcdf(folder / "a.nc", engine="scipy")
    return folder / "a.nc"


def _schedule(folder: Path) -> Path:
    linear(8).save(folder / "a.json")
    return folder / "a.json"


def _emulator(folder: Path) -> Path:
    emulator("eps").save(folder / "e")
    return folder / "e"


def _checkpoint(folder: Path) -> Path:
    target = folder / "c"
    target.mkdir()
    tensors = emulator("direct").model.state_dict()
    save_tensors(target / "checkpoint-000000001.safetensors", tensors, {"options": {}, "progress": {"update": 1}})
    return target


def _prediction(folder: Path) -> Path:
    np.save(folder / "p.npy", flow("ks").read(0, 3)[None, :, 1:])
    return folder / "p.npy"


ROW = {
    "dataset": "ks",
    "method": "direct",
    "seed": 0,
    "metric": "mse",
    "step": 1,
    "value": 1.0,
    "low": 0.5,
    "high": 2.0,
}
ROW |= {"nfe": 1, "updates": 1, "seconds": 0.0}


def _run(folder: Path) -> Path:
    """A run folder as a study leaves it, but for what takes training."""
    run = open_run(folder / "r", read_config(presets()["ks-smoke"]))
    unit = run.path / "03-train/direct/seed-0"
    unit.mkdir(parents=True)
    run.finish(
        Unit("train", label="direct"), {"wall_seconds": 1.0, "cpu_seconds": 1.0, "updates": 3, "nfe": 1, "ledger": 3}
    )
    told = json.loads((unit / "stage.json").read_text())
    (unit / "stage.json").write_text(json.dumps(told | {"config": {}}))  # this unit has none
    (unit / "log.jsonl").write_text('{"update": 5, "loss": 1.0, "lr": 0.1}\n' * 3)
    (unit / "chain.jsonl").write_text(json.dumps({"update": 5, "rows": [{"sigma": 0.1, "own": 1.0}]}) + "\n")
    data = run.path / "01-data"
    data.mkdir()
    save(flow("ks"), data / "test.h5")
    entry = {"path": "test.h5", "options": {}, "part": None, "time": 1, "space": 1, "conditions": []}
    (data / "splits.json").write_text(json.dumps(dict.fromkeys(("train", "valid", "test"), entry)))
    scored = run.path / "06-evaluate/direct/seed-0"
    scored.mkdir(parents=True)
    (scored / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    (scored / "bias.json").write_text(json.dumps([{"sigma": 0.1, "own": 1.0}]))
    (run.path / "results.jsonl").write_text(json.dumps(ROW) + "\n")
    rolled = run.path / "05-rollout/direct/seed-0"
    rolled.mkdir(parents=True)
    (rolled / "rollout.json").write_text('{"dt": 0.2, "first": 1}')
    np.save(rolled / "prediction.npy", flow("ks").read(0, 3)[None, :, 1:])
    return run.path


def _use_run(path: Path) -> None:
    """What `status` and `report` read, without the drawing; the config apart, because parsing it takes long."""
    run = open_run(path, GOOD)
    run.state(Unit("train", label="direct"))
    read_study(path)


def _config(folder: Path) -> Path:
    (folder / "c.yaml").write_text(presets()["ks-smoke"].read_text())
    return folder / "c.yaml"


def _shown(path: Path) -> None:
    show(type("Given", (), {"file": path}))


GOOD = read_config(presets()["ks-smoke"])
TRUTH = flow("ks")
SPECIMENS = [
    Specimen("native HDF5", _saved(".h5"), _look),
    Specimen("native HDF5, two axes", _saved(".h5", "transonic"), _look),
    Specimen("chunked HDF5", _chunked, _look),
    Specimen("LPSDA", _saved(".h5", format="lpsda"), _look),
    Specimen("SDA", _saved(".h5", "kolmogorov", format="sda"), _look),
    Specimen("NetCDF 4", _saved(".nc"), _look),
    Specimen("NetCDF 3", _netcdf3, _look),
    Specimen("MATLAB 5", _matlab, _look),
    Specimen("MATLAB 7.3", _matlab73, _look),
    Specimen("NumPy", _saved(".npy"), _look),
    Specimen("Zarr", _saved(".zarr"), _look),
    Specimen("ACDM", lambda folder: acdm_folder(folder / "acdm"), _look),
    Specimen("schedule", _schedule, _shown),
    Specimen("emulator", _emulator, load_emulator),
    Specimen("checkpoint", _checkpoint, load_newest),
    Specimen("prediction", _prediction, lambda path: open_scene(path, TRUTH)),
    Specimen("rows", lambda folder: _run(folder) / "results.jsonl", read_rows),
    Specimen("run folder", _run, _use_run),
    Specimen("config", _config, read_config),
]
