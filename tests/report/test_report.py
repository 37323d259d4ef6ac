"""A run folder is read whole; partial runs give partial reports; damage is named in a sentence."""

import json
import math
import shutil
from dataclasses import asdict

import numpy as np
import pytest
from report_study import EVIL, GROWN, METHODS, fabricate, put

from biasbound.report import figures
from biasbound.report.figures import FIGURES, OVER_RUNS
from biasbound.report.page.payload import payload
from biasbound.report.study import read_study
from biasbound.report.style import Absent
from biasbound.report.write import merged, write_comparison, write_report


def test_a_run_folder_is_read_whole(run, study):
    assert (study.dataset, study.title) == (EVIL, f"{EVIL}, analytic")
    assert study.labels == [m.label for m in study.models] == list(METHODS)
    assert [s.label for s in study.searches] == ["adaptive", "adaptive-v", *GROWN]
    ladder = study.searches[0]
    assert ladder.schedule.sigma[0] == ladder.landscape.start_sigma
    assert set(ladder.schedule.sigma) <= set(ladder.landscape.levels)
    assert set(ladder.exploration.solved) < set(ladder.exploration.levels)
    prediction = study.models[0].rollout.prediction
    assert isinstance(prediction, np.memmap)
    assert prediction.shape == (2, 3, 40, 1, 32)
    stored = json.loads((run / "06-evaluate/linear/seed-0/bias.json").read_text())
    for level, told in zip(study.models[1].bias, stored, strict=True):
        for name, value in asdict(level).items():
            assert value == told.get(name) or (math.isnan(value) and told.get(name) is None)


def test_truth_is_what_predictions_are_compared_with(study):
    start = study.test.read(0, 3, slice(0, 1))
    truth = study.truth(3, 40)
    assert truth.shape == (3, 40, 1, 32)
    assert not np.array_equal(truth[:, :1], start)  # frame 0 is given, not predicted
    best = {m.label: m.rollout.prediction for m in study.models}
    gap = {label: np.abs(p[0] - truth) for label, p in best.items()}
    assert gap["adaptive-v"][:, 0].max() < gap["adaptive-v"][:, -1].max()
    np.testing.assert_allclose(gap["linear"] / gap["adaptive"], 4.0, rtol=1e-2, atol=0.05)
    with pytest.raises(ValueError, match="fewer than its rollouts"):
        study.truth(3, 41)


LOST = {
    "01-data": "samples",
    "02-search": "thresholds",
    "03-train": "training",
    "05-rollout": "rollouts",
    "06-evaluate": "contributions",
}


@pytest.mark.long
@pytest.mark.parametrize("gone", [*LOST, "results.jsonl", "config.yaml"])
def test_a_run_without_one_stage_gives_the_rest(copy, gone, tmp_path):
    path = copy / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    made = write_report(copy, tmp_path / "out", figures=())
    assert (tmp_path / "out" / "index.html") in made
    study = read_study(copy)
    if gone in LOST:
        with pytest.raises(Absent, match=gone):
            FIGURES[LOST[gone]](study)
    assert FIGURES["contributions" if gone != "06-evaluate" else "ladder"](study).axes


def test_rows_of_unfinished_runs_come_from_the_evaluations(copy):
    whole = read_study(copy).rows
    (copy / "results.jsonl").unlink()
    assert sorted(read_study(copy).rows, key=str) == sorted(whole, key=str)


def test_runs_of_several_flows_are_told_apart_by_dataset(copy, tmp_path):
    other = fabricate(tmp_path / "other", dataset="waves", methods=["unet", "adaptive"])
    for number, folder in enumerate((copy, other)):  # other test data
        place = folder / "01-data/stage.json"
        put(place, json.loads(place.read_text()) | {"key": str(number)})
    both = merged([read_study(copy), read_study(other)])
    told = payload(both)
    assert told["flows"] == 2
    for listed in (told["tradeoff"], told["series"]["error"], told["models"]):
        names = [point["name"] for point in listed]
        assert len(set(names)) == len(names) == len(METHODS) + 2
        assert {f"unet · {EVIL}", "unet · waves"} <= set(names)
    assert {s["label"] for s in told["series"]["error"]} == set(METHODS)  # colours stay
    rolled = [m["name"] for m in told["rollouts"]["models"]]
    assert rolled == [f"{label} · {EVIL}" for label in METHODS]
    assert {s["name"] for s in told["spectra"]} == {"truth", *METHODS}
    assert {s["unit"].split("/")[0] for s in told["stages"]} == {copy.name, "other"}


@pytest.mark.long
def test_a_comparison_draws_what_makes_sense_over_runs(run, copy, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "KINDS", {"png": {"dpi": 20}})  # is quicker
    made = write_comparison([run, copy], tmp_path / "out")
    assert {p.name for p in made} >= {"table.md", "table.tex", "index.html"}
    assert {p.stem for p in made if p.suffix == ".png"} == set(OVER_RUNS)
    assert {p.parent for p in made if p.suffix == ".png"} == {tmp_path / "out" / "figures"}
    (copy / "results.jsonl").unlink()
    shutil.rmtree(copy / "06-evaluate")
    made = write_comparison([copy], tmp_path / "rest")
    assert {p.stem for p in made} == {"thresholds", "front", "index"}  # of what the searches left


def test_runs_of_one_name_are_told_apart_by_their_paths(copy, tmp_path):
    places = [tmp_path / "a" / "x" / "run", tmp_path / "b" / "x" / "run"]
    for place in places:
        shutil.copytree(copy, place)
    alone = shutil.copytree(copy, tmp_path / "alone")
    several = merged([read_study(place) for place in (*places, alone)])
    ends = ("a/x/run", "b/x/run", "alone")
    assert set(several.labels) == {f"{label} @ {end}" for label in METHODS for end in ends}
    assert len(payload(several)["tradeoff"]) == 3 * len(METHODS)
    with pytest.raises(ValueError, match="given twice"):
        merged([read_study(copy), read_study(copy.parent / "run")])


def test_a_figure_asked_for_by_name_must_exist_and_have_data(copy, tmp_path):
    with pytest.raises(ValueError, match="no figure 'nosuch'; choose one of thresholds"):
        write_report(copy, tmp_path / "out", figures=["nosuch"])
    shutil.rmtree(copy / "02-search")
    with pytest.raises(ValueError, match=r"no exploration\.json: it comes from the stage 02-search"):
        write_report(copy, tmp_path / "out", figures=["thresholds"])


def test_no_folder_and_no_run_are_told_apart(tmp_path):
    with pytest.raises(ValueError, match="no such folder"):
        read_study(tmp_path / "none")
    with pytest.raises(ValueError, match=r"neither run\.json nor any stage"):
        read_study(tmp_path)


DAMAGE = {
    "run.json": "[1]",
    "results.jsonl": '{"dataset": "ks"}\n',
    "02-search/adaptive/seed-0/exploration.json": '{"points": [{}]}',
    "02-search/adaptive/seed-0/landscape.json": '{"tau": 1.05}',
    "02-search/adaptive/seed-0/schedule.json": "{",
    "03-train/adaptive-scaled/seed-0/growth.json": '{"tau": 1.05, "rounds": []}',
    "03-train/adaptive-scaled/seed-0/front.json": '{"chosen": 1}',
    "03-train/linear/seed-0/log.jsonl": "nothing\n{}\n",
    "03-train/linear/seed-0/chain.jsonl": '{"update": 1}\n',
    "05-rollout/unet/seed-0/prediction.npy": "junk",
    "05-rollout/unet/seed-0/rollout.json": "{}",
    "06-evaluate/linear/seed-0/bias.json": '[{"t": 0}]',
    "06-evaluate/linear/seed-0/gradients.json": "7",
    "03-train/linear/seed-0/stage.json": "[]",
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_in_one_sentence(copy, name):
    (copy / name).write_text(DAMAGE[name])
    with pytest.raises(ValueError, match=name.rsplit("/", 1)[-1]) as caught:
        read_study(copy)
    assert "\n" not in str(caught.value)


def test_an_incomplete_landscape_is_refused(copy):
    path = copy / "02-search/adaptive/seed-0/landscape.json"
    found = json.loads(path.read_text())
    found["biases"].pop()
    put(path, found)
    with pytest.raises(ValueError, match=r"1 of \d+ biases are missing"):
        read_study(copy)


def test_an_unfinished_last_line_of_a_log_is_dropped(copy):
    path = copy / "03-train/linear/seed-0/log.jsonl"
    whole = read_study(copy).models[1].log
    path.write_text(path.read_text() + '{"update": 99')
    assert read_study(copy).models[1].log == whole
