"""The record in results/mini: its pages say what its rows say, and its emulators load."""

import json
import sys
from pathlib import Path

import pytest
import torch

import biasbound
from biasbound.metrics.rows import read_rows, select
from biasbound.study.parsing import presets, read_config

ROOT = Path(__file__).parents[1]
MINI = ROOT / "results" / "mini"
GRIDS = {"ks": (64,), "kolmogorov": (32, 32), "transonic": (64, 32)}


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import results_tables

    yield results_tables
    sys.modules.pop("results_tables", None)


def test_the_pages_show_the_tables_of_the_record(tables):
    shown = set()
    for page in tables.PAGES:
        text = page.read_text()
        assert tables.filled(text) == text, f"run benchmarks/results_tables.py: {page.name} is old"
        shown |= {name for _, name, _ in tables.MARK.findall(text)}
    assert shown == set(tables.TABLES)


@pytest.mark.parametrize("flow", GRIDS)
def test_a_record_has_the_data_of_its_preset_and_every_method_and_seed(flow):
    """The record is older than the presets' growing ladders: flow, network and scores are theirs, the training is not."""
    config, rows = (read_config(MINI / flow / "config.yaml"), read_rows(MINI / flow / "results.jsonl"))
    preset = read_config(presets()[f"{flow}-mini"])
    for section in ("data", "task", "network", "rollout", "evaluate"):
        assert getattr(config, section) == getattr(preset, section)
    assert {(r.method, r.seed) for r in rows} == {(m, s) for m in config.methods for s in config.seeds}
    budgets = {r.updates for r in rows if not r.method.startswith("adaptive")}
    assert budgets == {config.train.updates}


@pytest.mark.long
@pytest.mark.parametrize("flow", GRIDS)
def test_every_row_of_a_record_has_an_emulator_that_steps(flow):
    rows = read_rows(MINI / flow / "results.jsonl")
    for label, seed in sorted({(r.method, r.seed) for r in rows}):
        stage = "04-finetune" if label.endswith("-proxy") else "03-train"
        folder = MINI / flow / stage / label / f"seed-{seed}" / "emulator"
        assert sum(p.stat().st_size for p in folder.iterdir()) <= 2e6
        emulator = biasbound.load(folder)
        assert emulator.nfe == select(rows, method=label, seed=seed)[0].nfe
        if seed == 0:
            known = torch.full((1, len(emulator.conditions)), 0.7) if emulator.conditions else None
            start = torch.zeros(1, len(emulator.channels), *GRIDS[flow])
            step = emulator.step(start, known)
            assert step.isfinite().all()


@pytest.mark.parametrize("flow", GRIDS)
def test_every_number_of_a_record_tells_where_it_comes_from(flow):
    units = json.loads((MINI / flow / "provenance.json").read_text())
    rows = read_rows(MINI / flow / "results.jsonl")
    scored = {f"06-evaluate/{r.method}/seed-{r.seed}" for r in rows}
    assert scored <= set(units)
    for name, unit in units.items():
        assert unit["commit"], name
        assert unit["machine"], name
        assert not unit["dirty"], name


def test_the_record_is_small():
    assert sum(p.stat().st_size for p in MINI.rglob("*") if p.is_file()) <= 40e6
