"""The commands as people meet them: single emulators and files, and what they say to bad input."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import biasbound
from biasbound.cli import main
from biasbound.commands.wish import wish_of
from biasbound.config import read_config
from biasbound.data.formats import load, save
from biasbound.data.trajectories import Trajectories
from biasbound.diagnose import diagnose
from biasbound.noise import Schedule, alpha_bar, cosine
from biasbound.options import SearchOptions
from biasbound.oracle import AffineOracle
from biasbound.pipeline.evaluate import Cost, make_evaluate
from biasbound.pipeline.material import Material, open_split
from biasbound.pipeline.rollout import make_rollout, roll
from biasbound.rows import read_rows, select

EXAMPLES = Path(__file__).parents[1] / "examples"
TINY = ["--preset", "ks-smoke", "--jobs", "1", "--train.updates", "6", "--train.evaluations", "1"]


def called(argv, capsys):
    """(exit code, stdout, stderr) of a command."""
    try:
        code = main([str(a) for a in argv])
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr()
    return code, said.out, said.err


def refused(argv, capsys, *complaints):
    """The command ends with exit code 2 and one sentence that holds these words."""
    code, _, said = called(argv, capsys)
    assert code == 2, said
    sentences = [line for line in said.splitlines() if line.startswith("biasbound")]
    assert len(sentences) == 1, said
    assert "Traceback" not in said
    for complaint in complaints:
        assert complaint in sentences[0], sentences[0]


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    """A run with one diffusion emulator and one direct one."""
    folder = tmp_path_factory.mktemp("commands") / "run"
    assert main(["train", str(folder), "--method", "linear,unet", *TINY]) == 0
    return folder


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


def test_prediction_and_score_of_a_single_emulator(linear, tmp_path, capsys):
    emulator, data = linear / "03-train/linear/seed-0/emulator", linear / "01-data/test.h5"
    out = tmp_path / "p.npy"
    argv = ["predict", emulator, "--data", data, "--out", out, "--steps", "3", "--members", "2"]
    code, said, _ = called(argv, capsys)
    assert code == 0
    assert f"next: biasbound score {out}" in said
    states = np.load(out, allow_pickle=False)
    assert states.shape == (2, len(load(data)), 3, 1, 64)
    assert not np.array_equal(states[0], states[1])
    refused(argv, capsys, "exists already")
    code, said, _ = called(
        [
            "score",
            out,
            "--truth",
            data,
            "--train",
            linear / "01-data/train.h5",
            "--out",
            tmp_path / "r.jsonl",
        ],
        capsys,
    )
    assert code == 0
    rows = read_rows(tmp_path / "r.jsonl")
    truth = load(data).read(0, 4, slice(1, 4))
    (first,) = select(rows, metric="mse", step=1)
    assert first.value == pytest.approx(np.mean((states[0] - truth)[:, 0] ** 2), rel=1e-4)
    assert {"crps", "spread_skill", "mse_norm"} <= {r.metric for r in rows}


def test_the_hint_after_a_prediction_names_its_strides(linear, tmp_path, capsys):
    emulator = biasbound.load(linear / "03-train/linear/seed-0/emulator")
    fine = np.random.default_rng(0).normal(size=(2, 9, 1, 128)).astype(np.float32)
    data = Trajectories.from_array(fine, dt=emulator.dt / 4, channels=emulator.channels)
    save(data, tmp_path / "fine.h5")
    argv = ["predict", linear / "03-train/linear/seed-0/emulator", "--data", tmp_path / "fine.h5"]
    code, said, _ = called(
        [*argv, "--out", tmp_path / "p.npy", "--time", "4", "--space", "2"], capsys
    )
    assert code == 0
    hint = said.splitlines()[-1]
    assert hint.endswith("fine.h5 --time 4 --space 2")
    assert called(hint.removeprefix("next: biasbound ").split(), capsys)[0] == 0


def test_a_foreign_array_without_members_is_scored(tmp_path, capsys):
    fields = np.random.default_rng(0).normal(size=(4, 6, 1, 16)).astype(np.float32)
    save(Trajectories.from_array(fields, dt=0.5, name="mine"), tmp_path / "truth.h5")
    np.save(tmp_path / "p.npy", fields[:, 1:])
    code, said, _ = called(
        ["score", tmp_path / "p.npy", "--truth", tmp_path / "truth.h5", "--name", "perfect"],
        capsys,
    )
    assert code == 0
    assert "perfect" in said
    refused(["score", tmp_path / "none.npy", "--truth", tmp_path / "truth.h5"], capsys, "none.npy")


def test_data_that_do_not_fit_the_emulator_are_refused(linear, tmp_path, capsys):
    emulator = linear / "03-train/linear/seed-0/emulator"
    two = np.zeros((2, 4, 2, 64), np.float32)
    save(Trajectories.from_array(two, dt=0.8), tmp_path / "two.h5")
    other = ["--data", tmp_path / "two.h5"]
    refused(
        ["predict", emulator, *other, "--out", tmp_path / "p.npy"], capsys, "channels", "two.h5"
    )
    refused(["diagnose", emulator, *other], capsys, "channels")
    one = np.random.default_rng(0).normal(size=(2, 4, 1, 64)).astype(np.float32)
    save(Trajectories.from_array(one, dt=0.1, channels=["u"]), tmp_path / "one.h5")
    argv = ["predict", emulator, "--data", tmp_path / "one.h5", "--out", tmp_path / "p.npy"]
    refused(argv, capsys, "time step")
    refused(["diagnose", emulator, "--data", tmp_path / "one.h5"], capsys, "time step")
    refused(
        ["diagnose", linear / "03-train/unet/seed-0/emulator", *other], capsys, "only diffusion"
    )
    assert not (tmp_path / "p.npy").exists()


@pytest.mark.parametrize(
    ("argv", "complaints"),
    [
        (["run"], ["--preset"]),
        (["run", "nowhere"], ["nowhere", "--preset"]),
        (["run", "--preset", "nosuch"], ["nosuch", "ks-demo"]),
        (["run", "--preset", "ks-smoke", "--nosuch", "3"], ["--nosuch"]),
        (["run", "--preset", "ks-smoke", "--train.lrr", "3"], ["did you mean --train.lr?"]),
        (["run", "--preset", "ks-smoke", "--search.tau", "0.9"], ["tau"]),
        (["run", "--preset", "ks-smoke", "--search.levels", "0"], ["levels"]),
        (["run", "--preset", "ks-smoke", "--methods", "nosuch"], ["nosuch", "adaptive"]),
        (
            ["run", "--preset", "ks-smoke", "--data.dataset", "my", "--data.train", "no.h5"],
            ["no.h5"],
        ),
        (["run", "--preset", "ks-smoke", "--data.size", "vast"], ["vast"]),
        (["run", "--preset", "ks-smoke", "--data.settings", "{colour: red}"], ["colour"]),
        (["run", "--config", "no.yaml"], ["no.yaml"]),
        (["report", "nowhere"], ["nowhere"]),
        (["status", "nowhere"], ["nowhere"]),
        (["compare", "nowhere", "--out", "x"], ["nowhere"]),
        (["diagnose", "nowhere", "--data", "no.h5"], ["no.h5"]),
        (["schedule", "make", "levels", "--out", "x.json"], ["--sigma"]),
        (["schedule", "make", "levels", "--sigma", "0.5,0.1", "--out", "x.json"], ["increase"]),
        (["schedule", "plot", "no.json", "--out", "x.png"], ["no.json"]),
        (["schedule", "plot", "no.json", "--out", "x.doc"], ["x.doc"]),
    ],
)
def test_bad_input_gets_one_sentence(argv, complaints, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(argv, capsys, *complaints)
    kept = {"run.json", "config.yaml", "begun.json"}  # a run that failed at its first stage
    assert {p.name for p in tmp_path.rglob("*") if p.is_file()} <= kept


def test_fine_tuning_takes_the_methods_that_can_be(tmp_path):
    start = [str(tmp_path / "r"), "--preset", "ks-smoke"]
    assert wish_of("finetune", start).methods == ("adaptive-proxy",)
    for label in ("linear", "linear-proxy"):
        assert wish_of("finetune", [*start, "--method", label]).methods == ("linear-proxy",)
    with pytest.raises(ValueError, match="--method"):
        wish_of("finetune", [*start, "--methods", "unet,linear"])


@pytest.mark.parametrize("manner", ["--threads=0", "--device=gpu", "--device=cuda:0"])
def test_a_manner_that_cannot_be_is_refused_before_anything_is_made(
    manner, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    refused(["train", tmp_path / "r", *TINY, manner], capsys, manner.partition("=")[2])
    assert not (tmp_path / "r").exists()


def test_no_level_solved_says_what_to_change(tmp_path, capsys):
    argv = ["search", tmp_path / "r", *TINY, "--method", "adaptive", "--search.tau", "1"]
    refused([*argv, "--search.sigma_max", "0.06"], capsys, "train longer", "raise τ")


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    refused(["run", tmp_path / "file" / "run", "--preset", "ks-smoke"], capsys, "file")
    refused(["run", "/proc/run", "--preset", "ks-smoke"], capsys, "/proc/run")


def test_a_full_disk_loses_nothing(tmp_path):
    """A limit on the size of files stands for the end of the disk; without it the same command goes on."""
    command = [sys.executable, "-m", "biasbound", "train", "run", "--method", "unet", *TINY]

    def tight():
        resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, 15_000))

    full = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, preexec_fn=tight
    )
    assert full.returncode == 2, full.stderr
    assert "Traceback" not in full.stderr
    assert not list(tmp_path.rglob("*.writing"))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    biasbound.load(tmp_path / "run/03-train/unet/seed-0/emulator")


def test_a_damaged_emulator_is_refused(linear, tmp_path, capsys):
    folder = tmp_path / "emulator"
    shutil.copytree(linear / "03-train/linear/seed-0/emulator", folder)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-8])
    argv = ["predict", folder, "--data", linear / "01-data/test.h5", "--out", tmp_path / "p.npy"]
    refused(argv, capsys, "model.safetensors")


def test_schedules_are_exported_exactly(tmp_path, capsys):
    cosine(8).save(tmp_path / "c.json")
    for kind in ("txt", "csv", "betas"):
        argv = [
            "schedule",
            "export",
            tmp_path / "c.json",
            "--format",
            kind,
            "--out",
            tmp_path / kind,
        ]
        assert called(argv, capsys)[0] == 0
    levels = [float(line) for line in (tmp_path / "txt").read_text().splitlines()]
    assert tuple(levels) == cosine(8).sigma
    header, *lines = (tmp_path / "csv").read_text().splitlines()
    assert header == "t,sigma,alpha_bar,log_snr"
    assert [float(line.split(",")[1]) for line in lines] == levels
    betas = json.loads((tmp_path / "betas").read_text())["trained_betas"]
    assert np.cumprod(1 - np.array(betas)) == pytest.approx(
        [alpha_bar(s) for s in levels], rel=1e-9
    )
    sigmas = ",".join(map(repr, levels))
    argv = ["schedule", "make", "levels", "--sigma", sigmas, "--out", tmp_path / "again.json"]
    assert called(argv, capsys)[0] == 0
    assert Schedule.load(tmp_path / "again.json") == cosine(8)
    argv = [
        "schedule",
        "plot",
        tmp_path / "c.json",
        tmp_path / "again.json",
        "--out",
        tmp_path / "s.png",
    ]
    assert called(argv, capsys)[0] == 0
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


def test_every_command_has_help_with_an_example(capsys):
    verbs = ["run", "search", "train", "finetune", "rollout", "evaluate", "report"]
    verbs += ["status", "compare", "diagnose", "predict", "score"]
    for verb in verbs:
        code, said, _ = called([verb, "--help"], capsys)
        assert code == 0
        assert f"example: biasbound {verb}" in " ".join(said.split())


def test_a_reader_that_closes_the_pipe_gets_no_complaint(linear):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "biasbound", "status", str(linear)],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")
