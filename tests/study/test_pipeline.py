"""A whole study at smoke size, which all tests share: every method from data to report."""

import json
import shutil

import numpy as np
import pytest
import torch
from calling import SMOKE, called

import biasbound
from biasbound.cli import main
from biasbound.core.schedule import Schedule
from biasbound.metrics import Scene
from biasbound.metrics.rows import About, read_rows, select
from biasbound.metrics.score import score, score_steps
from biasbound.models.method import method
from biasbound.study.config import EvaluateConfig, RolloutConfig
from biasbound.study.graph import study_units
from biasbound.study.parsing import read_config
from biasbound.study.plan import layout_of, plan
from biasbound.study.stages.evaluate import ensemble_rows, single_steps
from biasbound.study.stages.material import open_split
from biasbound.study.stages.rollout import roll


def test_every_method_has_every_number(smoke):
    rows = read_rows(smoke / "results.jsonl")
    config = read_config(smoke / "config.yaml")
    for label in (*config.methods, "persistence"):
        own = select(rows, method=label)
        assert {"mse", "mse_norm", "correlation_time", "fsd", "broken"} <= {r.metric for r in own}
        assert {r.step for r in select(own, metric="mse")} == {1, 5, 9}
        assert len({(r.nfe, r.updates, r.seconds) for r in own}) == 1
    assert select(rows, method="linear", metric="reb")
    assert not select(rows, method="direct", metric="reb")


def test_persistence_stands_beside_every_forecast_and_costs_nothing(smoke):
    """Its error is that of the first frame, at every step and from every state."""
    rows = read_rows(smoke / "results.jsonl")
    own = select(rows, method="persistence")
    assert {(r.nfe, r.updates, r.seconds, r.ledger, r.seed) for r in own} == {(0, 0, 0.0, 0, 0)}
    test, config = open_split(smoke / "01-data", "test"), read_config(smoke / "config.yaml")
    fields = test.read(0, len(test))
    for step in (1, 9):
        (found,) = select(own, metric="mse", step=step)
        gap = (fields[:, step] - fields[:, 0])[: config.rollout.trajectories]
        assert found.value == pytest.approx(np.square(gap).mean(), rel=1e-4)
    (one,) = select(own, metric="one_step_mse")
    assert one.value == pytest.approx(np.square(np.diff(fields, axis=1)).mean(), rel=0.2)  # of evenly chosen pairs
    assert [p.name for p in smoke.glob("*/persistence")] == ["persistence"]


def test_single_steps_from_the_first_frames_are_the_rollouts_first_step(smoke):
    emulator = biasbound.load(smoke / "03-train/direct/seed-0/emulator")
    rolled = np.load(smoke / "05-rollout/direct/seed-0/prediction.npy", mmap_mode="r")
    test = open_split(smoke / "01-data", "test").select(slice(rolled.shape[1]))
    made, truth = single_steps(emulator, test, 1, "cpu")  # one state per trajectory: its first
    (row,) = score_steps(made, truth, About("ks", "direct"))
    rows = read_rows(smoke / "results.jsonl")
    (first,) = select(rows, method="direct", metric="mse", step=1)
    assert row.value == pytest.approx(first.value, rel=1e-5)
    (whole,) = select(rows, method="direct", metric="one_step_mse")
    assert whole.value != first.value


def test_short_ensembles_are_the_first_frames_of_long_ones(smoke):
    emulator, about = biasbound.load(smoke / "03-train/linear/seed-0/emulator"), About("ks", "linear", seed=3)
    test = open_split(smoke / "01-data", "test").select(slice(2))
    asked = EvaluateConfig(steps=(1, 5, 10**6), members=3)
    whole, _ = roll(emulator, test, RolloutConfig(members=3), about.seed)
    scene = Scene.on(test.layout, whole, test.read(0, 2, slice(1, None)), steps=(1, 5))
    found = ensemble_rows(emulator, test, scene, asked, about)
    expected = score(scene, about, ("ensemble",))
    assert {(r.metric, r.step) for r in found} == {
        (m, s) for m in ("crps", "ensemble_mse", "spread_skill") for s in (1, 5)
    }
    for row, other in zip(found, expected, strict=True):
        assert (row.metric, row.step) == (other.metric, other.step)
        assert row.value == pytest.approx(other.value, rel=1e-6)


def test_single_steps_go_all_over_the_test_data(smoke):
    emulator = biasbound.load(smoke / "03-train/direct/seed-0/emulator")
    test = open_split(smoke / "01-data", "test")
    made, truth = single_steps(emulator, test, 10**6, "cpu")  # more than there are: all
    assert np.array_equal(truth, test.read(0, len(test), slice(1, None)))
    assert made.shape == truth.shape


def test_the_cost_of_an_emulator_counts_its_search_and_fine_tuning(smoke):
    rows, config = read_rows(smoke / "results.jsonl"), read_config(smoke / "config.yaml")
    explored = json.loads((smoke / "02-search/adaptive/seed-0/stage.json").read_text())["updates"]
    updates = {label: select(rows, method=label)[0].updates for label in config.methods}
    assert updates["direct"] == updates["linear"] == config.train.updates
    assert updates["adaptive"] == config.train.updates + explored
    assert updates["adaptive-proxy"] == updates["adaptive"] + config.finetune.updates


def test_emulators_of_a_run_load_and_say_what_they_are(smoke):
    for label in ("direct", "refiner", "adaptive"):
        emulator = biasbound.load(smoke / f"03-train/{label}/seed-0/emulator")
        assert emulator.meta["method"] == label
        assert emulator.step(torch.zeros(2, 1, 64)).shape == (2, 1, 64)
    ladder = Schedule.load(smoke / "02-search/adaptive/seed-0/schedule.json")
    assert emulator.schedule == ladder


def test_rollouts_are_those_of_the_emulator(smoke):
    folder = smoke / "05-rollout/direct-residual/seed-0"
    told = json.loads((folder / "rollout.json").read_text())
    states = np.load(folder / "prediction.npy", allow_pickle=False)
    test = open_split(smoke / "01-data", "test")
    assert states.shape == (told["members"], told["trajectories"], told["steps"], *test.shape[2:])
    emulator = biasbound.load(smoke / "03-train/direct-residual/seed-0/emulator")
    x0 = torch.from_numpy(test.read(0, 2)[:, 0]).float()
    expected = emulator.rollout(x0, told["steps"]).states[0]
    torch.testing.assert_close(torch.from_numpy(states[1]), expected)


def test_a_search_leaves_all_that_its_figures_need(smoke):
    folder = smoke / "02-search/adaptive-v-residual/seed-0"
    landscape = json.loads((folder / "landscape.json").read_text())
    exploration = json.loads((folder / "exploration.json").read_text())
    n = len(landscape["levels"])
    assert len(landscape["biases"]) == n * (n - 1) // 2
    assert [c["sigma"] for c in landscape["clean"]] == landscape["levels"]
    assert {p["sigma"] for p in exploration["points"]} == set(exploration["levels"])
    assert {p["round"] for p in exploration["points"]} <= set(range(1, 3))
    lines = (smoke / "03-train/linear/seed-0/chain.jsonl").read_text().splitlines()
    assert [json.loads(line)["update"] for line in lines] == [20, 40]
    emulator = biasbound.load(smoke / "03-train/linear/seed-0/emulator")
    assert [r["sigma"] for r in json.loads(lines[0])["rows"]] == list(emulator.schedule.sigma)


def test_fixed_schedules_are_capped_in_a_study(smoke):
    cap = read_config(smoke / "config.yaml").baselines.cap
    for label in ("cosine", "sigmoid"):
        emulator = biasbound.load(smoke / f"03-train/{label}/seed-0/emulator")
        whole = method(label).chain(levels=6)
        assert emulator.schedule.sigma == whole.capped(cap).sigma
        assert emulator.schedule.sigma[-1] == cap < whole.sigma[-1]


def test_checkpoints_go_when_the_emulator_is_there(smoke):
    left = {p.name for p in (smoke / "03-train/linear/seed-0").iterdir()}
    assert left == {"emulator", "log.jsonl", "chain.jsonl", "stage.json"}
    assert not list(smoke.rglob("begun.json"))
    assert not list(smoke.rglob("spent.json"))


def test_status_says_where_a_run_stands(smoke, capsys):
    assert main(["status", str(smoke)]) == 0
    said = capsys.readouterr().out
    assert "06-evaluate/refiner/seed-0" in said
    assert f"{len(study_units(read_config(smoke / 'config.yaml')))} done" in said


def test_a_plan_counts_what_will_be_trained(smoke):
    config = read_config(smoke / "config.yaml")
    units = study_units(config)
    planned = {p.unit.name: p for p in plan(config, units)}
    for name, p in planned.items():
        record = json.loads((smoke / name / "stage.json").read_text())
        if "parameters" in record:
            assert p.parameters == record["parameters"]
            assert p.updates == record["updates"]
    tf, ut = (planned[f"03-train/{m}/seed-0"] for m in ("direct", "direct-ut1"))
    assert ut.flops == 2 * tf.flops
    assert layout_of(config).shape == open_split(smoke / "01-data", "train").shape


def test_the_report_of_a_study_has_every_figure_and_a_small_page(smoke):
    from biasbound.report.figures import FIGURES

    made = {p.stem for p in (smoke / "07-report/figures").glob("*.png")}
    assert made == set(FIGURES) - {"growth", "front", "split"}  # of ladders that grow, and of evaluate.split
    assert (smoke / "07-report/index.html").stat().st_size < 5e6
    assert method("direct").title in (smoke / "07-report/table.md").read_text()


def test_a_plan_counts_the_updates_that_a_budget_pays_for(smoke, tmp_path, capsys):
    """An unrolled loss passes samples more than once, so that there are fewer updates."""
    methods = ["direct", "direct-ut1", "cosine", "cosine-proxy"]
    shutil.copytree(smoke / "01-data", tmp_path / "r/01-data")
    shutil.copy(smoke / "run.json", tmp_path / "r")
    start = [
        tmp_path / "r",
        *SMOKE,
        "--methods",
        ",".join(methods),
        "--train.budget",
        "640",
        "--train.evaluations",
        "1",
    ]
    assert [called([stage, *start], capsys)[0] for stage in ("train", "finetune")] == [0, 0]
    config = read_config(tmp_path / "r/config.yaml")
    planned = plan(config, study_units(config))
    made = {p.unit.name: json.loads((tmp_path / "r" / p.unit.name / "stage.json").read_text()) for p in planned}
    assert {p.unit.name: p.updates for p in planned} == {name: record["updates"] for name, record in made.items()}
    assert made["03-train/direct/seed-0"]["updates"] == 2 * made["03-train/direct-ut1/seed-0"]["updates"]
