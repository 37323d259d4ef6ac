"""Studies that are stopped, damaged or divided among processes, and other flows."""

import json
import signal
from dataclasses import replace

import pytest
import torch
from calling import SMOKE, called, program, refused

from biasbound.cli import main
from biasbound.data.batches import Batch
from biasbound.metrics.rows import read_rows, select
from biasbound.models.method import method
from biasbound.models.weights import DamagedCheckpoint
from biasbound.report import figures
from biasbound.study.execute import Manner, make_units
from biasbound.study.folder import open_run
from biasbound.study.graph import study_units
from biasbound.study.parsing import presets, read_config
from biasbound.study.plan import layout_of
from biasbound.study.stages.material import network_for, task_of
from biasbound.train.options import FitOptions
from biasbound.train.trainer import Trainer

pytestmark = pytest.mark.long
LABELS = ("direct", "adaptive-proxy")
# A program that stops itself by a signal, when a unit has made that many updates.
STOPPING = """
import os, signal, sys
from biasbound.cli import main
from biasbound.study import view

def stop(viewer, event):
    if event.unit.startswith(sys.argv[1]) and event.done >= int(sys.argv[2]):
        os.kill(os.getpid(), int(sys.argv[3]))

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
view._Lines.__call__ = stop
sys.exit(main(sys.argv[4:]))
"""


def rows_and_files(folder):
    """What two equal runs of `LABELS` share: all rows but their times, and the names of all files."""
    rows = [replace(r, seconds=0.0) for r in read_rows(folder / "results.jsonl") if r.method in LABELS]
    units = [u.name for u in study_units(read_config(folder / "config.yaml"), LABELS)]
    files = {p.relative_to(folder) for name in units for p in (folder / name).rglob("*") if p.is_file()}
    return rows, files


def test_a_study_that_is_stopped_twice_ends_like_an_unbroken_one(smoke, tmp_path):
    """Killed with two processes at work, interrupted in a training, then left alone."""
    command = ["evaluate", tmp_path / "run", *SMOKE[:2], "--method", ",".join(LABELS)]
    command += ["--train.checkpoint_every", "10"]
    killed = program("02-search", 0, int(signal.SIGKILL), *command, "--jobs", 2, start=("-c", STOPPING))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    data = (tmp_path / "run/01-data/stage.json").stat().st_mtime_ns
    stopped = program("03-train/adaptive", 20, int(signal.SIGINT), *command, "--jobs", 1, start=("-c", STOPPING))
    assert stopped.returncode == 130, stopped.stderr
    assert (tmp_path / "run/02-search/adaptive/seed-0/stage.json").exists()
    assert list((tmp_path / "run/03-train/adaptive/seed-0/train").glob("*.safetensors"))
    assert main([*map(str, command), "--jobs", "1"]) == 0
    assert (tmp_path / "run/01-data/stage.json").stat().st_mtime_ns == data
    assert rows_and_files(tmp_path / "run") == rows_and_files(smoke)


@pytest.fixture
def interrupted(copied):
    """A run whose training of `direct` was interrupted after a checkpoint: its checkpoints, and the command."""
    command = [copied, *SMOKE, "--method", "direct", "--train.log_every", "3", "--train.checkpoint_every", "6"]
    config = read_config(copied / "config.yaml", ["--train.log_every", "3", "--train.checkpoint_every", "6"])
    run, units = open_run(copied, config), study_units(config, ["direct"], "train")
    run.discard(study_units(config))

    def stop(event):
        if event.unit.startswith("03-train") and event.done >= 15:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_units(run, units, Manner(), stop)
    checkpoints = sorted((copied / "03-train/direct/seed-0/train").glob("*.safetensors"))
    assert len(checkpoints) == 2
    return checkpoints, ["train", *command]


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(interrupted, smoke, copied, capsys):
    checkpoints, command = interrupted
    checkpoints[-1].write_bytes(checkpoints[-1].read_bytes()[:100])
    with pytest.warns(DamagedCheckpoint):
        assert called(command, capsys)[0] == 0
    weights = "03-train/direct/seed-0/emulator/model.safetensors"
    assert (copied / weights).read_bytes() == (smoke / weights).read_bytes()


def test_a_run_without_any_whole_checkpoint_says_so(interrupted, capsys):
    checkpoints, command = interrupted
    for path in checkpoints:
        path.write_bytes(b"nothing")
    with pytest.warns(DamagedCheckpoint):
        refused(command, capsys, "checkpoint")


def test_a_failed_unit_takes_only_its_own_followers_with_it(tmp_path):
    changes = ["--methods=[direct, adaptive-proxy]", "--train.updates", "4", "--train.evaluations", "1"]
    config = read_config(presets()["ks-smoke"], [*changes, "--search.tau", "1.0", "--search.sigma_max", "0.06"])
    run, seen = open_run(tmp_path / "r", config), []
    outcome = make_units(run, study_units(config), Manner(), seen.append)
    assert list(outcome.failed) == ["02-search/adaptive/seed-0"]
    assert all(cure in outcome.failed["02-search/adaptive/seed-0"] for cure in ("train longer", "raise τ"))
    assert "06-evaluate/direct/seed-0" in outcome.made
    assert [e.unit for e in seen if e.kind == "failed"] == list(outcome.failed)
    assert not any("proxy" in name for name in outcome.made)


@pytest.mark.parametrize("flow", ["kolmogorov", "transonic"])
def test_the_other_flows_run_from_data_to_report(flow, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", {"ladder": figures.FIGURES["ladder"]})  # the others: tests/report
    folder = tmp_path / flow
    assert main(["run", str(folder), "--preset", f"{flow}-smoke", "--jobs", "1"]) == 0
    assert (folder / "07-report/index.html").stat().st_size < 5e6
    rows = read_rows(folder / "results.jsonl")
    for label in read_config(folder / "config.yaml").methods:
        assert select(rows, method=label, metric="mse", step=1)[0].value > 0


def test_two_processes_train_like_one(smoke, tmp_path):
    """The same command under torchrun, which takes the place of trainings side by side."""
    launch = ("-m", "torch.distributed.run", "--nproc_per_node=2", "--rdzv_backend=c10d")
    launch += ("--rdzv_endpoint=localhost:0", "-m", "biasbound")
    done = program("train", tmp_path / "run", *SMOKE, "--method", "adaptive", start=launch)
    assert done.returncode == 0, done.stderr
    one, two = (
        [json.loads(line)["loss"] for line in (run / "03-train/adaptive/seed-0/log.jsonl").read_text().splitlines()]
        for run in (smoke, tmp_path / "run")
    )
    assert two == pytest.approx(one, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("flow", ["ks", "kolmogorov", "transonic"])
def test_networks_of_the_papers_size_make_their_first_updates(flow):
    config = read_config(presets()[f"{flow}-paper"])
    layout, chosen = layout_of(config), method("linear")
    task = task_of(config.task, layout)
    network = network_for(config.network, layout, task, config.data.conditions)
    model = chosen.build(network, task, 1.0, {"schedule": chosen.chain(20)})
    before = {k: v.clone() for k, v in model.state_dict().items()}
    noise = torch.randn(8, 2, len(layout.channels), *layout.grid)
    told = torch.randn(8, len(config.data.conditions), *layout.grid)
    options = FitOptions(updates=10, batch=2, lr=config.train.lr, clip=None, ema=None)
    trainer = Trainer(model, lambda i: Batch(noise[i], told[i]), 8, options).run()
    assert trainer.progress.update == 10
    assert sum(int((v != before[k]).any()) for k, v in model.state_dict().items()) > 50
