"""Masked data through the stages of a study."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import biasbound
from biasbound.data.trajectories import Trajectories
from biasbound.metrics.rows import read_rows, select
from biasbound.models.task import Forecast
from biasbound.study.config import Config, DataConfig, EvaluateConfig, NetworkConfig, RolloutConfig, TrainConfig
from biasbound.study.graph import study_units
from biasbound.study.jobs import UntrainedJob
from biasbound.study.stages.evaluate import make_evaluate
from biasbound.study.stages.material import Material
from biasbound.study.stages.place import Place
from biasbound.study.stages.rollout import make_rollout
from biasbound.study.stages.train import make_train

GRID = (6, 8)
MASK = np.ones(GRID, dtype=bool)
MASK[2:4, 3:6] = False
NET = NetworkConfig(width=8, multipliers=(1,))
CONFIG = Config(
    methods=("direct-residual", "log-uniform-v"),
    data=DataConfig(dataset="ks"),
    network=NET,
    train=TrainConfig(updates=2, batch=4, evaluations=1, pairs=4),
    rollout=RolloutConfig(members=2),
    evaluate=EvaluateConfig(pairs=6, curve=2),
)


@pytest.fixture
def material():
    """Drifting waves; what stands under the mask is 0 in physical units, as the data give it."""
    random, made = np.random.default_rng(0), Material.__new__(Material)  # its splits are here, not in files
    made.device = "cpu"
    for split, count in (("train", 3), ("valid", 2), ("test", 2)):
        fields = 5 + random.standard_normal((count, 7, 2, *GRID)).cumsum(1)
        data = Trajectories.from_array(np.where(MASK, fields, 0).astype(np.float32), dt=0.1, name=split)
        object.__setattr__(data, "mask", MASK)
        made.__dict__[split] = data
    return made


def test_pairs_are_zero_under_the_mask_and_the_network_has_one_more_input(material):
    x, y = material.pairs("valid", 4, Forecast())
    hidden = torch.from_numpy(~MASK)
    assert bool((x[..., hidden] == 0).all() and (y[..., hidden] == 0).all())
    assert material.network(NET, Forecast()).inputs == 3
    assert torch.equal(material.mask, ~hidden)


def test_a_masked_study_from_training_to_scores(material, tmp_path):
    units = {(u.stage, u.label): u for u in study_units(CONFIG)}
    for label in CONFIG.methods:
        places = {stage: tmp_path / label / stage for stage in ("train", "rollout", "evaluate")}
        for folder in places.values():
            folder.mkdir(parents=True)
        place = Place(places["train"], label, 0, places, shared=material)
        make_train(units["train", label].job, place)
        assert torch.equal(biasbound.load(places["train"] / "emulator").mask, material.mask)
        make_rollout(units["rollout", label].job, replace(place, folder=places["rollout"]))
        states = np.load(places["rollout"] / "prediction.npy")
        assert np.array_equal(np.isnan(states), np.broadcast_to(~MASK, states.shape))
        make_evaluate(units["evaluate", label].job, replace(place, folder=places["evaluate"]))
        rows = read_rows(places["evaluate"] / "rows.jsonl")
        assert all(row.value is not None for row in rows)
        (one,) = select(rows, metric="mse", step=1)
        gap = states[0, :, 0] - material.test.read(0, 2, slice(1, 2))[:, 0]
        assert one.value == pytest.approx(np.square(gap[..., MASK], dtype=np.float64).mean(), rel=1e-6)


def test_persistence_is_scored_at_valid_points(material, tmp_path):
    job = next(u.job for u in study_units(CONFIG) if u.label == "persistence")
    assert isinstance(job, UntrainedJob)
    make_evaluate(job, Place(tmp_path, "persistence", shared=material))
    fields = material.test.read(0, 2)[..., MASK]
    (found,) = select(read_rows(tmp_path / "rows.jsonl"), metric="mse", step=6)
    assert found.value == pytest.approx(np.square(fields[:, 6] - fields[:, 0]).mean(), rel=1e-4)
