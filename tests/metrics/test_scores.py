"""A rollout beside baselines, as people read it."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from biasbound.data.trajectories import Trajectories
from biasbound.metrics.rows import select
from biasbound.metrics.scores import persistence, score


def truth(frames=14, trajectories=3):
    random = np.random.default_rng(3)
    return Trajectories.from_array(random.normal(size=(trajectories, frames, 2, 8)).cumsum(1), dt=0.5, name="walks")


def test_a_perfect_rollout_beside_persistence():
    data = truth()
    true = data.read(0, 3, slice(1, 13))
    found = score(SimpleNamespace(states=torch.from_numpy(true)[None]), data)
    assert found.value("emulator", "mse_norm", 10) == 0
    gap = (true[:, 9] - data.read(0, 3, slice(0, 1))[:, 0]) / data.statistics.std[:, None]
    assert found.value("persistence", "mse_norm", 10) == pytest.approx(np.square(gap).mean())
    assert found.value("emulator", "correlation_time") == 6.0
    lines = str(found).splitlines()
    assert lines[0].split("  ")[-1] == "correlation time"
    assert [line.split()[0] for line in lines[1:]] == ["emulator", "persistence"]
    assert len({len(line) for line in lines}) == 1


def test_members_are_scored_as_an_ensemble_and_so_is_persistence():
    """Equal members have no spread, and their fair CRPS is their absolute error.

    M members around the truth have a mean that is √M times nearer to it than they are.
    """
    data = truth()
    true, random = data.read(0, 3, slice(1, 11)), np.random.default_rng(5)
    members = true + random.normal(size=(8, *true.shape))
    found = score(members, data)
    start = data.read(0, 3, slice(0, 1))
    assert found.value("persistence", "crps", 1) == pytest.approx(np.abs(start[:, 0] - true[:, 0]).mean())
    assert found.value("persistence", "spread_skill", 10) == 0
    assert found.value("emulator", "spread_skill", 10) == pytest.approx(3, rel=0.2)  # √(1 + 1/8) over √(1/8)
    assert "10-step CRPS" in str(found)
    assert "10-step spread/skill" in str(found)


def test_history_and_the_units_of_the_training_data():
    data = truth()
    true = data.read(0, 2, slice(3, 8))
    twice = Trajectories.from_array(2 * data.read(0, 3), dt=0.5)
    found, own = (score(true + 1, data, train=of, past=3) for of in (twice, None))
    assert found.value("emulator", "mse_norm", 1) == pytest.approx(own.value("emulator", "mse_norm", 1) / 4)
    assert found.value("emulator", "mse", 1) == pytest.approx(1)
    assert select(score(true, data, past=3, baselines=()).rows, method="persistence") == []
    assert "5-step RMSE" in str(found)


def test_a_rollout_that_does_not_fit_is_refused():
    data = truth()
    for wrong in (np.zeros((1, 4, 5, 2, 8)), np.zeros((1, 3, 14, 2, 8)), np.zeros((3, 8))):
        with pytest.raises(ValueError, match="does not fit walks"):
            score(wrong, data)
    with pytest.raises(ValueError, match="no baseline 'climate'"):
        score(data.read(0, 3, slice(1, 5)), data, ["climate"])
    with pytest.raises(ValueError, match="has no score mse at step 3"):
        score(data.read(0, 3, slice(1, 5)), data).value("emulator", "mse", 3)


@pytest.mark.parametrize("of", [np.zeros, torch.zeros])
def test_persistence_repeats_its_start(of):
    start = of((3, 2, 8)) + 4
    made = persistence(start, 5, 2)
    assert tuple(made.shape) == (2, 3, 5, 2, 8)
    assert bool((made == 4).all())
