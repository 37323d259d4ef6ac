"""A native file says twice what it holds; where the two differ it is refused, and impossible statistics are not believed."""

import json

import h5py
import numpy as np
import pytest
from data_files import flow

from biasbound.data.formats import load, save
from biasbound.study.stages.data import require_spread, usable


@pytest.fixture
def path(tmp_path):
    save(flow("ks"), tmp_path / "a.h5")
    return tmp_path / "a.h5"


def changed(path, **fields):
    with h5py.File(path, "r+") as file:
        told = json.loads(file["biasbound/layout"][()]) | fields
        del file["biasbound/layout"]
        file["biasbound/layout"] = np.bytes_(json.dumps(told).encode())


WRONG = {
    "frames": ({"frames": 3}, "its arrays have"),
    "trajectories": ({"trajectories": 2}, "its arrays have"),
    "more frames": ({"frames": 700}, "its arrays have"),
    "grid": ({"grid": [8]}, "its arrays have"),
    "axes": ({"grid": [4, 4], "domain": [[0, 1]] * 2, "boundary": ["open"] * 2}, "its arrays have"),
    "channels": ({"channels": ["v"]}, "its fields are"),
    "time step": ({"dt": 0.7}, "apart"),
    "negative": ({"frames": -3}, "its arrays have"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_layout_that_is_not_that_of_the_arrays_is_refused(path, case):
    fields, complaint = WRONG[case]
    changed(path, **fields)
    with pytest.raises(ValueError, match=complaint) as error:
        load(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("name", ["mean", "std", "increment_mean", "increment_std"])
@pytest.mark.parametrize("value", [[np.nan], [np.inf], [0.0], [-1.0], [1.0, 2.0], []])
def test_statistics_that_cannot_be_are_computed(path, name, value):
    if name.endswith("mean") and value in ([0.0], [-1.0]):
        value = [-np.inf]
    truth = load(path).measure()
    with h5py.File(path, "r+") as file:
        del file[f"biasbound/statistics/{name}"]
        file[f"biasbound/statistics/{name}"] = np.array(value)
    found = load(path).statistics
    for field in ("mean", "std", "increment_mean", "increment_std"):
        assert np.allclose(getattr(found, field), getattr(truth, field))


def test_statistics_of_other_values_are_refused_before_a_training(path):
    usable(load(path))
    with h5py.File(path, "r+") as file:
        file["biasbound/statistics/std"][...] = 100.0
    with pytest.raises(ValueError, match="not those of its values"):
        usable(load(path))


def test_a_channel_without_spread_is_named(tmp_path):
    made = flow("kolmogorov")
    made.reader._fields[:, :, 1] = 3.0
    with pytest.raises(ValueError, match="channel velocity_y has no spread"):
        require_spread(made)
