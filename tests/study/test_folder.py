"""A study's folder: what is done stays done, what changed is named, nobody writes twice."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import biasbound
from biasbound._io import lock
from biasbound.study import folder
from biasbound.study.config import Config
from biasbound.study.folder import RunDir, Unit, open_run, provenance, save_config
from biasbound.study.graph import study_units
from biasbound.study.parsing import presets, read_config

SMOKE = read_config(presets()["ks-smoke"], ["--methods", "[direct, linear, refiner, adaptive-proxy]"])


def finish_all(run):
    for unit in study_units(run.config):
        run.begin(unit)
        run.finish(unit, {})


@pytest.fixture
def finished(tmp_path):
    run = open_run(tmp_path / "run", SMOKE)
    finish_all(run)
    return run


def test_a_unit_is_to_do_then_begun_then_done(tmp_path):
    run = open_run(tmp_path / "run", SMOKE)
    unit = study_units(SMOKE)[0]
    assert run.state(unit) == "to do"
    run.begin(unit)
    assert run.state(unit) == "begun"
    run.finish(unit, {"answer": 42, "updates": 7})
    assert run.state(unit) == "done"
    record = run.record(unit)
    assert (record["key"], record["updates"]) == (unit.key, 7)
    written = json.loads((run.folder(unit) / "stage.json").read_text())
    assert written["answer"] == 42
    assert {"version", "commit", "python", "torch", "machine", "cores", "seed"} <= written.keys()


def test_inputs_come_first_and_once():
    units = study_units(SMOKE)
    names = [u.name for u in units]
    assert len(set(names)) == len(names)
    for i, unit in enumerate(units):
        assert {other.name for other in unit.inputs} <= set(names[:i])


def test_a_stale_unit_is_not_overwritten_unless_discarded(finished):
    config = replace(SMOKE, rollout=replace(SMOKE.rollout, members=9))
    run = replace(finished, config=config)
    units = [u for u in study_units(config) if run.state(u) == "stale"]
    with pytest.raises(ValueError, match="other settings"):
        run.begin(units[0])
    run.discard(study_units(config))
    assert {run.state(u) for u in units} == {"to do"}
    assert run.state(study_units(config)[0]) == "done"


def test_a_file_of_ones_own_that_changed_is_another_input(tmp_path):
    file = tmp_path / "mine.h5"
    file.write_bytes(b"one")
    config = replace(SMOKE, data=replace(SMOKE.data, dataset="mine", train=str(file)))
    before = study_units(config)[0].key
    assert study_units(config)[0].key == before
    file.write_bytes(b"another")
    assert study_units(config)[0].key != before
    with pytest.raises(ValueError, match="no data file"):
        study_units(replace(SMOKE, data=replace(SMOKE.data, train=str(tmp_path / "none.h5"))))


def test_a_folder_of_ones_own_is_known_by_its_files(tmp_path):
    deep = tmp_path / "mine" / "sub"
    deep.mkdir(parents=True)
    config = replace(SMOKE, data=replace(SMOKE.data, dataset="mine", train=str(tmp_path / "mine")))
    seen = [study_units(config)[0].key]
    assert study_units(config)[0].key == seen[0]
    for name, content in (("a.npz", b"one"), ("a.npz", b"another"), ("b.npz", b"one")):
        (deep / name).write_bytes(content)
        seen.append(study_units(config)[0].key)
    (deep / "a.npz").rename(deep / "c.npz")
    seen.append(study_units(config)[0].key)
    assert len(set(seen)) == len(seen)


def test_all_units_of_a_study_read_the_same_data():
    units = study_units(replace(SMOKE, seeds=(0, 1)))
    read = [other for unit in units for other in unit.inputs if other.stage == "data"]
    assert all(data is units[0] for data in read)


def test_the_saved_config_is_the_config(tmp_path):
    made = open_run(tmp_path / "run", SMOKE)
    assert open_run(tmp_path / "run").config == SMOKE
    save_config(RunDir(made.path, Config()))
    assert open_run(tmp_path / "run").config == Config()


def test_a_second_writer_is_refused(tmp_path):
    run = open_run(tmp_path / "run", SMOKE)
    with run.writing(), pytest.raises(ValueError, match="another process"), run.writing():
        pass
    with lock(run.path / ".writing"):
        pass


def test_a_start_that_is_killed_at_any_write_goes_on(tmp_path, monkeypatch):
    """The mark comes first: a folder with a config alone might be anyone's."""

    def killed(*told):
        raise KeyboardInterrupt

    for number, name in enumerate(("write_json", "write_text")):
        path = tmp_path / str(number)
        with monkeypatch.context() as patch:
            patch.setattr(folder, name, killed)
            with pytest.raises(KeyboardInterrupt):
                open_run(path, SMOKE)
        (path / ".run.json.writing").write_text("{")  # half of it, and its lock
        (path / ".run.json.lock").touch()
        assert open_run(path, SMOKE).config == SMOKE


def test_a_folder_that_is_no_run_is_left_alone(tmp_path):
    (tmp_path / "photo.jpg").write_text("holiday")
    with pytest.raises(ValueError, match="not a run folder; name another one"):
        open_run(tmp_path, SMOKE)
    with pytest.raises(ValueError, match=r"no run\.json"):
        open_run(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["photo.jpg"]


def test_a_run_of_another_version_is_refused(tmp_path):
    run = open_run(tmp_path / "run", SMOKE)
    (run.path / "run.json").write_text(json.dumps({"format": 99, "version": "9.9"}))
    for config in (None, SMOKE):
        with pytest.raises(ValueError, match=r"biasbound 9\.9"):
            open_run(run.path, config)


def test_a_damaged_record_is_named(finished):
    path = finished.path / "01-data" / "stage.json"
    path.write_text("{")
    with pytest.raises(ValueError, match=r"stage\.json is damaged"):
        finished.state(study_units(SMOKE)[0])


def test_keys_depend_on_the_place_in_the_study():
    one, other = Unit("train", None, "a", 0), Unit("train", None, "a", 1)
    assert one.key != other.key
    assert one.key == Unit("train", None, "a", 0).key
    assert replace(one, inputs=(other,)).key != one.key


def test_the_commit_of_a_checkout_is_part_of_the_provenance():
    root = Path(biasbound.__file__).parents[1]
    told = provenance()
    if (root / ".git").exists():
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
        assert told["commit"] == head.stdout.strip()
        assert told["dirty"] in (True, False)
    else:
        assert told["commit"] is None
    assert told["version"] == biasbound.__version__
