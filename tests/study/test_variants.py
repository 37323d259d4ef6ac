"""Settings that the smoke study leaves as they are, through the whole pipeline: each has its effect."""

import json
import shutil

import numpy as np
import pytest
import torch
from calling import SMOKE, called, refused

import biasbound
from biasbound._io import read_lines
from biasbound.cli import main
from biasbound.core.schedule import log_uniform
from biasbound.metrics.rows import read_rows, select
from biasbound.report.study import read_study
from biasbound.study.parsing import read_config
from biasbound.study.stages.material import open_split

pytestmark = pytest.mark.long
SHORT = ["--train.updates", "8", "--train.evaluations", "1", "--evaluate.gradients", "0"]


@pytest.fixture(scope="module")
def variant(tmp_path_factory):
    """A small study with another chain, other held-out data, another grid and another fine-tuning."""
    folder = tmp_path_factory.mktemp("variant") / "run"
    changes = ["--methods=linear,linear-ddim,adaptive-proxy", *SHORT, "--finetune.updates", "2"]
    changes += ["--rollout.transition", "ddim", "--data.held_out", "{trajectories: 3}", "--search.over", "sigma"]
    assert main(["evaluate", str(folder), *SMOKE, *changes, "--train.tensorboard", "true"]) == 0
    return folder


def states(folder, label):
    return np.load(folder / f"05-rollout/{label}/seed-0/prediction.npy", allow_pickle=False)


def test_the_transition_is_part_of_every_chain(variant):
    for place in ("03-train/linear", "03-train/adaptive", "04-finetune/adaptive-proxy"):
        emulator = biasbound.load(variant / place / "seed-0/emulator")
        assert emulator.model.transition == "ddim"
    named, told = (states(variant, label) for label in ("linear-ddim", "linear"))
    assert np.array_equal(named, told)  # by the method or by the study
    renoised = biasbound.load(variant / "03-train/linear/seed-0/emulator")
    renoised.model.transition = "renoise"
    start = torch.from_numpy(open_split(variant / "01-data", "test").read(0, 2)[:, 0]).float()
    once = [e.step(start, generator=torch.Generator().manual_seed(0)) for e in (emulator, renoised)]
    assert not torch.equal(*once)
    assert select(read_rows(variant / "results.jsonl"), method="adaptive-proxy", metric="reb")


def test_held_out_settings_are_those_of_valid_and_test_alone(variant, smoke):
    for split in ("train", "valid", "test"):
        here, there = (open_split(run / "01-data", split) for run in (variant, smoke))
        assert len(here) == (len(there) if split == "train" else 3)


def test_the_exploration_goes_over_the_grid_that_is_asked_for(variant):
    search = read_config(variant / "config.yaml").search
    told = json.loads((variant / "02-search/adaptive/seed-0/exploration.json").read_text())
    asked = log_uniform(search.levels, search.sigma_min, search.sigma_max, "sigma").sigma
    assert sorted(told["levels"]) == pytest.approx(asked)


def test_training_curves_go_to_tensorboard_too(variant):
    assert list((variant / "03-train/linear/seed-0/tensorboard").glob("events.*"))


@pytest.mark.parametrize("change", ["proxy_steps=1", "detach=true", "unroll=2"])
def test_fine_tuning_does_as_it_is_told(variant, tmp_path, change, capsys):
    copy = shutil.copytree(variant, tmp_path / "run")
    weights = "04-finetune/adaptive-proxy/seed-0/emulator/model.safetensors"
    command = ["finetune", copy, "--jobs", "1", "--redo"]
    assert called([*command, f"--finetune.{change}"], capsys)[0] == 0
    assert (copy / weights).read_bytes() != (variant / weights).read_bytes()
    if change == "proxy_steps=1":
        refused([*command, "--finetune.proxy_steps", "99"], capsys, "proxy_steps 99 is beyond the schedule's")


def test_a_fine_tuning_warms_up_for_a_share_of_its_updates(variant, tmp_path, capsys):
    copy = shutil.copytree(variant, tmp_path / "run")
    told = {"finetune.updates": 4, "finetune.warmup": 0.5, "finetune.lr": 1e-4, "train.log_every": 1}
    words = [word for name, value in told.items() for word in (f"--{name}", str(value))]
    assert called(["finetune", copy, "--jobs", "1", "--redo", *words], capsys)[0] == 0
    lines = read_lines(copy / "04-finetune/adaptive-proxy/seed-0/log.jsonl", dict[str, float])
    assert [line["lr"] for line in lines] == pytest.approx([0.5e-4, 1e-4, 1e-4, 0.5e-4])  # then a cosine to 0


def test_gradients_are_clipped_and_weights_decay_as_the_optimiser_says(copied):
    """A gradient far below Adam's ε moves nothing; then AdamW alone shrinks the weights, by 1 − lr·λ per update."""

    def trained(optimiser, decay, clip="1e-14"):
        told = {"optimiser": optimiser, "weight_decay": decay, "clip": clip, "updates": 1, "lr": 0.1, "ema": "null"}
        changes = [word for name, value in told.items() for word in (f"--train.{name}", str(value))]
        assert main(["train", str(copied), *SMOKE, "--method", "direct", *changes, "--redo"]) == 0
        state = biasbound.load(copied / "03-train/direct/seed-0/emulator").model.state_dict()
        return torch.cat([value.flatten() for value in state.values()])

    still, decayed = trained("adamw", 0.0), trained("adamw", 0.5)
    torch.testing.assert_close(decayed, 0.95 * still, rtol=1e-5, atol=1e-6)
    coupled, free = trained("adam", 0.5), trained("adam", 0.0, clip="null")
    moved = still.abs() > 1e-3  # a decay that joins the gradient moves each weight towards zero, by lr
    torch.testing.assert_close(coupled[moved], (still - 0.1 * still.sign())[moved], rtol=1e-3, atol=1e-4)
    assert (free - still).abs().max() > 0.09


def test_a_forecast_from_two_frames_runs_from_data_to_scores(smoke, tmp_path):
    changes = [*SHORT, "--task.history", "2", "--methods=direct-residual,adaptive-v-residual-proxy"]
    assert main(["evaluate", str(tmp_path / "run"), *SMOKE, *changes, "--finetune.updates", "2"]) == 0
    test = open_split(tmp_path / "run/01-data", "test")
    rows = read_rows(tmp_path / "run/results.jsonl")
    for label in ("direct-residual", "adaptive-v-residual-proxy"):
        rolled = states(tmp_path / "run", label)
        assert rolled.shape[2:] == (test.layout.frames - 2, *test.shape[2:])
        error = np.mean((rolled[0] - test.read(0, rolled.shape[1], slice(2, None)))[:, 0] ** 2)
        assert select(rows, method=label, metric="mse", step=1)[0].value == pytest.approx(error, rel=1e-4)
    shown = read_study(tmp_path / "run").truth(1, 3)
    assert np.array_equal(shown, test.read(0, 1, slice(2, 5)))  # a report compares with the same frames
    emulator = biasbound.load(tmp_path / "run/03-train/direct-residual/seed-0/emulator")
    start = torch.from_numpy(test.read(0, rolled.shape[1], slice(0, 2))).float()
    torch.testing.assert_close(
        emulator.step(start), torch.from_numpy(states(tmp_path / "run", "direct-residual")[0, :, 0])
    )
