"""Diagnosis of saved emulators and of networks from outside."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from calling import called, refused

import biasbound
from biasbound.core.oracle import AffineOracle
from biasbound.core.schedule import Schedule
from biasbound.data.formats import save
from biasbound.data.trajectories import Trajectories
from biasbound.study.parsing import read_config
from biasbound.study.stages.evaluate import Cost, make_evaluate
from biasbound.study.stages.material import Material, open_split
from biasbound.study.stages.rollout import make_rollout, roll
from biasbound.train.diagnose import diagnose
from biasbound.train.options import SearchOptions

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_saved_emulator_is_diagnosed(linear, tmp_path, capsys):
    emulator, data = linear / "03-train/linear/seed-0/emulator", linear / "01-data/test.h5"
    out = tmp_path / "found"
    argv = [
        "diagnose",
        emulator,
        "--data",
        data,
        "--tau",
        "3",
        "--levels",
        "5",
        "--sigma-min",
        "0.1",
    ]
    code, said, _ = called([*argv, "--pairs", "8", "--out", out], capsys)
    assert code == 0
    assert "the recommended ladder" in said
    count = len(biasbound.load(emulator).schedule)
    assert f"the schedule in use: {count} levels" in said
    told = json.loads((out / "diagnosis.json").read_text())
    assert Schedule.load(out / "ladder.json").sigma == tuple(told["ladder"])
    assert len(told["levels"]) == 5
    assert len(told["along_schedule"]) == count
    assert (out / "diagnosis.png").stat().st_size > 1000


def test_a_diagnosis_follows_the_emulators_own_transition(linear, tmp_path, capsys):
    saved = biasbound.load(linear / "03-train/linear/seed-0/emulator")
    argv = ["--data", linear / "01-data/test.h5", "--tau", "3", "--levels", "3", "--pairs", "4"]
    found = {}
    for transition in ("renoise", "ddim"):
        replace(saved, transition=transition).save(tmp_path / transition)
        out = tmp_path / f"found-{transition}"
        assert called(["diagnose", tmp_path / transition, *argv, "--out", out], capsys)[0] == 0
        found[transition] = json.loads((out / "diagnosis.json").read_text())
    assert found["renoise"]["levels"] == found["ddim"]["levels"]  # one level knows no chain
    inner = [[row["reb"] for row in told["along_schedule"][:-1]] for told in found.values()]
    assert all(a != b for a, b in zip(*inner, strict=True))


def test_an_emulator_is_used_with_the_transition_of_the_config(linear):
    emulator = linear / "03-train/linear/seed-0/emulator"
    assert biasbound.load(emulator).transition == "renoise"
    config, rolled, biases = read_config(linear / "config.yaml"), {}, {}
    for transition in ("renoise", "ddim"):
        folder = linear.parent / transition
        folder.mkdir()
        told = replace(config, rollout=replace(config.rollout, transition=transition))
        material = Material(told, linear / "01-data")
        make_rollout(told, 0, material, folder, emulator)
        cost = Cost(nfe=1, updates=1, seconds=0.0)
        make_evaluate(told, "linear", 0, material, folder, folder, emulator, cost)
        rolled[transition] = np.load(folder / "prediction.npy")
        biases[transition] = json.loads((folder / "bias.json").read_text())
    used = replace(biasbound.load(emulator), transition="ddim")
    expected, _ = roll(used, open_split(linear / "01-data", "test"), config.rollout)
    assert np.array_equal(rolled["ddim"], expected)
    assert not np.array_equal(rolled["ddim"], rolled["renoise"])
    assert biases["ddim"] != biases["renoise"]


def test_a_diagnosis_of_an_exact_network_finds_its_closed_form():
    oracle = AffineOracle(error=lambda s: 0.3 * s, sensitivity=lambda s: 0.02)
    pairs = oracle.pairs((64, 1, 32), torch.Generator().manual_seed(0))
    found = diagnose(oracle, *pairs, SearchOptions(levels=16, draws=2))
    assert found.stable == tuple(found.levels)
    assert found.ladder.sigma[0] == min(found.levels)
    assert all(row.reb.mean < 1.1 for row in found.along_ladder)
    for sigma, level in found.levels.items():
        assert level.clean.mean >= 0.29 * sigma


def test_a_network_from_outside_is_diagnosed(tmp_path, capsys, monkeypatch):
    shutil.copy(EXAMPLES / "02_own_network.py", tmp_path)
    run = subprocess.run(
        [sys.executable, "02_own_network.py", "200"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr
    assert "ladder:" in run.stdout
    monkeypatch.chdir(tmp_path)
    argv = ["diagnose", "02_own_network:denoiser", "--data", "waves.h5", "--sigma-min", "0.05"]
    code, said, _ = called([*argv, "--levels", "8", "--tau", "1.2"], capsys)
    assert code == 0
    assert "own bias" in said
    assert "the recommended ladder" in said


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("import nosuchmodule", "nosuchmodule"),
        ("def other(): ...", "denoiser"),
        ("denoiser = 3", "not a function"),
        ("def denoiser(): return 3", "returned int"),
        ("def denoiser(argument): ...", "no arguments"),
        ("def denoiser(): return lambda y, x, s: y[:, :, :3]", "shape"),
        ("def denoiser(): return lambda y, x, s: y * float('nan')", "NaN"),
    ],
)
def test_a_factory_that_does_not_work_is_refused(body, complaint, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "factory", raising=False)
    fields = np.random.default_rng(0).normal(size=(3, 5, 1, 16)).astype(np.float32)
    save(Trajectories.from_array(fields, dt=1.0), tmp_path / "d.h5")
    (tmp_path / "factory.py").write_text(body)
    refused(["diagnose", "factory:denoiser", "--data", "d.h5"], capsys, complaint)
