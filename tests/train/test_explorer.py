"""The search on a network that trains."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from small_fit import trainer
from toys import Filter, advected, diffusion

from biasbound.core.bias import bias_curve
from biasbound.core.ladder import grid, ladder, measure_of
from biasbound.core.options import SearchOptions
from biasbound.train.explorer import Explorer

VALID = advected(16, seed=1).unbind(1)
SEARCH = SearchOptions(levels=6, sigma_min=0.02, rounds=4, draws=1, tau=1.3, start="sigma")
FIT = {"updates": 80, "batch": 64, "lr": 0.05, "log_every": 10, "checkpoint_every": 25, "ema": 0.9}


def explorer_and_trainer(folder=None, search=SEARCH, **how):
    return Explorer(search), trainer(FIT, diffusion(Filter(), **how), folder=folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(explorer, trainer, exploration) of one that ran to its end in a folder."""
    explorer, fit = explorer_and_trainer(tmp_path_factory.mktemp("whole"))
    return explorer, fit, explorer.run(fit, *VALID)


@pytest.mark.filterwarnings("ignore::biasbound.core.search.ForcedTransition")
@pytest.mark.parametrize(
    "how", [{"prediction": "eps"}, {"prediction": "x0"}, {"scale": 0.6, "transition": "ddim"}], ids=str
)
def test_the_search_runs_end_to_end_for_every_prediction(how):
    explorer, fit = explorer_and_trainer(**how)
    found = explorer.run(fit, *VALID)
    assert found.solved
    assert fit.progress.update <= fit.total
    denoisers = explorer.denoisers(fit, found)
    transition = fit.model.transition
    schedule, table = ladder(denoisers, *VALID, SEARCH, transition=transition)
    assert schedule.sigma[0] == min(found.solved)
    assert schedule.sigma[-1] == SEARCH.sigma_max
    assert set(schedule.sigma) <= set(table.levels)
    rows = bias_curve(next(iter(denoisers.values())), *VALID, schedule, measure_of(SEARCH, transition))
    assert len(rows) == len(schedule)


def test_each_network_is_stored_once(whole):
    explorer, fit, found = whole
    solving = {s.checkpoint for s in found.solved.values()}
    files = {int(p.stem.split("-")[1]) for p in fit.folder.glob("network-*.safetensors")}
    assert solving <= files <= solving | {found.last}
    denoisers = explorer.denoisers(fit, found)
    assert len({id(d) for d in denoisers.values()}) <= len(files)
    # From the files alone, as another process would.
    fresh, again = explorer_and_trainer(fit.folder)
    for sigma, denoiser in fresh.denoisers(again, found).items():
        pairs = zip(denoiser.parameters(), denoisers[sigma].parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


def test_points_hold_what_was_measured(whole):
    explorer, _, found = whole
    for point in explorer.points:
        assert found.history[point["round"] - 1][point["sigma"]] == point["own"]
        assert point["clean"] > 0
    assert len(explorer.points) == sum(math.isfinite(b) for biases in found.history for b in biases.values())


class Cut(Exception):
    pass


@pytest.mark.parametrize("cut", [1, 3])
def test_a_killed_exploration_ends_like_an_unbroken_one(whole, tmp_path, cut):
    def stop(state):
        if len(state.history) == cut:
            raise Cut

    explorer, fit = explorer_and_trainer(tmp_path)
    with pytest.raises(Cut):
        explorer.run(fit, *VALID, on_round=stop)
    explorer, fit = explorer_and_trainer(tmp_path)
    assert explorer.run(fit, *VALID) == whole[2]
    assert explorer.points == whole[0].points
    explorer, fit = explorer_and_trainer(tmp_path, replace(SEARCH, levels=7))
    with pytest.raises(ValueError, match="another grid"):
        explorer.run(fit, *VALID)


def test_levels_that_stay_are_measured_on_the_last_network():
    stay = replace(SEARCH, solved="stay")
    explorer, fit = explorer_and_trainer(search=stay)
    found = explorer.run(fit, *VALID)
    assert fit.model.schedule == grid(stay)  # nothing left the training
    first, *others = explorer.denoisers(fit, found).values()
    assert all(other is first for other in others)
    for name, value in first.state_dict().items():
        assert torch.equal(value, fit.averaged.state_dict()[name])
    assert all(solved.bias <= stay.tau for solved in found.solved.values())
    assert {s.round for s in found.solved.values()} == {len(found.history)}


@pytest.mark.parametrize("solved", ["stay", "leave"])
def test_an_exploration_goes_down_a_few_levels_at_a_time(solved):
    search = replace(SEARCH, solved=solved, ahead=2)
    explorer, fit = explorer_and_trainer(search=search)
    seen = []
    explorer.run(fit, *VALID, on_round=lambda state: seen.append((fit.model.schedule, state)))
    levels = grid(search).sigma
    assert seen[0][0].sigma == levels[-2:]  # nothing is solved yet
    for (_, before), (active, after) in pairwise(seen):
        lowest = min(map(levels.index, before.solved), default=len(levels))
        assert levels.index(active.sigma[0]) >= lowest - 2
        assert solved == "stay" or not set(active.sigma) & set(before.solved)
        untrained = set(before.open) - set(active.sigma)
        assert all(after.history[-1][s] == math.inf for s in untrained)


def test_levels_leave_training_when_they_are_solved():
    explorer, fit = explorer_and_trainer()
    seen = []
    explorer.run(fit, *VALID, on_round=lambda state: seen.append((fit.model.schedule.sigma, state.open)))
    assert seen[0][0] == grid(SEARCH).sigma
    for (trained, _), (_, open_before) in zip(seen[1:], seen, strict=False):
        assert trained == open_before
