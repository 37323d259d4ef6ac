"""Whole studies at smoke size: every method from data to scores, killed, continued, changed."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import biasbound
from biasbound.cli import main
from biasbound.core.schedule import Schedule
from biasbound.metrics.rows import About, read_rows, select
from biasbound.metrics.score import score_steps
from biasbound.models.method import method
from biasbound.models.weights import load_tensors
from biasbound.study.graph import study_units
from biasbound.study.parsing import presets, read_config
from biasbound.study.plan import layout_of, plan
from biasbound.study.stages.evaluate import single_steps
from biasbound.study.stages.material import open_split

TINY = ["--methods", "[unet, adaptive-proxy]", "--train.updates", "12", "--train.evaluations", "2"]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The smoke study of all methods, made once."""
    folder = tmp_path_factory.mktemp("runs") / "ks"
    assert main(["run", str(folder), "--preset", "ks-smoke", "--jobs", "1"]) == 0
    return folder


def test_every_method_has_every_number(study):
    rows = read_rows(study / "results.jsonl")
    config = read_config(study / "config.yaml")
    for label in config.methods:
        own = select(rows, method=label)
        assert {"mse", "mse_norm", "correlation_time", "fsd", "broken"} <= {r.metric for r in own}
        assert {r.step for r in select(own, metric="mse")} == {1, 5, 9}
        assert len({(r.nfe, r.updates, r.seconds) for r in own}) == 1
    assert select(rows, method="linear", metric="reb")
    assert not select(rows, method="unet", metric="reb")


def test_single_steps_from_the_first_frames_are_the_rollouts_first_step(study):
    emulator = biasbound.load(study / "03-train/unet/seed-0/emulator")
    rolled = np.load(study / "05-rollout/unet/seed-0/prediction.npy", mmap_mode="r")
    test = open_split(study / "01-data", "test").select(slice(rolled.shape[1]))
    made, truth = single_steps(emulator, test, 1, "cpu")  # one state a trajectory: its first
    (row,) = score_steps(made, truth, About("ks", "unet"))
    rows = read_rows(study / "results.jsonl")
    (first,) = select(rows, method="unet", metric="mse", step=1)
    assert row.value == pytest.approx(first.value, rel=1e-5)
    (whole,) = select(rows, method="unet", metric="one_step_mse")
    assert whole.value != first.value


def test_single_steps_go_all_over_the_test_data(study):
    emulator = biasbound.load(study / "03-train/unet/seed-0/emulator")
    test = open_split(study / "01-data", "test")
    made, truth = single_steps(emulator, test, 10**6, "cpu")  # more than there are: all
    assert np.array_equal(truth, test.read(0, len(test), slice(1, None)))
    assert made.shape == truth.shape


@pytest.mark.parametrize(("label", "rule"), [("adaptive", "sigma"), ("adaptive-v", "sigma"), ("adaptive-x0", "error")])
def test_the_start_rule_follows_the_parameterisation_unless_said(label, rule):
    config = read_config(presets()["ks-smoke"])
    assert config.search.start == "auto"

    def key(start):
        search = replace(config.search, start=start)
        units = study_units(replace(config, search=search, methods=(label,)), upto="search")
        return units[-1].key

    assert key("auto") == key(rule)
    assert key("sigma") != key("error")


def test_a_focused_training_shares_the_search_of_its_kind():
    config = read_config(presets()["ks-smoke"])
    plainly, focused = (
        {u.stage: u for u in study_units(config, (label,))} for label in ("adaptive-v-proxy", "adaptive-v-focus-proxy")
    )
    assert focused["search"] == plainly["search"]
    assert focused["train"].key != plainly["train"].key
    assert "lowest" not in plainly["train"].settings["method"]


def test_the_cost_of_an_emulator_counts_its_search_and_fine_tuning(study):
    rows, config = read_rows(study / "results.jsonl"), read_config(study / "config.yaml")
    (explored,) = (json.loads((study / "02-search/adaptive/seed-0/stage.json").read_text())["updates"],)
    updates = {label: select(rows, method=label)[0].updates for label in config.methods}
    assert updates["unet"] == updates["linear"] == config.train.updates
    assert updates["adaptive"] == config.train.updates + explored
    assert updates["adaptive-proxy"] == updates["adaptive"] + config.finetune.updates


def test_emulators_of_a_run_load_and_say_what_they_are(study):
    for label in ("unet", "refiner", "adaptive"):
        emulator = biasbound.load(study / f"03-train/{label}/seed-0/emulator")
        assert emulator.meta["method"] == label
        assert emulator.step(torch.zeros(2, 1, 64)).shape == (2, 1, 64)
    ladder = Schedule.load(study / "02-search/adaptive/seed-0/schedule.json")
    assert emulator.schedule == ladder


def test_rollouts_are_those_of_the_emulator(study):
    folder = study / "05-rollout/unet-residual/seed-0"
    told = json.loads((folder / "rollout.json").read_text())
    states = np.load(folder / "prediction.npy", allow_pickle=False)
    test = open_split(study / "01-data", "test")
    assert states.shape == (told["members"], told["trajectories"], told["steps"], *test.shape[2:])
    emulator = biasbound.load(study / "03-train/unet-residual/seed-0/emulator")
    x0 = torch.from_numpy(test.read(0, 2)[:, 0]).float()
    expected = emulator.rollout(x0, told["steps"]).states[0]
    torch.testing.assert_close(torch.from_numpy(states[1]), expected)


def test_a_search_leaves_all_that_its_figures_need(study):
    folder = study / "02-search/adaptive-v-residual/seed-0"
    landscape = json.loads((folder / "landscape.json").read_text())
    exploration = json.loads((folder / "exploration.json").read_text())
    n = len(landscape["levels"])
    assert len(landscape["biases"]) == n * (n - 1) // 2
    assert [c["sigma"] for c in landscape["clean"]] == landscape["levels"]
    assert {p["sigma"] for p in exploration["points"]} == set(exploration["levels"])
    assert {p["round"] for p in exploration["points"]} <= set(range(1, 3))
    lines = (study / "03-train/linear/seed-0/chain.jsonl").read_text().splitlines()
    assert [json.loads(line)["update"] for line in lines] == [20, 40]
    emulator = biasbound.load(study / "03-train/linear/seed-0/emulator")
    assert [r["sigma"] for r in json.loads(lines[0])["rows"]] == list(emulator.schedule.sigma)


def test_fixed_schedules_are_capped_in_a_study(study):
    cap = read_config(study / "config.yaml").baselines.cap
    for label in ("cosine", "sigmoid"):
        emulator = biasbound.load(study / f"03-train/{label}/seed-0/emulator")
        whole = replace(method(label), levels=6).schedule()
        assert emulator.schedule.sigma == whole.capped(cap).sigma
        assert emulator.schedule.sigma[-1] == cap < whole.sigma[-1]


def test_checkpoints_go_when_the_emulator_is_there(study):
    left = {p.name for p in (study / "03-train/linear/seed-0").iterdir()}
    assert left == {"emulator", "log.jsonl", "chain.jsonl", "stage.json"}
    assert not list(study.rglob("begun.json"))
    assert not list(study.rglob("spent.json"))


def test_the_same_command_makes_nothing_again(study, capsys):
    marks = {p: p.stat().st_mtime_ns for p in study.rglob("stage.json")}
    assert main(["run", str(study), "--preset", "ks-smoke", "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert "0 units made" in said
    assert "index.html: is there already" in said
    assert {p: p.stat().st_mtime_ns for p in study.rglob("stage.json")} == marks


def test_changed_settings_are_refused_by_name_until_told_to_redo(tmp_path, capsys):
    command = ["train", str(tmp_path / "r"), "--preset", "ks-smoke", "--method", "unet", "--jobs", "1"]
    assert main([*command, "--train.updates", "4"]) == 0
    weights = tmp_path / "r/03-train/unet/seed-0/emulator/model.safetensors"
    before = weights.read_bytes()
    assert main([*command, "--train.updates", "6"]) == 2
    said = capsys.readouterr().err
    assert "03-train/unet/seed-0" in said
    assert "--redo" in said
    assert weights.read_bytes() == before
    assert read_config(tmp_path / "r/config.yaml").train.updates == 4
    assert main([*command, "--train.updates", "6", "--redo"]) == 0
    assert weights.read_bytes() != before
    assert "1 were there already" in capsys.readouterr().out  # the data


def test_another_network_in_the_same_process_is_trained(tmp_path):
    command = ["train", str(tmp_path / "r"), "--preset", "ks-smoke", "--method", "unet"]
    command += ["--jobs", "1", "--train.updates", "1", "--train.evaluations", "1"]
    counts = []
    for width in ("8", "16"):
        assert main([*command, "--network.width", width, "--redo"]) == 0
        emulator = biasbound.load(tmp_path / "r/03-train/unet/seed-0/emulator")
        counts.append(sum(p.numel() for p in emulator.model.parameters()))
    assert counts[0] < counts[1]


def test_results_of_discarded_units_go_with_them(tmp_path, capsys):
    folder = tmp_path / "r"
    first = ["evaluate", str(folder), "--preset", "ks-smoke", "--jobs", "1", *TINY[2:]]
    assert main([*first, "--methods", "unet,unet-residual"]) == 0
    kept = (folder / "results.jsonl").read_text()
    for more in ([], ["--redo"]):  # a report makes nothing again
        assert main(["report", str(folder), "--train.lr", "0.01", *more]) == 2
        assert "06-evaluate/unet/seed-0" in capsys.readouterr().err
    assert (folder / "results.jsonl").read_text() == kept
    again = ["train", str(folder), "--jobs", "1", "--method", "unet", "--train.lr", "0.01"]
    assert main([*again, "--redo"]) == 0
    assert not (folder / "results.jsonl").exists()
    assert main(["evaluate", str(folder), "--jobs", "1", "--method", "unet"]) == 0
    assert {r.method for r in read_rows(folder / "results.jsonl")} == {"unet"}


def test_a_run_keeps_all_methods_that_it_has_had(tmp_path):
    command = ["evaluate", str(tmp_path / "r"), "--preset", "ks-smoke", "--jobs", "1", *TINY[2:]]
    for label in ("unet", "unet-residual"):
        assert main([*command, "--methods", label]) == 0
    assert read_config(tmp_path / "r/config.yaml").methods == ("unet", "unet-residual")
    rows = read_rows(tmp_path / "r/results.jsonl")
    assert {r.method for r in rows} == {"unet", "unet-residual"}


def test_status_says_where_a_run_stands(study, capsys):
    assert main(["status", str(study)]) == 0
    said = capsys.readouterr().out
    assert "06-evaluate/refiner/seed-0" in said
    assert f"{len(study_units(read_config(study / 'config.yaml')))} done" in said


def test_a_plan_counts_what_will_be_trained(study):
    config = read_config(study / "config.yaml")
    units = study_units(config)
    planned = {p.unit.name: p for p in plan(config, units)}
    for name, p in planned.items():
        record = json.loads((study / name / "stage.json").read_text())
        if "parameters" in record:
            assert p.parameters == record["parameters"]
            assert p.updates == record["updates"]
    tf, ut = (planned[f"03-train/{m}/seed-0"] for m in ("unet", "unet-ut1"))
    assert ut.flops == 2 * tf.flops
    assert layout_of(config).shape == open_split(study / "01-data", "train").shape


def test_the_report_of_a_study_has_every_figure_and_a_small_page(study):
    from biasbound.report.figures import FIGURES

    made = {p.stem for p in (study / "07-report/figures").glob("*.png")}
    assert made == set(FIGURES)
    assert (study / "07-report/index.html").stat().st_size < 5e6
    assert "U-Net" in (study / "07-report/table.md").read_text()


def test_runs_are_compared_in_one_table_and_page(study, tmp_path, capsys):
    other = tmp_path / "other"
    argv = ["evaluate", str(other), "--preset", "ks-smoke", "--jobs", "1", "--method", "unet"]
    assert main([*argv, "--methods", "unet", "--train.updates", "5"]) == 0
    assert main(["compare", str(study), str(other), "--out", str(tmp_path / "both")]) == 0
    table = (tmp_path / "both/table.md").read_text()
    assert f"unet @ {study.name}" in table
    assert "unet @ other" in table
    assert (tmp_path / "both/index.html").exists()


def test_a_record_is_scored_again_from_its_emulators(study, tmp_path, capsys, monkeypatch):
    kept = tmp_path / "kept"
    script = Path(__file__).parents[2] / "benchmarks/keep_run.py"
    subprocess.run([sys.executable, str(script), str(study), str(kept), "--emulators"], check=True)
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", str(kept)]) == 0
    said = capsys.readouterr().out
    recorded = [r for r in read_rows(kept / "results.jsonl") if r.low is not None]
    assert f"{len(recorded)} of {len(recorded)} recorded intervals hold" in said
    again = read_rows(tmp_path / "runs/rescored-kept/results.jsonl")
    assert [r.value for r in again] == [r.value for r in read_rows(kept / "results.jsonl")]
    with pytest.raises(SystemExit, match="2"):
        main(["evaluate", str(kept), "--jbos", "2"])
    assert "there is no option --jbos" in capsys.readouterr().err
    weights = kept / "04-finetune/adaptive-proxy/seed-0/emulator/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    assert main(["evaluate", str(kept)]) == 2
    said = capsys.readouterr()
    assert str(weights) in said.err
    assert "\nscored" not in said.out  # it is found before anything is scored


def test_a_warm_start_goes_on_from_the_network_of_the_search(tmp_path):
    rate = 0.01  # Adam moves no weight by more than this in its first update
    near = {}
    for warm in ("true", "false"):
        run = tmp_path / warm
        options = ["--preset", "ks-smoke", "--jobs", "1", "--method", "adaptive-v"]
        options += ["--search.updates", "40", "--search.warm_start", warm]
        options += ["--train.updates", "1", "--train.evaluations", "1", "--train.lr", str(rate)]
        assert main(["train", str(run), *options]) == 0
        emulator = biasbound.load(run / "03-train/adaptive-v/seed-0/emulator")
        start = load_tensors(run / "02-search/adaptive-v/seed-0/start.safetensors")[0]
        trained = emulator.model.state_dict()
        assert trained.keys() == start.keys()
        near[warm] = max(float((trained[k] - start[k]).abs().max()) for k in start)
    assert near["true"] <= 1.01 * rate
    assert near["false"] > 3 * rate
