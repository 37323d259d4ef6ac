"""The paper's presets say what the paper says."""

import pytest
from calling import called

from biasbound.core.ladder import grid
from biasbound.core.schedule import log_uniform
from biasbound.models.method import method
from biasbound.study.parsing import presets, read_config

PAPER = [name for name in presets() if name.endswith("-paper")]


@pytest.mark.parametrize("name", PAPER)
def test_a_paper_preset_is_the_papers(name):
    config = read_config(presets()[name])
    search, train, tuning = config.search, config.train, config.finetune
    assert (search.mode, search.tau, search.power, search.statistic, search.solved) == (
        "separate", 1.05, 1, "mean", "leave",
    )  # fmt: skip
    assert grid(search) == log_uniform(40, 1e-3, over="sigma")
    assert (search.updates, train.budget) == (None, None)  # E + E
    assert (train.optimiser, train.lr, train.lr_final, train.batch) == ("adam", 1e-4, 1e-6, 64)
    assert (train.ema, train.clip, train.weight_decay) == (None, None, 0.0)
    assert train.epochs == (2000 if name.startswith("transonic") else 1000)
    assert (tuning.lr, tuning.lr_final, tuning.unroll, tuning.updates) == (1e-4, 1e-6, 1, None)
    assert (config.baselines.levels, config.baselines.refinements) == (20, 3)
    made = [method(one) for one in config.methods]
    assert {m.unroll + 1 for m in made if m.model == "direct"} == {1, 2, 8}  # the paper's U
    assert {m.schedule for m in made} >= {"linear", "cosine", "sigmoid", "adaptive"}
    assert all(m.prediction == "eps" and not m.residual for m in made)
    for m in made:
        if (chain := m.chain(20, None)) is not None:  # without a cap, each as published
            assert len(chain) == 20


@pytest.mark.parametrize("name", [name for name in PAPER if not name.startswith("transonic")])
def test_its_options_are_accepted_and_its_cost_is_told(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--baselines.cap", "null", "--data.held_out", "{trajectories: 512}", "--finetune.proxy_steps", "1"]
    code, said, _ = called(["run", "--preset", name, *options, "--search.power", "2", "--dry-run"], capsys)
    assert code == 0
    assert "02-search/adaptive/seed-0" in said
    assert "all trainings:" in said
    assert not list(tmp_path.iterdir())
