"""The training loop: every model learns, and options have their effect."""

import pytest
import torch
from small_fit import MODELS, same, trainer, weights
from torch import nn
from toys import advected, seeded

from biasbound.train.options import learning_rate


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_every_model_beats_persistence_tenfold_in_seconds(name):
    fitted = trainer({"updates": 100, "batch": 128, "lr": 0.05, "ema": 0.9}, name).run().averaged
    x, y = advected(200, seed=1).unbind(1)
    with torch.no_grad():
        error = (fitted.advance(x, seeded(2)) - y).square().mean()
    assert error < (x - y).square().mean() / 10


def test_same_seed_same_bytes_and_another_seed_others():
    a, b, c = trainer().run(), trainer().run(), trainer({"seed": 1}).run()
    assert same(weights(a.averaged), weights(b.averaged))
    assert not same(weights(a.averaged), weights(c.averaged))


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
    plain = trainer({"ema": None})
    assert plain.averaged is plain.model


# --- clipping, weight decay, optimisers -----------------------------------------------------------------


def gradient(run):
    """∇L as the optimiser of the last update saw it."""
    return torch.cat([p.grad.flatten() for p in run.model.parameters()])


def test_a_bound_that_is_never_reached_changes_nothing():
    loose, none = trainer({"clip": 1e9}).run(), trainer({"clip": None}).run()
    assert same(weights(loose.model), weights(none.model))


@pytest.mark.parametrize("bound", [1e-3, 1.0])
def test_a_clipped_gradient_keeps_its_direction_and_has_at_most_the_norm(bound):
    clipped, whole = trainer({"clip": bound}), trainer({"clip": None})
    clipped.update(), whole.update()
    ours, theirs = gradient(clipped), gradient(whole)
    assert theirs.norm() > 1.0
    torch.testing.assert_close(ours, theirs * bound / theirs.norm(), rtol=1e-4, atol=1e-8)
    clipped.run(30), whole.run(30)
    assert gradient(clipped).norm() <= bound * (1 + 1e-5)
    assert not same(weights(clipped.model), weights(whole.model))


class Still(nn.Module):
    """A model whose loss depends on nothing, so that only weight decay moves it."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([3.0, -0.5, 1e-3]))

    def loss(self, batch, generator):
        return (0 * self.weight).sum() + 1


def test_decoupled_weight_decay_shrinks_by_one_minus_rate_times_decay():
    told = {"optimiser": "adamw", "weight_decay": 0.3, "lr": 0.1, "updates": 20, "ema": None}
    run = trainer(told, Still()).run()
    expected = torch.tensor([3.0, -0.5, 1e-3])
    for update in range(20):
        expected = expected * (1 - learning_rate(run.options, update, 20) * 0.3)
    torch.testing.assert_close(run.model.weight.detach(), expected, rtol=1e-5, atol=0)


def test_weight_decay_in_the_gradient_moves_every_weight_by_the_rate_at_first():
    """Adam's first step is lr·sign(g), and g = decay·θ."""
    run = trainer({"weight_decay": 0.3, "lr": 1e-4, "clip": None}, Still())
    before = run.model.weight.detach().clone()
    run.update()
    torch.testing.assert_close(run.model.weight.detach(), before - 1e-4 * before.sign(), rtol=1e-3, atol=0)


@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
def test_without_decay_and_gradient_nothing_moves(optimiser):
    run = trainer({"optimiser": optimiser}, Still()).run()
    assert torch.equal(run.model.weight.detach(), Still().weight.detach())


def test_without_decay_adamw_is_adam():
    runs = [trainer({"optimiser": name}).run() for name in ("adam", "adamw")]
    assert same(*(weights(run.model) for run in runs))
    decayed = trainer({"optimiser": "adamw", "weight_decay": 0.1}).run()
    assert not same(weights(runs[0].model), weights(decayed.model))


# --- observers ------------------------------------------------------------------------------------------


class Heard:
    """An observer that keeps what it is told."""

    def __init__(self):
        self.said = []

    def start(self, update, total):
        self.said.append(("start", update, total))

    def report(self, report):
        self.said.append(report)

    def stop(self):
        self.said.append("stop")


def test_observers_hear_everything_once():
    heard = Heard()
    trainer(observers=[heard], evaluate=lambda model, update: {"error": update / 10}, evaluate_every=20).run()
    first, *reports, last = heard.said
    assert (first, last) == (("start", 0, 60), "stop")
    assert [report.update for report in reports] == list(range(5, 65, 5))
    assert {r.update: r.metrics["error"] for r in reports if r.metrics} == {20: 2.0, 40: 4.0, 60: 6.0}
    assert all(report.total == 60 for report in reports)


def test_an_observer_is_stopped_also_after_an_error():
    heard = Heard()

    def fail(model, update):
        raise RuntimeError("the caller's")

    with pytest.raises(RuntimeError, match="the caller's"):
        trainer(observers=[heard], evaluate=fail, evaluate_every=5).run()
    assert heard.said[-1] == "stop"
