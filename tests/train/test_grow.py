"""The ladder grown inside one training: where it ends, that it can be killed anywhere, and what it costs."""

import json
import math
from dataclasses import asdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import Filter, advected, diffusion, frame, seeded

from biasbound.core.denoise import PREDICTIONS
from biasbound.core.front import at_most
from biasbound.core.ladder import grid, grid_below
from biasbound.core.noise import Streams, draw_index
from biasbound.core.options import SearchOptions
from biasbound.core.oracle import AffineOracle, GaussianOracle
from biasbound.core.schedule import Schedule
from biasbound.data.batches import Batch
from biasbound.models.diffusion import Diffusion
from biasbound.models.direct import Direct
from biasbound.models.model import Recipe
from biasbound.models.refiner import Refiner
from biasbound.train.grow import Grower
from biasbound.train.options import FitOptions
from biasbound.train.trainer import Trainer

DATA = advected(64, frames=3)
X, Y = advected(12, seed=1).unbind(1)
FIT = {"updates": 40, "batch": 8, "lr": 0.02, "log_every": 5, "checkpoint_every": 3, "ema": 0.9}
SEARCH = {"mode": "grow", "levels": 6, "sigma_min": 0.05, "rounds": 3, "warm": 0.2, "share": 0.7, "band": 0.0}


def trainer(model, folder=None, **changes):
    told = changes.pop("observers", ())
    frames = DATA[:, : model.frame.task.window(model.recipe.unroll) + 1]
    batch = lambda i: Batch(frames[torch.as_tensor(i)], torch.zeros(len(i), 0, 16))
    return Trainer(model, batch, len(DATA), FitOptions(**FIT | changes), folder=folder, observers=told)


def fresh(prediction="v", **how):
    torch.manual_seed(0)
    return diffusion(Filter(), prediction, **how)


# --- where it ends -------------------------------------------------------------------------------


class Known(Diffusion):
    """Trains like any other, but answers as an oracle whose thresholds are known."""

    oracle = AffineOracle(0.0, 0.0)

    def forward(self, y_t, x, sigma):
        return self.oracle(y_t, x, sigma)


def descended(levels, error, gain, options):
    """The ladder by the rules of the growth, from the closed forms 1 + κ(s) and 1 + κ(s) c(from)/c(s)."""
    ladder, below = [levels[0]], levels[1:]
    for _ in range(options.rounds):
        here = ladder[-1]
        joins = [
            s
            for s in below[: options.ahead]
            if 1 + gain(s) * error(here) / error(s) <= options.tau and 1 + gain(s) <= options.tau_own
        ]
        if joins:
            ladder.append(min(joins))
        below = [s for s in below if s < ladder[-1]]
    return tuple(ladder)


@pytest.mark.parametrize("ahead", [1, 3, None])
@pytest.mark.parametrize("tau", [1.02, 1.1, 2.0])
def test_a_growth_ends_at_the_ladder_whose_thresholds_are_known(ahead, tau):
    options = SearchOptions(**SEARCH | {"levels": 16, "sigma_max": 0.5, "rounds": 16, "tau": tau, "ahead": ahead})

    def error(s):  # far above what the noise adds
        return 0.02 * s**0.5

    def gain(s):
        return 0.011 if s > 1e-3 else 0.5  # not stable below a thousandth

    model = Known(Filter(), frame(), schedule=grid(options), prediction="v")
    model.oracle = AffineOracle(error=error, sensitivity=gain)
    x, y = model.oracle.pairs((8, 1, 16), seeded())
    grower = Grower(options, trainer(model), x, y)
    found = grower.run()
    expected = descended(grower.state.grid, error, gain, options)
    assert grower.state.ladder == expected
    assert min(expected) > 1e-3 or tau == 2.0
    assert found.schedule.meta["greedy"] == sorted(found.schedule.sigma)
    assert {*found.schedule.sigma} <= {*expected}
    assert found.schedule.sigma[0] == expected[-1]
    assert grower.trainer.averaged.schedule == found.schedule
    assert all(step["bias"] <= tau for step in found.schedule.meta["steps"])


@pytest.mark.parametrize("prediction", ["eps", "x0", "v", "scaled"])
def test_every_prediction_tries_levels_from_the_error_of_the_top_down(prediction):
    """Walking down from the top, a growth of few rounds would end before it came to a level that can be better."""
    options = SearchOptions(**SEARCH | {"warm": None})
    model = Known(Filter(), frame(), schedule=grid(options), prediction=prediction)
    model.oracle = AffineOracle(1e-3, 0.0)
    grower = Grower(options, trainer(model), *model.oracle.pairs((8, 1, 16), seeded()))
    grower.run()
    top, *below = grower.state.grid
    assert top == grid(options).sigma[-1]
    assert below == pytest.approx(grid_below(grower.state.history[0]["top_error"], options))
    assert grower.state.history[0]["update"] == math.ceil(PREDICTIONS[prediction].warm * FIT["updates"])


def test_patience_and_the_end_of_the_grid_fix_the_ladder_early():
    patient, short = (SearchOptions(**SEARCH | {"rounds": 20} | more) for more in ({"patience": 2}, {"levels": 2}))
    stuck, easy = AffineOracle(0.1, lambda s: 0.5 if s < 0.99 else 0.0), AffineOracle(lambda s: 0.3 * s, 0.0)
    for options, oracle, rounds in ((patient, stuck, 2), (short, easy, 1)):
        model = Known(Filter(), frame(), schedule=grid(options), prediction="v")
        model.oracle = oracle
        grower = Grower(options, trainer(model), *oracle.pairs((8, 1, 16), seeded()))
        found = grower.run()
        assert (grower.state.rounds, grower.state.fixed) == (rounds, True)
        assert grower.trainer.progress.update == FIT["updates"]
        assert len(found.schedule) == (1 if oracle is stuck else 2)


@pytest.mark.parametrize("score", ["error", "crps"])
@pytest.mark.parametrize("prediction", ["v", "scaled"])
def test_with_one_call_every_sample_trains_the_top(prediction, score, monkeypatch):
    options = SearchOptions(**SEARCH | {"calls": 1, "rule": "paired", "band": 0.05, "score": score})
    grower, trained = Grower(options, trainer(fresh(prediction)), X, Y), []
    run = grower.trainer.run

    def running(**how):
        trained.append(grower.trainer.model.schedule.sigma)
        return run(**how)

    monkeypatch.setattr(grower.trainer, "run", running)
    found, top = grower.run(), (grid(options).sigma[-1],)
    assert (found.schedule.sigma, found.growth.rounds) == (top, 0)
    assert trained == [top, top]  # before the error of the top is measured, and after


def test_the_shares_are_as_asked_at_every_moment():
    """Levels that are tried have `tried` together, then σ_0 has most; the top never has less than its least share."""
    options = SearchOptions(**SEARCH | {"lowest": 0.7, "top": 0.2, "ahead": 2, "tried": 0.3})
    seen = []

    class Watched(Known):
        def loss(self, batch, generator):
            seen.append((self.schedule, self.recipe.share))
            return super().loss(batch, generator)

    model = Watched(Filter(), frame(), schedule=grid(options), prediction="v")
    model.oracle = AffineOracle(lambda s: 0.3 * s, 0.0)
    Grower(options, trainer(model), *model.oracle.pairs((8, 1, 16), seeded())).run()
    assert len(seen) == FIT["updates"]
    assert [len(s) for s, _ in seen[:8]] == [1] * 8  # warm: the top alone
    for schedule, share in seen:
        told = (1.0,) if share is None else share
        assert len(told) == len(schedule)
        assert sum(told) == pytest.approx(1)
        assert told[-1] >= 0.2 - 1e-12
    _, first = seen[8]  # the first round: two levels below the top
    assert first == pytest.approx((0.15, 0.15, 0.7))
    lowest, *between, top = seen[-1][1]
    assert top == pytest.approx(0.2)
    assert between == pytest.approx([lowest * 0.3 / 0.7 / (len(between) + 1)] * len(between))


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6).filter(lambda p: sum(p) > 0.1), st.integers(1, 300))
def test_a_stratified_draw_gives_every_level_its_share_up_to_one_sample(parts, count):
    share = [p / sum(parts) for p in parts]
    index = draw_index(len(share), count, seeded(count), share)
    for i, asked in enumerate(share):
        assert abs((index == i).sum().item() - asked * count) < 1 + 1e-6
    of = range(2 * count)
    halves = [draw_index(len(share), count, Streams(3, rows, 2 * count), share) for rows in (of[:count], of[count:])]
    assert torch.equal(torch.cat(halves), draw_index(len(share), 2 * count, Streams(3, of), share))


@pytest.mark.parametrize(("power", "gain", "pays"), [(0.02, 0.5, False), (0.5, 0.01, True)])
def test_levels_that_do_not_pay_are_dropped_before_the_rest(power, gain, pays):
    """Clean errors fall with the level in both cases, but in one of them the chain's own error takes more than that."""
    rules = {"levels": 16, "sigma_max": 0.5, "tau": 2.0, "tau_explore": 2.0, "rounds": 6}
    found = {}
    for rule in ("greedy", "best"):
        options = SearchOptions(**SEARCH | rules | {"rule": rule})
        model = Known(Filter(), frame(), schedule=grid(options), prediction="v")
        model.oracle = AffineOracle(lambda s: 0.3 * s**power, lambda s: 0.0 if s > 0.495 else gain)
        grower = Grower(options, trainer(model), *model.oracle.pairs((64, 1, 16), seeded()))
        found[rule] = grower.run()
        assert found[rule].growth.history[-1]["ladder"] == list(grower.state.ladder)
    assert len(found["greedy"].growth.ladder) > 1
    assert (len(found["best"].growth.ladder) > 1) is pays
    for one in found.values():
        ladder, error = one.greedy
        least = at_most(one.front, len(ladder))[1]
        assert error.mean >= least.mean - 4 * (error.stderr + least.stderr)


def test_where_the_answer_is_a_distribution_the_front_of_the_crps_chooses_among_all_levels():
    told = {"levels": 6, "sigma_max": 0.999, "rounds": 2, "ahead": 1, "draws": 4, "calls": 3, "rule": "best"}
    found = {}
    for score in ("error", "crps"):
        options = SearchOptions(**SEARCH | told | {"score": score})
        model = Known(Filter(), frame(), schedule=grid(options), prediction="v")
        model.oracle = GaussianOracle(0.5)
        grower = Grower(options, trainer(model), *model.oracle.pairs((64, 1, 16), seeded()))
        found[score] = grower.run()
    assert len(found["error"].schedule) == 1  # the mean has the least error
    assert len(found["crps"].growth.history[-1]["levels"]) == 6  # all are measured, whatever `ahead` says
    assert 1 < len(found["crps"].schedule) <= 3
    assert [*found["crps"].growth.ladder] == found["crps"].growth.history[-1]["ladder"]
    assert found["crps"].score == "crps"


# --- killed and resumed --------------------------------------------------------------------------


class Killed(Exception):
    pass


class Killer:
    """Ends a training at the first report from some update on."""

    def __init__(self, update):
        self.update = update

    def start(self, update, total):
        pass

    def report(self, report):
        if report.update >= self.update:
            raise Killed

    def stop(self):
        pass


def grown(options, folder, kills=(), **fit):
    """(weights, averaged weights, growth, ladder, ledger) of a growth that is killed at these updates."""
    for update in (*kills, None):
        observers = () if update is None else [Killer(update)]
        made = trainer(fresh("scaled", scale=0.6), folder, observers=observers, **fit)
        try:
            found = Grower(options, made, X, Y).run()
        except Killed:
            continue
    tensors = [{k: v.clone() for k, v in m.state_dict().items()} for m in (made.model, made.averaged)]
    told = json.dumps(asdict(found.growth), sort_keys=True)
    return tensors, told, found.schedule, made.progress.ledger, made.averaged.rule.c


@pytest.mark.parametrize("optimiser", ["adam", "soap"])
def test_killed_at_random_during_growth_and_resumed_nothing_differs(tmp_path, optimiser):
    options = SearchOptions(**SEARCH | {"tau": 1.5, "ahead": 2})
    whole = grown(options, tmp_path / "whole", optimiser=optimiser)
    assert json.loads(whole[1])["rounds"] >= 1
    kills = (torch.rand(6, generator=seeded(4)) * FIT["updates"]).long().sort().values.tolist()
    broken = grown(options, tmp_path / "broken", kills, optimiser=optimiser)
    assert whole[1:] == broken[1:]
    for a, b in zip(whole[0], broken[0], strict=True):
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_growth_killed_while_it_measures_goes_on_as_if_it_were_not(tmp_path, monkeypatch):
    """Between the training of a round and the checkpoint that holds what it measured."""
    options = SearchOptions(**SEARCH | {"tau": 1.5})
    whole, measure, calls = grown(options, tmp_path / "whole"), Grower._joined, []

    def once(self, now):
        calls.append(now)
        if calls.count(now) == 1:
            raise Killed
        return measure(self, now)

    monkeypatch.setattr(Grower, "_joined", once)
    broken = grown(options, tmp_path / "broken", kills=[10**9] * 3)
    assert len(calls) > len({*calls})
    assert whole[1:] == broken[1:]


def test_a_growth_from_another_top_is_refused(tmp_path):
    first = trainer(fresh(), tmp_path, observers=[Killer(20)])
    with pytest.raises(Killed):
        Grower(SearchOptions(**SEARCH), first, X, Y).run()
    with pytest.raises(ValueError, match="another top level; use another folder"):
        Grower(SearchOptions(**SEARCH, sigma_max=0.9), trainer(fresh(), tmp_path), X, Y)


# --- the ledger ----------------------------------------------------------------------------------


class Counting(Filter):
    """Counts the rows that it is given."""

    def __init__(self, **how):
        super().__init__(**how)
        self.seen = 0

    def forward(self, z_t, x=None, log_snr=None):
        self.seen += len(z_t)
        return super().forward(z_t, x, log_snr)


LEDGER = {
    "direct": (Direct, Recipe(), 1),
    "direct unrolled": (Direct, Recipe(unroll=1), 2),
    "diffusion": (Diffusion, Recipe(), 1),
    "diffusion, shares": (Diffusion, Recipe(share=(0.7, 0.1, 0.1, 0.1)), 1),
    "proxy, n = 0": (Diffusion, Recipe(1, "proxy"), None),  # as many as levels are drawn above σ_0
    "proxy, n = 0, detached": (Diffusion, Recipe(1, "proxy", detach=True), None),
    "proxy, n = 1": (Diffusion, Recipe(1, "proxy", n=1), 4),
    "full": (Diffusion, Recipe(1, "full"), 6),
    "the CRPS of two chains": (Diffusion, Recipe(members=2), 8),
    "refiner": (Refiner, Recipe(), 1),
}


@pytest.mark.parametrize("name", LEDGER)
def test_the_ledger_is_what_a_counting_network_saw(name):
    kind, recipe, passes = LEDGER[name]
    net = Counting(noise=kind is not Direct)
    made = kind(net, frame(), schedule=fresh().schedule) if kind is Diffusion else kind(net, frame())
    made.recipe = recipe
    run = trainer(made, updates=12, ema=None).run()
    assert run.progress.ledger == net.seen > 0
    expected = made.passes(recipe, 4) if passes is None else passes
    assert run.progress.ledger == pytest.approx(12 * 8 * expected, rel=0.1 if passes is None else 1e-12)
    assert made.passes(recipe, 4) == pytest.approx(expected)


def test_what_is_measured_on_the_way_is_not_in_the_ledger():
    made = fresh()
    run = trainer(made, updates=12, ema=None)
    run.evaluate, run.evaluate_every = (lambda model, update: {"error": model.advance(X).sum().item()}), 3
    assert run.run().progress.ledger == 12 * 8 < made.rows


def test_a_grown_training_costs_what_a_plain_one_does():
    grower = Grower(SearchOptions(**SEARCH | {"tau": 1.5}), trainer(fresh()), X, Y)
    grower.run()
    plain = trainer(fresh(schedule=Schedule([0.1, 0.9]))).run()
    assert grower.trainer.progress.ledger == plain.progress.ledger == FIT["updates"] * FIT["batch"]
    assert grower.trainer.progress.update == plain.progress.update
