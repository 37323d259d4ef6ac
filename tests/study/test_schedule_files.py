"""A method whose noise levels come from a file, of any origin: one that somebody found, a single level."""

import pytest
import yaml
from calling import TINY, called, refused

import biasbound
from biasbound.core.schedule import Schedule
from biasbound.metrics.rows import read_rows
from biasbound.models.method import method

pytestmark = pytest.mark.long


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Schedule([0.1, 0.4, 0.8]).save("mine.json")
    Schedule([0.3]).save("one.json")
    return tmp_path


def test_a_schedule_file_is_a_method_as_a_mapping_and_as_a_label(here, capsys):
    told = {"methods": [{"schedule": "mine.json", "prediction": "v"}, "one.json-v"], "title": "files"}
    (here / "mine.yaml").write_text(yaml.safe_dump(told))
    code, _, said = called(["evaluate", "run", *TINY, "--config", "mine.yaml"], capsys)
    assert code == 0, said
    for label, file in (("mine-v", "mine.json"), ("one-v", "one.json")):
        emulator = biasbound.load(here / f"run/03-train/{label}/seed-0/emulator")
        assert emulator.schedule.sigma == Schedule.load(file).sigma
        assert emulator.model.prediction == "v"
        assert {r.nfe for r in read_rows(here / "run/results.jsonl") if r.method == label} == {len(emulator.schedule)}
    code, said, _ = called(["finetune", "run", "--jobs", "1", "--method", "mine-v", "--finetune.updates", "1"], capsys)
    assert code == 0  # the study knows its methods by their labels
    assert "3 units" in said
    Schedule([0.1, 0.4, 0.7]).save("mine.json")
    code, _, said = called(["evaluate", "run", "--jobs", "1"], capsys)
    assert code == 2
    assert "03-train/mine-v/seed-0" in said
    assert "one-v" not in said


def test_two_files_of_one_name_are_refused(here, capsys):
    (here / "other").mkdir()
    Schedule([0.2, 0.6]).save("other/mine.json")
    refused(["run", "run", *TINY, "--methods=mine.json,other/mine.json"], capsys, "both called mine", "rename")
    refused(["run", "run", *TINY, "--methods=nowhere.json"], capsys, "nowhere.json")
    assert not (here / "run/03-train").exists()


def test_a_config_says_a_method_so_that_it_reads_back_equal():
    for told in ("direct-pf2", "adaptive-v-focus-proxy", "some/where.json-x0-residual", "cosine-ddim"):
        assert method(method(told).spelling) == method(told)
    assert method("direct-residual-pf2").spelling == "direct-residual-pf2"
