"""Which weights of a training become the emulator."""

import math

import pytest
from small_fit import same, trainer, weights
from toys import advected

from biasbound.core.bias import Estimate, Stability
from biasbound.core.options import SearchOptions
from biasbound.models.diffusion import Diffusion
from biasbound.train import explorer as exploring
from biasbound.train.explorer import Explorer
from biasbound.train.grow import Grower
from biasbound.train.keep import ERROR

ERRORS = {10: 0.5, 20: 0.2, 30: 0.4, 40: 0.2, 50: math.nan, 60: 0.3}
X, Y = advected(8, seed=1).unbind(1)


def told(errors, seen=None):
    """An evaluation that says these errors, and keeps the weights that it was shown."""

    def evaluate(model, update):
        if seen is not None:
            seen[update] = weights(model)
        return {ERROR: errors[update]}

    return {"evaluate": evaluate, "evaluate_every": 10}


def test_the_best_weights_are_those_of_least_error_and_of_equal_ones_the_first():
    seen = {}
    run = trainer({"keep": "best", "ema": 0.9}, **told(ERRORS, seen)).run()
    assert (run.best.update, run.best.error) == (20, 0.2)
    assert same(weights(run.kept), seen[20])
    assert same(weights(run.averaged), seen[60])
    assert run.kept is run.kept
    assert run.kept.schedule == run.averaged.schedule


@pytest.mark.parametrize(("changes", "how"), [({}, told(ERRORS)), ({"keep": "best"}, {})])
def test_otherwise_the_last_weights_are_kept(changes, how):
    """By default, and where nothing is evaluated."""
    run = trainer(changes, **how).run()
    assert run.kept is run.averaged


def test_the_last_update_competes_even_between_two_evaluations():
    seen = {}
    how = told({14: 0.5, 28: 0.4, 42: 0.6, 56: 0.3, 60: 0.1}, seen) | {"evaluate_every": 14}
    run = trainer({"keep": "best"}, **how).run()
    assert sorted(seen) == [14, 28, 42, 56, 60]
    assert same(weights(run.kept), seen[60])


def test_killed_and_resumed_the_same_weights_are_kept(tmp_path):
    whole = trainer({"keep": "best"}, **told(ERRORS)).run()
    for until in (
        7,
        23,
        24,
        51,
        60,
    ):  # before, between and after evaluations, which are at other updates than checkpoints
        part = trainer({"keep": "best", "checkpoint_every": 8}, folder=tmp_path, **told(ERRORS)).run(until)
    assert same(weights(part.kept), weights(whole.kept))
    assert same(weights(part.averaged), weights(whole.averaged))
    again = trainer({"keep": "best", "checkpoint_every": 8}, folder=tmp_path, **told(ERRORS))
    assert (again.best.update, again.best.error) == (20, 0.2)
    assert same(weights(again.kept), weights(whole.kept))
    with pytest.raises(ValueError, match="holds a training with keep = best, not last"):
        trainer(folder=tmp_path, **told(ERRORS))


def test_a_grown_ladder_is_fixed_before_anything_competes():
    """Errors before are of other ladders, however low; the final ladder is derived from the network that is kept."""
    seen, errors = {}, {u: 1.0 + u for u in range(1, 61)}
    options = SearchOptions(mode="grow", levels=4, rounds=2, warm=0.2, share=0.5, tau=1.5)
    run = trainer({"keep": "best", "ema": 0.9}, **told(errors, seen) | {"evaluate_every": 5})
    grown = Grower(options, run, X, Y).run()
    assert run.best.update == 35
    assert same(weights(run.kept), seen[35])
    assert isinstance(run.kept, Diffusion)
    assert run.kept.schedule == run.averaged.schedule == grown.schedule


@pytest.mark.parametrize(("statistic", "solved"), [("mean", True), ("pooled", False), ("q95", False)])
def test_an_exploration_bounds_the_statistic_that_it_is_told(statistic, solved, monkeypatch):
    own = Estimate(1.01, 0.0, 8, 2, pooled=1.2, q95=1.4)
    monkeypatch.setattr(exploring, "stability", lambda *_: Stability(own, Estimate(0.1, 0.0, 8, 2)))
    options = SearchOptions(levels=3, rounds=1, statistic=statistic)
    found = Explorer(options).run(trainer({"updates": 2}), X, Y)
    assert bool(found.solved) is solved
