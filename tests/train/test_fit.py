import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_fit import SCHEDULE, diffusion, options, same, trainer, weights
from torch.optim.swa_utils import AveragedModel
from toys import Filter, advected

from biasbound.core.denoise import EpsDenoiser, VDenoiser, X0Denoiser
from biasbound.core.sample import sample
from biasbound.models.losses import direct_loss, proxy_unrolled_loss, refiner_loss
from biasbound.models.predict import DirectPredictor, Refiner
from biasbound.train.average import MovingAverage
from biasbound.train.observers import JsonlLog, ProgressBar, TensorBoard, read_rows
from biasbound.train.options import learning_rate

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
    tests = str(Path(__file__).parents[1])
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
