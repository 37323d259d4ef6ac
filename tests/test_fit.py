import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.optim.swa_utils import AveragedModel
from toys import Filter, advected

from biasbound.checkpoint import DamagedCheckpoint, load_newest, load_tensors, save_tensors
from biasbound.denoise import EpsDenoiser, VDenoiser, X0Denoiser
from biasbound.fit import Diverged, FitOptions, Trainer, learning_rate
from biasbound.fit.average import MovingAverage
from biasbound.losses import diffusion_loss, direct_loss, proxy_unrolled_loss, refiner_loss
from biasbound.noise import log_uniform
from biasbound.predict import DirectPredictor, Refiner
from biasbound.sample import sample
from biasbound.track import JsonlLog, ProgressBar, TensorBoard, read_rows

SCHEDULE = log_uniform(4, 0.05, 0.99)
DATA = advected(256, frames=3)


def options(**changes):
    return FitOptions(
        **(
            {"updates": 60, "batch": 16, "log_every": 5, "checkpoint_every": 10, "lr": 0.02}
            | changes
        )
    )


def diffusion(model, frames, generator):
    return diffusion_loss(model, frames[:, 0], frames[:, 1], SCHEDULE, generator=generator)


def trainer(changes=None, loss=diffusion, model=None, **more):
    torch.manual_seed(0)
    model = model or VDenoiser(Filter())
    return Trainer(
        model,
        loss,
        lambda i: DATA[torch.as_tensor(i)],
        len(DATA),
        options(**(changes or {})),
        **more,
    )


def weights(of):
    return {k: v.clone() for k, v in of.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


# --- every method learns ------------------------------------------------------------------------------

METHODS = {
    "eps": (EpsDenoiser, diffusion),
    "x0": (X0Denoiser, diffusion),
    "v": (VDenoiser, diffusion),
    "v residual": (lambda net: VDenoiser(net, 0.6), diffusion),
    "proxy": (VDenoiser, lambda m, f, g: proxy_unrolled_loss(m, f, SCHEDULE, generator=g)),
    "direct": (lambda net: DirectPredictor(net, 1), lambda m, f, g: direct_loss(m, f[:, :2])),
    "direct residual": (
        lambda net: DirectPredictor(net, 1, 0.6),
        lambda m, f, g: direct_loss(m, f[:, :2]),
    ),
    "direct unrolled": (lambda net: DirectPredictor(net, 1), lambda m, f, g: direct_loss(m, f)),
    "pushforward": (
        lambda net: DirectPredictor(net, 1),
        lambda m, f, g: direct_loss(m, f, pushforward=True),
    ),
    "refiner": (
        lambda net: Refiner(net, 1, sigma_min=0.1),
        lambda m, f, g: refiner_loss(m, f[:, 0], f[:, 1], generator=g),
    ),
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_beats_persistence_tenfold_in_seconds(name):
    wrap, loss = METHODS[name]
    torch.manual_seed(0)
    fitted = (
        trainer({"updates": 800, "batch": 64, "ema": 0.99}, loss, wrap(Filter())).run().averaged
    )
    x, y = advected(200, seed=1).unbind(1)
    with torch.no_grad():
        if isinstance(fitted, DirectPredictor):
            predicted = fitted(x)
        elif isinstance(fitted, Refiner):
            predicted = fitted(x, torch.Generator().manual_seed(2))
        else:
            predicted = sample(fitted, x, SCHEDULE, generator=torch.Generator().manual_seed(2))
    assert (predicted - y).square().mean() < (x - y).square().mean() / 10


# --- exact resume -------------------------------------------------------------------------------------


def test_same_seed_same_bytes_and_another_seed_others():
    a, b, c = trainer().run(), trainer().run(), trainer({"seed": 1}).run()
    assert same(weights(a.averaged), weights(b.averaged))
    assert not same(weights(a.averaged), weights(c.averaged))


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
    program = PROGRAM.format(tests=str(Path(__file__).parent))
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


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ({"updates": None}, "either in updates or in epochs"),
        ({"epochs": 1.0}, "either in updates or in epochs"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"lr": 0.0}, "lr must be above 0"),
        ({"ema": 1.0}, "ema is a decay"),
        ({"precision": "bf16"}, "slower than float32"),
        ({"batch": 1000}, "batches of 1000 cannot be drawn from 256"),
    ],
)
def test_bad_options_are_named(bad, complaint):
    with pytest.raises(ValueError, match=complaint):
        trainer(bad)


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


# --- budget, rate, observers --------------------------------------------------------------------------


def test_the_learning_rate_warms_up_and_falls_along_a_cosine():
    o = options(warmup=10, lr=1.0, lr_final=0.1)
    rates = [learning_rate(o, i, 110) for i in range(110)]
    assert rates[:10] == pytest.approx([0.1 * (i + 1) for i in range(10)])
    assert rates[10] == 1
    assert rates[60] == pytest.approx(0.55)
    assert learning_rate(o, 110, 110) == pytest.approx(0.1)
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_a_budget_in_epochs_is_a_number_of_updates():
    assert options(updates=None, epochs=2.0).total(256) == 32
    assert options(updates=7).total(256) == 7


def test_observers_hear_everything_once(tmp_path):
    bar, log, board = (
        ProgressBar("toy"),
        JsonlLog(tmp_path / "log.jsonl"),
        TensorBoard(tmp_path / "board"),
    )
    run = trainer(
        observers=[bar, log, board],
        evaluate=lambda model, update: {"error": 0.5},
        evaluate_every=20,
    )
    run.run()
    rows = read_rows(tmp_path / "log.jsonl")
    assert [row["update"] for row in rows] == list(range(5, 65, 5))
    assert [row["update"] for row in rows if "error" in row] == [20, 40, 60]
    assert all(math.isfinite(row["loss"]) for row in rows)
    assert list((tmp_path / "board").iterdir())


def test_an_unfinished_last_line_of_a_log_is_dropped(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"update": 5}) + "\n" + json.dumps({"update": 10}) + '\n{"upda')
    JsonlLog(path).start(5, 60)
    assert path.read_text() == json.dumps({"update": 5}) + "\n"


def test_the_averaged_weights_are_the_moving_average():
    """By the definition, on a run of three updates."""
    seen = []
    run = trainer({"updates": 3, "ema": 0.5, "log_every": 1, "checkpoint_every": 1})
    for until in (1, 2, 3):
        run.run(until)
        seen.append(run.model.net.mix.detach().clone())
    first, second = 2 / 11, 3 / 12  # (1 + n)/(10 + n), while that is below the decay of 0.5
    expected = second * (first * seen[0] + (1 - first) * seen[1]) + (1 - second) * seen[2]
    assert torch.allclose(run.averaged.net.mix, expected, atol=1e-7)


def test_the_average_and_its_state_are_those_of_torch():
    """To the bit, buffers too, so that a checkpoint of one is a checkpoint of the other."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    ours, decay = MovingAverage(model, 0.4), 0.4

    def lerp(mean, current, count):
        n = int(count)
        torch._foreach_lerp_(mean, current, 1 - min(decay, (1 + n) / (10 + n)))

    theirs = AveragedModel(model, multi_avg_fn=lerp)
    for update in range(12):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p))
            model(torch.randn(5, 3))  # moves the buffers
        ours.update()
        theirs.update_parameters(model)
        assert same(ours.state_dict(), theirs.state_dict()), update
        if update == 6:
            ours.load_state_dict(theirs.state_dict())


@pytest.mark.parametrize("name", ["v", "proxy"])
def test_two_processes_train_as_one(tmp_path, name):
    """gloo on the CPU: the same global batch gives the same losses, and only the first process writes."""
    program = tmp_path / "run.py"
    tests = str(Path(__file__).parent)
    program.write_text(
        f"import sys; sys.path.insert(0, {tests!r})\n"
        "import torch; torch.set_num_threads(1)\n"
        "from pathlib import Path\nfrom test_fit import METHODS, trainer\nfrom biasbound.track import JsonlLog\n"
        f"loss = METHODS[{name!r}][1]\n"
        "f = Path(sys.argv[1]); f.mkdir(exist_ok=True)\n"
        "trainer(dict(updates=40), loss, folder=f, observers=[JsonlLog(f / 'log.jsonl')]).run()\n"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node=2",
        "--standalone",
        str(program),
    ]
    both = subprocess.run(
        [*launch, str(tmp_path / "two")],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert both.returncode == 0, both.stderr
    subprocess.run(
        [sys.executable, str(program), str(tmp_path / "one")], check=True, env=environment
    )
    one, two = (read_rows(tmp_path / name / "log.jsonl") for name in ("one", "two"))
    assert [r["update"] for r in one] == [r["update"] for r in two]
    assert [r["loss"] for r in two] == pytest.approx([r["loss"] for r in one], rel=1e-4)
