"""Diagnosis of saved emulators and of networks from outside, by the command."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from calling import called, refused
from emulators import UNITS, model
from toys import advected

from biasbound.core.schedule import Schedule
from biasbound.data.formats import save
from biasbound.data.trajectories import Trajectories
from biasbound.models.emulator import Emulator

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def waves(tmp_path_factory):
    path = tmp_path_factory.mktemp("waves") / "waves.h5"
    save(Trajectories.from_array(advected(3, frames=5).numpy(), dt=1.0, channels=["u"]), path)
    return path


def saved(folder, transition="renoise"):
    denoiser = model("x0 ddim")
    denoiser.transition = transition
    Emulator(denoiser, replace(UNITS, mean=(0.0,)), ("u",), 1.0).save(folder)
    return folder


def test_a_saved_emulator_is_diagnosed_with_its_own_transition(waves, tmp_path, capsys):
    argv = ["--data", waves, "--tau", "9", "--levels", "4", "--sigma-min", "0.1", "--pairs", "8"]
    found = {}
    for transition in ("renoise", "ddim"):
        out = tmp_path / f"found-{transition}"
        code, said, _ = called(["diagnose", saved(tmp_path / transition, transition), *argv, "--out", out], capsys)
        assert code == 0
        assert "the recommended ladder" in said
        assert "the schedule in use: 4 levels" in said
        found[transition] = told = json.loads((out / "diagnosis.json").read_text())
        assert Schedule.load(out / "ladder.json").sigma == tuple(told["ladder"])
        assert len(told["levels"]) == len(told["along_schedule"]) == 4
        assert (out / "diagnosis.png").stat().st_size > 1000
    assert found["renoise"]["levels"] == found["ddim"]["levels"]  # one level knows no chain
    inner = [[row["reb"] for row in told["along_schedule"][:-1]] for told in found.values()]
    assert all(a != b for a, b in zip(*inner, strict=True))


def test_a_network_from_outside_is_diagnosed(tmp_path, capsys, monkeypatch):
    shutil.copy(EXAMPLES / "02_own_network.py", tmp_path)
    run = subprocess.run(
        [sys.executable, "02_own_network.py", "120"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr
    assert "levels are stable" in run.stdout
    monkeypatch.chdir(tmp_path)
    argv = ["diagnose", "02_own_network:denoiser", "--data", "waves.h5", "--sigma-min", "0.05"]
    code, said, _ = called([*argv, "--levels", "4", "--tau", "2", "--pairs", "16"], capsys)
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
