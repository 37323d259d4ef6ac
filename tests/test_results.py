"""The record in results/: its pages say what its rows say, and its emulators load."""

import importlib
import json
import math
import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml

import biasbound
from biasbound.metrics.intervals import Interval
from biasbound.metrics.rows import About, read_rows, select, write_rows
from biasbound.study.graph import methods_of
from biasbound.study.parsing import read_config
from biasbound.study.rescore import read_record

ROOT = Path(__file__).parents[1]
RECORDS = sorted(path.parent for path in (ROOT / "results/record").glob("*/results.jsonl"))
GRIDS = {"ks": (64,), "kolmogorov": (32, 32), "transonic": (64, 32)}
each_record = pytest.mark.parametrize("folder", RECORDS, ids=lambda folder: folder.name)


@pytest.fixture
def scripts(monkeypatch):
    """The modules that make tables of the record."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import results_tables

    yield results_tables
    for name in [name for name in sys.modules if name.startswith("results_")]:
        sys.modules.pop(name)


def test_the_pages_show_the_tables_of_the_record(scripts):
    shown = set()
    for page in scripts.PAGES:
        text = page.read_text()
        assert scripts.filled(text) == text, f"run benchmarks/results_tables.py: {page.name} is old"
        shown |= {name for _, name, _ in scripts.MARK.findall(text)}
    assert shown == set(scripts.TABLES)


@each_record
def test_a_record_has_every_method_and_seed_of_its_config(folder):
    config, rows = read_config(folder / "config.yaml"), read_rows(folder / "results.jsonl")
    wanted = {
        (m if isinstance(m, str) else biasbound.models.method.method(m).label, s)
        for m in config.methods
        for s in config.seeds
    }
    assert {(r.method, r.seed) for r in rows} - {("persistence", config.seeds[0])} <= wanted
    ledgers = {r.ledger for r in rows if r.ledger}
    assert max(ledgers) <= 1.02 * min(ledgers)


@each_record
def test_schedule_files_of_a_record_stand_in_it_on_any_machine(folder):
    for method in methods_of(read_config(folder / "config.yaml").methods).values():
        if method.file is not None:
            assert method.file.parent == folder.relative_to(ROOT)
            assert (ROOT / method.file).is_file()


@each_record
def test_every_number_of_a_record_tells_where_it_comes_from(folder):
    units = json.loads((folder / "provenance.json").read_text())
    scored = {f"06-evaluate/{r.method}/seed-{r.seed}" for r in read_rows(folder / "results.jsonl")}
    assert scored <= set(units)
    for name, unit in units.items():
        assert unit["commit"], name
        assert unit["machine"], name
        assert not unit["dirty"], name


@pytest.mark.long
@each_record
def test_every_emulator_of_a_record_steps(folder):
    for path in sorted(folder.glob("0[34]-*/*/seed-0/emulator")):
        assert sum(p.stat().st_size for p in path.iterdir()) <= 2e6
        emulator = biasbound.load(path)
        known = torch.full((1, len(emulator.conditions)), 0.7) if emulator.conditions else None
        start = torch.zeros(1, len(emulator.channels), *GRIDS[read_config(folder / "config.yaml").data.dataset])
        assert emulator.step(start, known).isfinite().all()


def test_the_results_are_small():
    assert sum(p.stat().st_size for p in (ROOT / "results").rglob("*") if p.is_file()) <= 60e6


# --- the scripts on a record that is made up ----------------------------------------------------------


def made(folder, errors, ledger=1000, nfe=2):
    """Rows of {method: ten-step errors, one per seed}."""
    rows = []
    for method, found in errors.items():
        for seed, value in enumerate(found):
            about = About("ks", method, seed, nfe, ledger=ledger)
            rows += [about.row("broken", 0), about.row("mse", value, 10), about.row("one_step_mse", value / 10, 1)]
    folder.mkdir(parents=True)
    write_rows(folder / "results.jsonl", rows)


def test_medians_and_quartiles_know_lost_seeds(scripts):
    rows = sys.modules["results_rows"]
    assert rows.Quartiles.of([]) is None
    assert rows.Quartiles.of([4.0, 1.0, 2.0, 3.0, 5.0]) == rows.Quartiles(3.0, 2.0, 4.0, 5)
    assert rows.Quartiles.of([1.0, None, 2.0]) == rows.Quartiles(2.0, 2.0, math.inf, 3)


def test_rows_of_one_ledger_are_one_table_and_others_points_of_its_curves(scripts, tmp_path):
    rows = sys.modules["results_rows"]
    made(tmp_path / "ks", {"direct-residual": [1.0, 3.0, 2.0]})
    made(tmp_path / "ks-peers", {"flow-residual-1": [1.0]}, ledger=1004)
    made(tmp_path / "ks-twice", {"direct-residual": [0.5]}, ledger=2000)
    made(tmp_path / "kolmogorov", {"direct": [7.0]})
    assert sorted(rows.budgets("ks", tmp_path)) == [1000, 2000]
    assert rows.labels(rows.table_rows("ks", tmp_path)) == ["direct-residual", "flow-residual-1"]
    assert rows.quartiles(rows.table_rows("ks", tmp_path), "direct-residual", "mse", 10).median == 2.0
    assert not rows.table_rows("transonic", tmp_path)
    shutil.copytree(tmp_path / "ks-peers", tmp_path / "ks-peers-again")
    rows.budgets.cache_clear()
    with pytest.raises(ValueError, match=r"flow-residual-1, seed 0, is both in .*ks-peers and in .*ks-peers-again"):
        rows.budgets("ks", tmp_path)


def test_a_bar_is_missed_where_ours_is_behind_by_more_than_quartiles(scripts, tmp_path):
    bars = sys.modules["results_bars"]
    near, far = {"adaptive-scaled-residual": [2.0, 2.2, 2.4]}, {"adaptive-scaled-residual": [4.0, 4.1, 4.2]}
    for name, ours in (("near", near), ("far", far)):
        made(
            tmp_path / name / "ks", {"flow-residual-1": [1.9, 2.1, 2.3], "cosine-scaled-residual": [50.0] * 3, **ours}
        )
    of = {name: {b.what: b for b in bars.every(tmp_path / name)} for name in ("near", "far")}
    for told in of.values():
        assert told["searched over fixed schedule, scaled, one step"].reached
        assert not told["MSE, ten steps"].reached
    ten = "ours over the best peer of at most 4 calls, ten steps"
    assert (of["near"][ten].reached, of["far"][ten].reached) == (True, False)
    (tmp_path / "far" / "tried.json").write_text(json.dumps({f"{ten}, ks": "prayer"}))
    assert "prayer" in bars.misses(tmp_path / "far")


def test_a_network_that_no_peer_has_wins_no_bar_over_peers(scripts, tmp_path):
    bars = sys.modules["results_bars"]
    ours = {"adaptive-dilated-scaled-residual": [1.0], "adaptive-scaled-residual": [3.0]}
    made(tmp_path / "ks", {"flow-residual-1": [2.0], "direct-dilated-residual": [4.0], **ours})
    of = {b.what: b.of for b in bars.peers(tmp_path)}
    ten = "ours over the best {}, ten steps".format
    assert of[ten("peer of at most 4 calls")] == "adaptive-scaled-residual over flow-residual-1"
    assert of[ten("direct model")] == "adaptive-dilated-scaled-residual over direct-dilated-residual"


def test_a_ladder_is_compared_with_published_schedules_of_few_levels_too(scripts, tmp_path):
    bars = sys.modules["results_bars"]
    others = {"cosine-2-v-residual": [4.0], "ays-2-v-residual": [5.0], "greedy-2-v-residual": [1.0]}
    for focused, figure, of in (
        ({}, "0.50", "cosine-2-v-residual"),
        ({"ays-2-v-residual-focus": [2.5]}, "0.80", "ays-2-v-residual-focus"),
    ):
        folder = tmp_path / figure
        made(folder / "ks", {"adaptive-v-residual": [1.0, 3.0, 2.0]})
        made(folder / "panel-ks", {**others, **focused, "cosine-2-scaled-residual": [1.0]})
        assert [(b.figure, b.of, b.reached) for b in bars.few(folder)] == [
            (figure, f"adaptive-v-residual over {of}", False)
        ]


def test_an_error_that_twice_the_samples_halve_has_not_converged(scripts, tmp_path):
    bars = sys.modules["results_bars"]
    made(tmp_path / "ks", {"direct-residual": [1.0, 3.0, 2.0], "cosine": [1.0]})
    made(tmp_path / "ks-twice", {"direct-residual": [0.5, 1.5, 0.2], "flow-residual-1": [9.0]}, ledger=2004)
    told = {b.what: b for b in bars.doubled(tmp_path)}
    assert {*told} == {"one step, 2,004 over half the samples", "ten steps, 2,004 over half the samples"}
    assert all((b.figure, b.of, b.reached) == ("0.50", "direct-residual 0.50", False) for b in told.values())


def test_a_kept_interval_holds_what_it_held(scripts):
    keep = importlib.import_module("keep_run")
    for value in (math.pi, -math.pi, 1e-9 / 3, 0.0, 2e22 / 7, 5e-324):
        row = About("ks", "direct", 0, seconds=1.234567).row("mse", Interval(value, value, value), 1)
        short = keep.shortened(row)
        assert short.low <= value <= short.high
        assert short.value == pytest.approx(value, rel=1e-6)
        assert keep.shortened(short) == short
    none = keep.shortened(About("ks", "direct", 0).row("mse", math.inf, 1))
    assert (none.value, none.low, none.high) == (None, None, None)


def test_several_runs_are_kept_as_one_record(scripts, tmp_path, monkeypatch):
    keep = importlib.import_module("keep_run")
    told = {"title": "KS", "methods": ["direct-residual"], "seeds": [0, 1], "train": {"lr": 0.1, "compile": False},
            "network": {"name": "unet", "others": {"dilated": {"positions": 4}}}}  # fmt: skip
    first, second = tmp_path / "first", tmp_path / "second"
    made(first, {"direct-residual": [1.0, 2.0]})
    made(second, {"flow-residual-1": [3.0]})
    other = {**told, "methods": ["flow-residual-1"], "seeds": [0], "train": {"lr": 0.1, "compile": True},
             "network": {"name": "unet", "others": {}}}  # fmt: skip
    for run, config in ((first, told), (second, other)):
        (run / "config.yaml").write_text(json.dumps(config))
        (run / "provenance.json").write_text(json.dumps({f"06-evaluate/{run.name}": {"commit": run.name}}))

    def kept(*words):
        monkeypatch.setattr(sys, "argv", ["keep_run.py", *map(str, words)])
        keep.main()

    kept(first, second, first)  # a record may grow in its own place
    config = json.loads(json.dumps(yaml.safe_load((first / "config.yaml").read_text())))
    assert (config["methods"], config["seeds"]) == (["direct-residual", "flow-residual-1"], [0, 1])
    assert config["network"] == told["network"]  # the other has no method that asks for these options
    assert {(r.method, r.seed) for r in read_rows(first / "results.jsonl")} == {
        ("direct-residual", 0), ("direct-residual", 1), ("flow-residual-1", 0),
    }  # fmt: skip
    assert {*json.loads((first / "provenance.json").read_text())} == {"06-evaluate/first", "06-evaluate/second"}
    made(tmp_path / "again", {"flow-residual-1": [5.0]})
    unit = "06-evaluate/flow-residual-1/seed-0"
    (first / "provenance.json").write_text(json.dumps({unit: {"commit": "old", "machine": "theirs"}}))
    kept(first, tmp_path / "renewed", "--rescored", tmp_path / "again")
    rows = read_rows(tmp_path / "renewed" / "results.jsonl")
    assert [r.value for r in rows if r.metric == "mse"] == [1.0, 2.0, 5.0]
    told_of = json.loads((tmp_path / "renewed" / "provenance.json").read_text())[unit]
    assert (told_of["rescored"], told_of["machine"]) == (True, "theirs")
    assert told_of["commit"] != "old"
    with pytest.raises(SystemExit, match=r"flow-residual-1, seed 0, is both in"):
        kept(first, second, first)
    for run, levels in ((second, "new"), (first, "old")):
        schedule = run / "03-train" / "flow-residual-1" / "seed-0" / "growth.json"
        schedule.parent.mkdir(parents=True, exist_ok=True)
        schedule.write_text(levels)
    kept(second, first, tmp_path / "replaced", "--replace", "--curves")
    assert {r.value for r in read_rows(tmp_path / "replaced" / "results.jsonl") if r.metric == "mse"} == {
        1.0,
        2.0,
        3.0,
    }
    assert (tmp_path / "replaced" / "03-train/flow-residual-1/seed-0/growth.json").read_text() == "new"
    (second / "config.yaml").write_text(json.dumps({**other, "train": {"lr": 0.2}}))
    with pytest.raises(SystemExit, match=r"the runs differ in train\.lr: 0\.1 and 0\.2"):
        kept(first, second, tmp_path / "third")
    assert not (tmp_path / "third").exists()


def test_a_record_may_keep_the_emulators_of_some_seeds_only(tmp_path):
    seeds = {record: {row.seed for row in read_rows(record / "results.jsonl")} for record in RECORDS}
    several = next(record for record in RECORDS if {0} < seeds[record])
    kept, others = shutil.copytree(several, tmp_path / "kept"), seeds[several] - {0}
    (kept / "kept.json").unlink(missing_ok=True)  # of a record that keeps some already
    for path in kept.glob("0[34]-*/*/seed-[!0]"):
        shutil.rmtree(path)
    with pytest.raises(ValueError, match="no emulator"):
        read_record(kept)
    (kept / "kept.json").write_text(json.dumps({"seeds": [0]}))
    record = read_record(kept)
    assert record.alone == tuple(sorted(others))
    assert {row.seed for row in record.rows} == {0}
    assert select(record.rows, seed=0)
