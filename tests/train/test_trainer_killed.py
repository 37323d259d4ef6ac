"""A training that is stopped, killed, started twice or damaged ends with the same bits."""

import math
import multiprocessing
import os
import random
import signal
import time

import pytest
import torch
from small_fit import MODELS, same, trainer, weights
from toys import Filter, diffusion

from biasbound._io import read_lines
from biasbound.models.weights import DamagedCheckpoint, load_newest
from biasbound.train.observers import JsonlLog
from biasbound.train.trainer import Diverged

REGULARISED = {"optimiser": "adamw", "weight_decay": 0.1, "clip": 0.1, "warmup": 5, "ema": 0.9}


KINDS = {"plain": ({}, "v"), "regularised": (REGULARISED, "proxy"), "not averaged": ({"ema": None}, "pushforward")}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """(folder, trainer) of a whole run of each kind, with its log beside the folder."""
    made = {}
    for kind, (changes, model) in KINDS.items():
        folder = tmp_path_factory.mktemp("unbroken") / "run"
        log = JsonlLog(folder.with_name("log.jsonl"))
        made[kind] = folder, trainer(changes, model, observers=[log], folder=folder).run()
    return made


@pytest.mark.parametrize(
    ("kind", "cut"), [*(("plain", cut) for cut in (1, 7, 10, 33, 59)), ("regularised", 33), ("not averaged", 33)]
)
def test_a_resumed_run_ends_with_the_same_bits(unbroken, tmp_path, kind, cut):
    (folder, whole), (changes, model) = unbroken[kind], KINDS[kind]
    log = JsonlLog(tmp_path / "log.jsonl")
    trainer(changes, model, observers=[log], folder=tmp_path / "parts").run(until=cut)
    resumed = trainer(changes, model, observers=[log], folder=tmp_path / "parts")
    assert resumed.progress.update == cut
    resumed.run()
    assert same(weights(whole.model), weights(resumed.model))
    assert same(weights(whole.averaged), weights(resumed.averaged))
    assert same(*(load_newest(of)[0] for of in (folder, tmp_path / "parts")))
    rows = [read_lines(path) for path in (folder.with_name("log.jsonl"), log.path)]
    if cut % 5 == 0:  # elsewhere the stop itself was reported
        assert rows[0] == rows[1]
    assert [row["update"] for row in rows[1]] == sorted({*range(5, 65, 5), cut})


def run_in(folder):
    torch.set_num_threads(1)
    folder.mkdir(exist_ok=True)
    log = JsonlLog(folder / "log.jsonl")
    trainer({"updates": 150, "checkpoint_every": 20}, folder=folder, observers=[log]).run()


def start(folder):
    process = multiprocessing.get_context("fork").Process(target=run_in, args=(folder,))
    process.start()
    return process


def test_kill_9_at_random_moments_changes_nothing(tmp_path):
    """Three kills here; `benchmarks/kill_training.py` does twenty."""
    began = time.monotonic()
    run_in(tmp_path / "whole")
    whole, moments = time.monotonic() - began, random.Random(0)
    for _ in range(3):
        process = start(tmp_path / "killed")
        time.sleep(moments.uniform(0.1, 0.5) * whole)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    last = start(tmp_path / "killed")
    last.join()
    assert last.exitcode == 0
    assert same(*(load_newest(tmp_path / name)[0] for name in ("whole", "killed")))
    assert read_lines(tmp_path / "whole/log.jsonl") == read_lines(tmp_path / "killed/log.jsonl")


def test_a_second_process_in_the_same_folder_is_refused(tmp_path):
    second = trainer(folder=tmp_path)

    def intrude(model, update):
        with pytest.raises(ValueError, match="another process is writing here"):
            second.run()
        return {}

    trainer(folder=tmp_path, evaluate=intrude, evaluate_every=30).run()


def test_a_damaged_checkpoint_costs_only_the_updates_since_the_one_before(tmp_path):
    done = trainer(folder=tmp_path).run()
    newest = tmp_path / "checkpoint-000000060.safetensors"
    newest.write_bytes(newest.read_bytes()[:1000])
    with pytest.warns(DamagedCheckpoint, match="000000060"):
        again = trainer(folder=tmp_path)
    assert again.progress.update == 50
    assert same(weights(done.averaged), weights(again.run().averaged))


def test_a_folder_of_another_training_is_refused(tmp_path):
    trainer(folder=tmp_path).run(until=10)
    with pytest.raises(ValueError, match=r"holds a training with lr = 0\.02, not 0\.5"):
        trainer({"lr": 0.5}, folder=tmp_path)
    with pytest.raises(ValueError, match="another network"):
        trainer(folder=tmp_path, model=diffusion(Filter(condition=2)))
    assert trainer({"checkpoint_every": 3}, folder=tmp_path).progress.update == 10  # how often is no matter


@pytest.mark.parametrize("bad", [math.nan, 1e9])
def test_a_loss_that_explodes_stops_with_the_last_good_checkpoint(tmp_path, bad):
    model = MODELS["v"]()
    right = model.loss
    model.loss = lambda batch, generator: right(batch, generator) * (bad if run.progress.update >= 33 else 1)
    run = trainer(folder=tmp_path, model=model)
    with pytest.raises(Diverged, match=r"at update 35 .*lower the learning rate.*last good checkpoint"):
        run.run()
    tensors, meta = load_newest(tmp_path)
    assert meta["progress"]["update"] == 30
    assert all(t.isfinite().all() for t in tensors.values())
