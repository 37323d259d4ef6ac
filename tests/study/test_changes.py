"""A finished study that is continued, changed, extended and scored again."""

import shutil

import pytest
from calling import SMOKE, called, program

import biasbound
from biasbound.cli import main
from biasbound.metrics.rows import read_rows
from biasbound.models.weights import load_tensors
from biasbound.study.parsing import read_config

KEEP = "benchmarks/keep_run.py"


def of(row):
    return row.method, row.seed, row.metric, row.step


def parameters(run, label="direct"):
    emulator = biasbound.load(run / f"03-train/{label}/seed-0/emulator")
    return sum(p.numel() for p in emulator.model.parameters())


def test_the_same_command_makes_nothing_again(smoke, tmp_path, capsys):
    copy = shutil.copytree(smoke, tmp_path / "ks")
    marks = {p: p.stat().st_mtime_ns for p in copy.rglob("stage.json")}
    code, said, _ = called(["run", copy, *SMOKE], capsys)
    assert code == 0
    assert "0 units made" in said
    assert "index.html: is there already" in said
    assert {p: p.stat().st_mtime_ns for p in copy.rglob("stage.json")} == marks


def test_changed_settings_are_refused_by_name_until_told_to_redo(copied, capsys):
    before, kept = parameters(copied), (copied / "config.yaml").read_text()
    command = ["train", copied, *SMOKE, "--method", "direct", "--network.width", "16", "--train.updates", "2"]
    code, _, said = called(command, capsys)
    assert code == 2
    assert "03-train/direct/seed-0" in said
    assert "--redo" in said
    assert parameters(copied) == before
    assert (copied / "config.yaml").read_text() == kept
    code, said, _ = called([*command, "--redo"], capsys)
    assert code == 0
    assert parameters(copied) > before
    assert "1 were there already" in said  # the data


def test_results_of_discarded_units_go_with_them(copied, capsys):
    kept = (copied / "results.jsonl").read_text()
    for more in ([], ["--redo"]):  # a report makes nothing again
        code, _, said = called(["report", copied, "--train.lr", "0.01", *more], capsys)
        assert code == 2
        assert "06-evaluate/direct/seed-0" in said
    assert (copied / "results.jsonl").read_text() == kept
    again = [str(copied), "--jobs", "1", "--method", "direct"]
    assert main(["train", *again, "--train.lr", "0.01", "--redo"]) == 0
    assert {r.method for r in read_rows(copied / "results.jsonl")} == {"persistence"}  # which is not trained
    assert main(["evaluate", *again]) == 0
    assert {r.method for r in read_rows(copied / "results.jsonl")} == {"direct", "persistence"}


def test_a_run_keeps_all_methods_that_it_has_had(copied):
    had = read_config(copied / "config.yaml").methods
    assert main(["evaluate", str(copied), "--jobs", "1", "--methods=direct-pf1,direct", "--method", "direct-pf1"]) == 0
    assert read_config(copied / "config.yaml").methods == (*had, "direct-pf1")
    assert {r.method for r in read_rows(copied / "results.jsonl")} == {*had, "direct-pf1", "persistence"}


def test_a_record_is_scored_again_from_its_emulators(smoke, tmp_path, capsys, monkeypatch, pytestconfig):
    kept = tmp_path / "kept"
    done = program(smoke, kept, "--emulators", start=(str(pytestconfig.rootpath / KEEP),))
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(tmp_path)
    code, said, problem = called(["evaluate", kept, "--jobs", "1"], capsys)
    assert code == 0, problem
    recorded = [r for r in read_rows(kept / "results.jsonl") if r.low is not None]
    assert f"{len(recorded)} of {len(recorded)} recorded intervals hold" in said
    again = {of(r): r.value for r in read_rows(tmp_path / "runs/rescored-kept/results.jsonl")}
    told = {of(r): r.value for r in read_rows(kept / "results.jsonl")}  # with seven digits, and without some metrics
    assert len(told) > len(again) / 2
    assert {one: again[one] for one in told} == {one: v and pytest.approx(v, rel=1e-6) for one, v in told.items()}
    assert "there is no option --jbos" in called(["evaluate", kept, "--jbos", "2"], capsys)[2]
    weights = kept / "04-finetune/adaptive-proxy/seed-0/emulator/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    code, said, complaint = called(["evaluate", kept], capsys)
    assert code == 2
    assert str(weights) in complaint
    assert "\nscored" not in said  # it is found before anything is scored


def test_a_warm_start_goes_on_from_the_network_of_the_search(copied):
    rate = 0.01  # Adam moves no weight by more than this in its first update
    label, near = "adaptive-v-residual", {}
    for warm in ("true", "false"):
        options = ["--search.updates", "40", "--search.warm_start", warm]
        options += ["--train.updates", "1", "--train.evaluations", "1", "--train.lr", str(rate), "--redo"]
        assert main(["train", str(copied), *SMOKE, "--method", label, *options]) == 0
        start = load_tensors(copied / f"02-search/{label}/seed-0/start.safetensors")[0]
        trained = biasbound.load(copied / f"03-train/{label}/seed-0/emulator").model.state_dict()
        assert trained.keys() == start.keys()
        near[warm] = max(float((trained[k] - start[k]).abs().max()) for k in start)
    assert near["true"] <= 1.01 * rate
    assert near["false"] > 3 * rate
