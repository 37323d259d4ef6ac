"""Damaged archives, JSON of the wrong shape and odd streams: one sentence each; what nobody foresaw has its own code."""

import json
import os
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pytest
from calling import called, refused
from damage import sentence
from data_files import acdm_folder, flow
from emulators import emulator
from odd import child

from biasbound import cli
from biasbound.data.formats import load, save
from biasbound.models.emulator import load as load_emulator
from biasbound.models.weights import save_tensors
from biasbound.study.folder import Unit, open_run
from biasbound.study.follow import Spent
from biasbound.study.parsing import presets, read_config
from biasbound.study.stages.material import open_split
from biasbound.train.observers import JsonlLog
from biasbound.train.options import FitOptions
from biasbound.train.trainer import Trainer

SHAPES = ["{}", "[]", "null", "3", '"x"', '{"key": 3}', '{"update": "x"}', "[[[]]]", "{", "\x00", ""]


def damaged_archive(path):
    """A compressed member whose bytes, or whose method, are not what they were."""
    whole = path.read_bytes()
    bits, method = bytearray(whole), bytearray(whole)
    bits[60:80] = bytes(20)
    method[whole.index(b"PK\x01\x02") + 10] = 99
    return bytes(bits), bytes(method), whole[:40]


def test_damaged_archives(tmp_path, capsys):
    folder = acdm_folder(tmp_path / "acdm")
    path = folder / "sim_000000/density_000000.npz"
    for data in damaged_archive(path):
        whole = path.read_bytes()
        path.write_bytes(data)
        refused(["data", "info", folder], capsys, path.name)
        path.write_bytes(whole)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(
            "arr_0.npy",
            b"\x93NUMPY\x01\x00\x46\x00{'descr': '<f4', 'fortran_order': False, 'shape': (99999, 99999), }   \n",
        )
    refused(["data", "info", folder], capsys, path.name)


@pytest.mark.parametrize("value", [3, "x", np.nan, [[1, 2], [3, 4]], h5py.Empty("f4"), b"\xff\xfe"])
@pytest.mark.parametrize(
    "name", ["dataset_name", "n_trajectories", "dimensions:spatial_dims", "t0_fields:field_names"]
)
def test_odd_attributes(tmp_path, name, value):
    save(flow("ks"), tmp_path / "a.h5")
    group, _, attribute = name.rpartition(":")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file[group or "/"].attrs[attribute] = value
    with sentence("a.h5"):
        load(tmp_path / "a.h5")


@pytest.mark.parametrize("text", SHAPES)
def test_files_of_a_run_with_the_wrong_shape(tmp_path, text, capsys):
    config = read_config(presets()["ks-smoke"])
    run, unit = open_run(tmp_path / "run", config), Unit("train", label="direct")
    folder = run.begin(unit)
    begun = (folder / "begun.json").read_text()
    (folder / "begun.json").write_text(text)
    assert called(["status", run.path], capsys)[0] in (0, 2)
    for name in ("begun.json", "stage.json"):
        (folder / name).write_text(text)
        with sentence(name):
            run.state(unit)
        (folder / name).unlink()
    (folder / "begun.json").write_text(begun)
    (folder / "splits.json").write_text(text)
    for name, read in {
        "spent.json": lambda: Spent(folder),
        "log.jsonl": lambda: JsonlLog(folder / "log.jsonl").start(3, 4),
        "splits.json": lambda: open_split(folder, "train"),
    }.items():
        (folder / name).write_text(text)
        with sentence(name):
            read()


@pytest.mark.parametrize(
    "meta", [{}, {"options": 3}, {"options": {}, "progress": []}, {"options": None, "progress": {}}]
)
def test_checkpoints_of_the_wrong_shape(tmp_path, meta):
    model = emulator("direct").model
    save_tensors(tmp_path / "checkpoint-000000001.safetensors", model.state_dict(), meta)
    with pytest.raises(ValueError, match=r"checkpoint|holds a training"):
        Trainer(model, lambda index: index, 64, FitOptions(updates=2, batch=2), folder=tmp_path)


@pytest.mark.parametrize("field", ["model", "options", "network", "residual", "task", "sha256", "facts"])
@pytest.mark.parametrize("value", [None, 3, "x", [], {}, {"name": []}, [[]], -1.5, True])
def test_configs_of_emulators_with_wrong_types(tmp_path, field, value):
    emulator("eps").save(tmp_path / "e")
    path = tmp_path / "e/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with sentence(tmp_path / "e"):
        load_emulator(tmp_path / "e")


LINES = [
    ["data", "ks", "--out", "a.h5", "--set", "frames=x"],
    ["diagnose", "..:x", "--data", "x.h5"],
    ["diagnose", ":", "--data", "x"],
]


@pytest.mark.parametrize("line", LINES)
def test_lines_that_ended_in_a_traceback(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    refused(line, capsys)


def test_what_nobody_foresaw_is_a_report_and_its_own_code(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def broken(argv):
        raise AssertionError("never\x1b[2J thought of")

    monkeypatch.setattr(cli, "_called", broken)
    code, _, said = called(["status", "x"], capsys)
    assert code == 70
    assert len(said.splitlines()) == 1
    assert "\x1b" not in said
    (report,) = tmp_path.glob("biasbound-report-*.txt")
    assert str(report) in said
    assert "in broken" in report.read_text()
    for error, word in ((MemoryError(), "memory"), (RecursionError(), "deeply")):
        monkeypatch.setattr(cli, "_called", lambda argv, error=error: (_ for _ in ()).throw(error))
        code, _, said = called(["status", "x"], capsys)
        assert (code, word in said) == (2, True)


SHOW = [sys.executable, "-m", "biasbound", "schedule", "show"]


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (1, 2)], ids=str)
def test_closed_streams(closed, tmp_path):
    def prepare():
        for number in closed:
            os.close(number)
        for number, name in ((1, "stdout"), (2, "stderr")):
            if number in closed:
                setattr(sys, name, None)  # as Python has it where there is none

    assert child(("schedule", "make", "linear", "-T", "5", "--out", "l.json"), tmp_path, prepare)[0] == 0
    assert len(json.loads((tmp_path / "l.json").read_text())["sigma"]) == 5


def test_a_shell_that_closes_them_all(tmp_path):
    target = tmp_path / "l.json"
    line = f"{sys.executable} -m biasbound schedule make linear -T 5 --out {target} >&- 2>&- <&-"
    assert subprocess.run(["sh", "-c", line], check=False).returncode == 0
    assert len(json.loads(target.read_text())["sigma"]) == 5


def test_an_ascii_terminal(tmp_path):
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    said = subprocess.run([*SHOW, str(tmp_path / "σ.json")], capture_output=True, env=ascii_only, check=False)
    assert said.returncode == 2
    assert said.stderr.count(b"\n") == 1


def test_a_reader_that_left(tmp_path):
    def prepare():
        reading, writing = os.pipe()
        os.close(reading)
        os.dup2(writing, 2)

    assert child(("schedule", "show", "nowhere"), tmp_path, prepare)[0] == 2
