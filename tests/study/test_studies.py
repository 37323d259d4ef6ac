"""Studies that are stopped, damaged or divided, on other flows, and at the paper's size."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from biasbound.cli import main
from biasbound.metrics.rows import read_rows, select
from biasbound.models.method import method
from biasbound.study.execute import Manner, bring_about
from biasbound.study.folder import open_run
from biasbound.study.graph import study_units
from biasbound.study.parsing import presets, read_config
from biasbound.study.plan import layout_of
from biasbound.study.stages.material import network_for

TINY = ["--methods", "[unet, adaptive-proxy]", "--train.updates", "12", "--train.evaluations", "2"]


def units_and_rows(folder):
    rows = [replace(r, seconds=0.0) for r in read_rows(folder / "results.jsonl")]
    return rows, {p.relative_to(folder) for p in folder.rglob("*") if p.is_file()}


def _interruptible():
    """What a shell starts in the background ignores interrupts, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(("how", "jobs"), [(signal.SIGKILL, 2), (signal.SIGINT, 1)])
def test_a_stopped_study_goes_on_and_ends_like_an_unbroken_one(tmp_path, how, jobs):
    command = [sys.executable, "-m", "biasbound", "evaluate", "run", "--preset", "ks-smoke", *TINY]
    command += ["--jobs", str(jobs), "--train.checkpoint_every", "3", "--train.log_every", "3"]
    for name in ("broken", "whole"):
        (tmp_path / name).mkdir()
    first = subprocess.Popen(
        command,
        cwd=tmp_path / "broken",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_interruptible,  # noqa: PLW1509 - it takes no lock
    )
    mark = tmp_path / "broken/run/02-search/adaptive/seed-0/log.jsonl"
    deadline = time.monotonic() + 120
    while not mark.exists() and time.monotonic() < deadline and first.poll() is None:
        time.sleep(0.02)
    first.send_signal(how)
    _, said = first.communicate(timeout=60)
    assert first.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL), said
    assert not (tmp_path / "broken/run/02-search/adaptive/seed-0/stage.json").exists()
    data = (tmp_path / "broken/run/01-data/stage.json").stat().st_mtime_ns
    time.sleep(0.5)  # workers notice that their parent is gone
    for name in ("broken", "whole"):
        done = subprocess.run(command, cwd=tmp_path / name, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "broken/run/01-data/stage.json").stat().st_mtime_ns == data
    assert units_and_rows(tmp_path / "broken/run") == units_and_rows(tmp_path / "whole/run")


def interrupted_training(folder):
    """A run whose training was interrupted after its second checkpoint, and its command."""
    options = ["--preset", "ks-smoke", "--methods", "unet", "--train.updates", "12"]
    options += ["--train.checkpoint_every", "3", "--train.log_every", "3"]
    config = read_config(presets()["ks-smoke"], [*options[2:3], "[unet]", *options[4:]])
    run = open_run(folder, config)

    def stop(event):
        if event.unit.startswith("03-train") and event.done >= 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bring_about(run, study_units(config, upto="train"), Manner(), stop)
    checkpoints = sorted((folder / "03-train/unet/seed-0/train").glob("*.safetensors"))
    assert checkpoints
    return checkpoints, ["train", str(folder), *options, "--jobs", "1"]


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path):
    checkpoints, command = interrupted_training(tmp_path / "r")
    checkpoints[-1].write_bytes(checkpoints[-1].read_bytes()[:100])
    assert main(command) == 0
    whole = ["train", str(tmp_path / "whole"), *command[2:]]
    assert main(whole) == 0
    weights = [tmp_path / n / "03-train/unet/seed-0/emulator/model.safetensors" for n in ("r", "whole")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_a_run_without_any_whole_checkpoint_says_so(tmp_path, capsys):
    checkpoints, command = interrupted_training(tmp_path / "r")
    for path in checkpoints:
        path.write_bytes(b"nothing")
    code = main(command)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("biasbound")]
    assert code == 2
    assert len(said) == 1
    assert "checkpoint" in said[0]


def test_a_failed_unit_takes_only_its_own_followers_with_it(tmp_path):
    config = read_config(presets()["ks-smoke"], [*TINY, "--search.tau", "1.0", "--search.sigma_max", "0.06"])
    run = open_run(tmp_path / "r", config)
    seen = []
    outcome = bring_about(run, study_units(config), Manner(), seen.append)
    assert list(outcome.failed) == ["02-search/adaptive/seed-0"]
    assert "raise τ" in outcome.failed["02-search/adaptive/seed-0"]
    assert "06-evaluate/unet/seed-0" in outcome.made
    assert [e.unit for e in seen if e.kind == "failed"] == list(outcome.failed)
    assert not any("proxy" in name for name in outcome.made)


@pytest.mark.parametrize("flow", ["kolmogorov", "transonic"])
def test_the_other_flows_run_from_data_to_report(flow, tmp_path):
    folder = tmp_path / flow
    assert main(["run", str(folder), "--preset", f"{flow}-smoke", "--jobs", "1"]) == 0
    assert (folder / "07-report/index.html").stat().st_size < 5e6
    rows = read_rows(folder / "results.jsonl")
    for label in read_config(folder / "config.yaml").methods:
        assert select(rows, method=label, metric="mse", step=1)[0].value > 0


def test_two_processes_train_like_one(tmp_path):
    """The same command under torchrun, which takes the place of trainings side by side."""
    arguments = ["train", "run", "--preset", "ks-smoke", "--method", "adaptive", *TINY, "--jobs", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    commands = {
        "one": [sys.executable, "-m", "biasbound", *arguments],
        "two": [
            sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--master_port=0",
            "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", "-m", "biasbound", *arguments,
        ],
    }  # fmt: skip
    losses = {}
    for name, command in commands.items():
        (tmp_path / name).mkdir()
        done = subprocess.run(
            command, cwd=tmp_path / name, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        log = Path(tmp_path / name / "run/03-train/adaptive/seed-0/log.jsonl").read_text()
        losses[name] = [json.loads(line)["loss"] for line in log.splitlines()]
    assert losses["two"] == pytest.approx(losses["one"], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("flow", ["ks", "kolmogorov", "transonic"])
def test_networks_of_the_papers_size_make_their_first_updates(flow):
    from biasbound.core.schedule import linear
    from biasbound.data.batches import Batch
    from biasbound.train.options import FitOptions
    from biasbound.train.trainer import Trainer

    config = read_config(presets()[f"{flow}-paper"])
    layout = layout_of(config)
    network = network_for(config.network, layout, config.data.conditions)
    chosen = method("linear")
    model = chosen.model(network, 1.0)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    noise = torch.randn(8, 2, len(layout.channels), *layout.grid)
    told = torch.randn(8, len(config.data.conditions), *layout.grid)
    options = FitOptions(updates=10, batch=2, lr=config.train.lr, clip=None, ema=None)
    loss = chosen.loss(lambda: linear(20))
    trainer = Trainer(model, loss, lambda i: Batch(noise[i], told[i]), 8, options).run()
    assert trainer.progress.update == 10
    assert sum(int((v != before[k]).any()) for k, v in model.state_dict().items()) > 50
