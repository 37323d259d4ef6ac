"""The commands as people meet them: single emulators and files, and what they say to bad input."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from calling import TINY, called, program, refused

import biasbound
from biasbound import registry
from biasbound.cli import main
from biasbound.cli.wish import wish_of
from biasbound.core.noise import alpha_bar
from biasbound.core.schedule import Schedule, cosine
from biasbound.data.formats import load, save
from biasbound.data.trajectories import Trajectories
from biasbound.metrics.rows import read_rows, select
from biasbound.nets import NETS


def test_prediction_and_score_of_a_single_emulator(smoke, tmp_path, capsys):
    emulator, data = smoke / "03-train/linear/seed-0/emulator", smoke / "01-data/test.h5"
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
        ["score", out, "--truth", data, "--train", smoke / "01-data/train.h5", "--out", tmp_path / "r.jsonl"], capsys
    )
    assert code == 0
    rows = read_rows(tmp_path / "r.jsonl")
    truth = load(data).read(0, 4, slice(1, 4))
    (first,) = select(rows, metric="mse", step=1)
    assert first.value == pytest.approx(np.mean((states[0] - truth)[:, 0] ** 2), rel=1e-4)
    assert {"crps", "spread_skill", "mse_norm"} <= {r.metric for r in rows}


def test_the_hint_after_a_prediction_names_its_strides(smoke, tmp_path, capsys):
    emulator = biasbound.load(smoke / "03-train/linear/seed-0/emulator")
    fine = np.random.default_rng(0).normal(size=(2, 9, 1, 128)).astype(np.float32)
    data = Trajectories.from_array(fine, dt=emulator.dt / 4, channels=emulator.channels)
    save(data, tmp_path / "fine.h5")
    argv = ["predict", smoke / "03-train/linear/seed-0/emulator", "--data", tmp_path / "fine.h5"]
    code, said, _ = called([*argv, "--out", tmp_path / "p.npy", "--stride-time", "4", "--stride-space", "2"], capsys)
    assert code == 0
    hint = said.splitlines()[-1]
    assert hint.endswith("fine.h5 --stride-time 4 --stride-space 2")
    assert called(hint.removeprefix("next: biasbound ").split(), capsys)[0] == 0


def test_a_foreign_array_without_members_is_scored(tmp_path, capsys):
    fields = np.random.default_rng(0).normal(size=(4, 6, 1, 16)).astype(np.float32)
    save(Trajectories.from_array(fields, dt=0.5, name="mine"), tmp_path / "truth.h5")
    np.save(tmp_path / "p.npy", fields[:, 1:])
    code, said, _ = called(
        ["score", tmp_path / "p.npy", "--truth", tmp_path / "truth.h5", "--name", "perfect"], capsys
    )
    assert code == 0
    assert "perfect" in said
    refused(["score", tmp_path / "none.npy", "--truth", tmp_path / "truth.h5"], capsys, "none.npy")


def test_data_that_do_not_fit_the_emulator_are_refused(smoke, tmp_path, capsys):
    emulator = smoke / "03-train/linear/seed-0/emulator"
    two = np.zeros((2, 4, 2, 64), np.float32)
    save(Trajectories.from_array(two, dt=0.8), tmp_path / "two.h5")
    other = ["--data", tmp_path / "two.h5"]
    refused(["predict", emulator, *other, "--out", tmp_path / "p.npy"], capsys, "channels", "two.h5")
    refused(["diagnose", emulator, *other], capsys, "channels")
    one = np.random.default_rng(0).normal(size=(2, 4, 1, 64)).astype(np.float32)
    save(Trajectories.from_array(one, dt=0.1, channels=["u"]), tmp_path / "one.h5")
    argv = ["predict", emulator, "--data", tmp_path / "one.h5", "--out", tmp_path / "p.npy"]
    refused(argv, capsys, "time step")
    refused(["diagnose", emulator, "--data", tmp_path / "one.h5"], capsys, "time step")
    refused(["diagnose", smoke / "03-train/direct/seed-0/emulator", *other], capsys, "only a diffusion emulator")
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
        (["run", "--preset", "ks-smoke", "--data.dataset", "my", "--data.train", "no.h5"], ["no.h5"]),
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
        wish_of("finetune", [*start, "--methods", "direct,linear"])


def test_a_list_of_methods_may_be_longer_than_the_name_of_a_file(tmp_path):
    labels = [f"direct-ut{n}" for n in range(1, 60)]
    wish = wish_of("evaluate", [str(tmp_path / "r"), "--preset", "ks-smoke", "--methods", ",".join(labels)])
    assert list(wish.config.methods) == labels


@pytest.mark.parametrize("manner", ["--threads=0", "--device=gpu", "--device=cuda:0"])
def test_a_manner_that_cannot_be_is_refused_before_anything_is_made(manner, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    refused(["train", tmp_path / "r", *TINY, manner], capsys, manner.partition("=")[2])
    assert not (tmp_path / "r").exists()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    refused(["run", tmp_path / "file" / "run", "--preset", "ks-smoke"], capsys, "file")
    refused(["run", "/proc/run", "--preset", "ks-smoke"], capsys, "/proc/run")


@pytest.mark.long
def test_a_full_disk_loses_nothing(tmp_path):
    """A limit on the size of files stands for the end of the disk; without it the same command goes on."""
    command = ["train", tmp_path / "run", "--method", "direct", *TINY]

    def tight():
        resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, 15_000))

    full = program(*command, preexec_fn=tight)
    assert full.returncode == 2, full.stderr
    assert "Traceback" not in full.stderr
    assert not list(tmp_path.rglob("*.writing"))
    assert main([str(word) for word in command]) == 0
    biasbound.load(tmp_path / "run/03-train/direct/seed-0/emulator")


def test_a_damaged_emulator_is_refused(smoke, tmp_path, capsys):
    folder = tmp_path / "emulator"
    shutil.copytree(smoke / "03-train/linear/seed-0/emulator", folder)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-8])
    argv = ["predict", folder, "--data", smoke / "01-data/test.h5", "--out", tmp_path / "p.npy"]
    refused(argv, capsys, "model.safetensors")


def test_schedules_are_exported_exactly(tmp_path, capsys):
    cosine(8).save(tmp_path / "c.json")
    for kind in ("txt", "csv", "betas"):
        argv = ["schedule", "export", tmp_path / "c.json", "--format", kind, "--out", tmp_path / kind]
        assert called(argv, capsys)[0] == 0
    levels = [float(line) for line in (tmp_path / "txt").read_text().splitlines()]
    assert tuple(levels) == cosine(8).sigma
    header, *lines = (tmp_path / "csv").read_text().splitlines()
    assert header == "t,sigma,alpha_bar,log_snr"
    assert [float(line.split(",")[1]) for line in lines] == levels
    betas = json.loads((tmp_path / "betas").read_text())["trained_betas"]
    assert np.cumprod(1 - np.array(betas)) == pytest.approx([alpha_bar(s) for s in levels], rel=1e-9)
    sigmas = ",".join(map(repr, levels))
    argv = ["schedule", "make", "levels", "--sigma", sigmas, "--out", tmp_path / "again.json"]
    assert called(argv, capsys)[0] == 0
    assert Schedule.load(tmp_path / "again.json") == cosine(8)
    argv = ["schedule", "plot", tmp_path / "c.json", tmp_path / "again.json", "--out", tmp_path / "s.png"]
    assert called(argv, capsys)[0] == 0
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


def test_every_command_has_help_with_an_example(capsys):
    verbs = ["run", "search", "train", "finetune", "rollout", "evaluate", "report"]
    verbs += ["status", "compare", "diagnose", "predict", "score"]
    for verb in verbs:
        code, said, _ = called([verb, "--help"], capsys)
        assert code == 0
        assert f"example: biasbound {verb}" in " ".join(said.split())


def test_a_reader_that_closes_the_pipe_gets_no_complaint(smoke):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "biasbound", "status", str(smoke)], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def test_no_jobs_are_refused_before_anything_is_written(tmp_path, capsys):
    run = tmp_path / "run"
    refused(["run", run, "--preset", "ks-smoke", "--jobs", "0"], capsys, "--jobs must be at least 1")
    assert not run.exists()
    record = Path(__file__).parents[2] / "results" / "record" / "ks"
    refused(["evaluate", record, "--jobs", "0"], capsys, "--jobs must be at least 1")


@pytest.mark.usefixtures("own_names")
def test_a_run_folder_makes_nothing_import_but_a_typed_name_does(copied, tmp_path, capsys, monkeypatch):
    """`package.module:name` is imported where the user says it, and refused where a folder says it."""
    (tmp_path / "typed_here.py").write_text("from biasbound.nets import NETS\nmine = NETS['unet']\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_ALLOWED", set())
    told = yaml.safe_load((copied / "config.yaml").read_text())
    told["network"] = {"name": "typed_here:mine", "options": {"width": 8}}
    (copied / "config.yaml").write_text(yaml.safe_dump(told))
    again = ["train", copied, "--jobs", "1", "--method", "direct", "--redo"]
    refused(again, capsys, "typed_here:mine", "imported", "command line")
    assert "typed_here" not in sys.modules
    typed = ["--network.name", "typed_here:mine", "--train.updates", "1"]
    code, _, said = called([*again, *typed], capsys)
    assert code == 0, said
    emulator = copied / "03-train/direct/seed-0/emulator"
    assert biasbound.load(emulator).model.net.spec.name == "typed_here:mine"
    del NETS["typed_here:mine"]
    monkeypatch.setattr(registry, "_ALLOWED", set())
    refused(
        ["predict", emulator, "--data", copied / "01-data/test.h5", "--out", "p.npy"],
        capsys,
        "a network of its author's",
        "--network typed_here:mine",
    )


def test_a_preset_gives_way_to_another_network(monkeypatch):
    told = ["runs/mine", "--preset", "ks-smoke", "--network.name=other", "--network.options", "{depth: 3}"]
    assert wish_of("run", told).config.network.chosen() == {"depth": 3}
    with pytest.raises(ValueError, match=r"network\.width is a field of the U-Net"):
        wish_of("run", [*told, "--network.width", "8"])
