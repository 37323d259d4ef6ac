"""A training that is stopped, killed, started twice or damaged ends with the same bits."""

import math
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from small_fit import diffusion, same, trainer, weights
from toys import Filter

from biasbound.core.denoise import VDenoiser
from biasbound.models.weights import DamagedCheckpoint, load_newest, load_tensors, save_tensors
from biasbound.train.observers import JsonlLog, read_rows
from biasbound.train.trainer import Diverged


@pytest.mark.parametrize("cut", [1, 7, 10, 33, 59])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, cut):
    whole = trainer(
        observers=[JsonlLog(tmp_path / "whole.jsonl")], folder=tmp_path / "whole"
    ).run()
    log = JsonlLog(tmp_path / "parts.jsonl")
    trainer(observers=[log], folder=tmp_path / "parts").run(until=cut)
    resumed = trainer(observers=[log], folder=tmp_path / "parts")
    assert resumed.progress.update == cut
    resumed.run()
    assert same(weights(whole.model), weights(resumed.model))
    assert same(weights(whole.averaged), weights(resumed.averaged))
    assert same(*(load_newest(tmp_path / name)[0] for name in ("whole", "parts")))
    rows = [read_rows(tmp_path / f"{name}.jsonl") for name in ("whole", "parts")]
    if cut % 5 == 0:  # elsewhere the stop itself was reported
        assert rows[0] == rows[1]
    assert [row["update"] for row in rows[1]] == sorted({*range(5, 65, 5), cut})


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
import torch
from pathlib import Path
from test_fit import trainer
from biasbound.track import JsonlLog
torch.set_num_threads(1)
folder = Path(sys.argv[1])
folder.mkdir(exist_ok=True)
print("ready", flush=True)
trainer(dict(updates=300, checkpoint_every=20), folder=folder, observers=[JsonlLog(folder / "log.jsonl")]).run()
"""


def start(folder):
    program = PROGRAM.format(tests=str(Path(__file__).parents[1]))
    run = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    run.stdout.readline()
    return run


def test_kill_9_at_random_moments_changes_nothing(tmp_path):
    """Three kills here; `benchmarks/kill_training.py` does twenty."""
    whole = start(tmp_path / "whole")
    assert whole.wait() == 0, whole.stderr.read()
    moments = random.Random(0)
    for _ in range(3):
        run = start(tmp_path / "killed")
        time.sleep(moments.uniform(0.05, 1.0))
        run.send_signal(signal.SIGKILL)
        run.wait()
    last = start(tmp_path / "killed")
    assert last.wait() == 0, last.stderr.read()
    assert same(*(load_newest(tmp_path / name)[0] for name in ("whole", "killed")))
    assert read_rows(tmp_path / "whole" / "log.jsonl") == read_rows(
        tmp_path / "killed" / "log.jsonl"
    )


def test_a_second_process_in_the_same_folder_is_refused(tmp_path):
    second = trainer(folder=tmp_path)

    def intrude(model, update):
        with pytest.raises(ValueError, match="another process is writing here"):
            second.run()
        return {}

    trainer(folder=tmp_path, evaluate=intrude, evaluate_every=30).run()


def test_the_last_good_checkpoint_is_kept_and_taken(tmp_path):
    done = trainer(folder=tmp_path).run()
    files = sorted(tmp_path.glob("*.safetensors"))
    assert [f.name for f in files] == [
        "checkpoint-000000050.safetensors",
        "checkpoint-000000060.safetensors",
    ]
    files[1].write_bytes(files[1].read_bytes()[:1000])
    with pytest.warns(DamagedCheckpoint, match="000000060"):
        again = trainer(folder=tmp_path)
    assert again.progress.update == 50
    assert same(weights(done.averaged), weights(again.run().averaged))
    for file in tmp_path.glob("*.safetensors"):
        file.write_bytes(b"")
    with (
        pytest.warns(DamagedCheckpoint),
        pytest.raises(ValueError, match="none of the 2 checkpoints"),
    ):
        trainer(folder=tmp_path)


def test_a_folder_of_another_training_is_refused(tmp_path):
    trainer(folder=tmp_path).run(until=10)
    with pytest.raises(ValueError, match=r"holds a training with lr = 0\.02, not 0\.5"):
        trainer({"lr": 0.5}, folder=tmp_path)
    with pytest.raises(ValueError, match="another network"):
        trainer(folder=tmp_path, model=VDenoiser(Filter(condition=2)))


# --- what goes wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, 1e9])
def test_a_loss_that_explodes_stops_with_the_last_good_checkpoint(tmp_path, bad):
    def loss(model, frames, generator):
        value = diffusion(model, frames, generator)
        return value * bad if run.progress.update >= 33 else value

    run = trainer(folder=tmp_path, loss=loss)
    with pytest.raises(
        Diverged, match=r"at update 35 .*lower the learning rate.*last good checkpoint"
    ):
        run.run()
    tensors, meta = load_newest(tmp_path)
    assert meta["progress"]["update"] == 30
    assert all(t.isfinite().all() for t in tensors.values())


def test_a_checkpoint_round_trip_changes_no_bit(tmp_path):
    tensors = {
        "a": torch.randn(3),
        "b": torch.tensor(2),
        "c": torch.randn(2, 2, dtype=torch.float64),
    }
    save_tensors(tmp_path / "x.safetensors", tensors, {"note": [1, 0.1]})
    back, meta = load_tensors(tmp_path / "x.safetensors")
    assert same(tensors, back)
    assert meta == {"note": [1, 0.1]}
    with pytest.raises(ValueError, match="does not exist"):
        load_tensors(tmp_path / "nothing.safetensors")
