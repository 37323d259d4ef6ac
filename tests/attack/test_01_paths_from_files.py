"""Nothing is written outside the named folder: names that come from files are checked, links are not followed."""

import os

import pytest
from calling import called, refused
from records import everything, record

from biasbound._io import checked_name, lock, no_links
from biasbound.study.folder import RunDir, Unit, open_run
from biasbound.study.parsing import presets, read_config

NAMES = ["../../victim", "/tmp/victim", "..", ".", "", "a/b", "a\\b", ".hidden", "~root", "a\nb", "\x1b[2J", "x" * 300]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leads_elsewhere_is_no_folder(name):
    with pytest.raises(ValueError, match="cannot be that of a folder") as error:
        checked_name(name, "results.jsonl")
    assert "\x1b" not in str(error.value)
    if name:  # a unit without a label is the data's
        with pytest.raises(ValueError, match="cannot be that of a folder"):
            Unit("train", label=name)


@pytest.mark.parametrize("name", ["adaptive-v-residual", "my.ladder-ddim", "package.module:name", "Äpfel", "a b"])
def test_a_plain_name_stays(name):
    assert checked_name(name, "here") == name


@pytest.mark.parametrize("outside", ["../../victim", "{tmp}/victim"])
def test_a_record_cannot_choose_where_it_is_scored(tmp_path, monkeypatch, capsys, outside):
    monkeypatch.chdir(tmp_path)
    method = outside.format(tmp=tmp_path)
    kept = record(tmp_path / "deep" / "kept", method, "../../../victim")
    before = everything(tmp_path)
    refused(["evaluate", kept, "--jobs", "1"], capsys, "results.jsonl", "cannot be that of a folder")
    assert everything(tmp_path) == before


def study_of(tmp_path):
    return open_run(tmp_path / "run", read_config(presets()["ks-smoke"]))


@pytest.mark.parametrize("name", ["07-report", "03-train/direct/seed-0/log.jsonl", "01-data"])
def test_a_run_folder_with_a_link_in_it_is_not_written_to(tmp_path, capsys, name):
    run, victim = study_of(tmp_path), tmp_path / "victim"
    victim.mkdir()
    (run.path / name).parent.mkdir(parents=True, exist_ok=True)
    os.symlink(victim, run.path / name)
    with pytest.raises(ValueError, match="is a symbolic link"):
        run.writing()
    assert called(["report", run.path], capsys)[0] == 2
    assert list(victim.iterdir()) == []


def test_a_lock_is_not_opened_through_a_link(tmp_path):
    run = study_of(tmp_path)
    os.symlink(tmp_path / "victim", run.path / ".writing")
    with pytest.raises(ValueError, match="symbolic link"), lock(run.path / ".writing"):
        pass
    assert not (tmp_path / "victim").exists()


def test_links_of_jobs_are_left_alone(tmp_path):
    run = study_of(tmp_path)
    (run.path / ".jobs").mkdir()
    os.symlink("log", run.path / ".jobs" / "link")
    no_links(run.path, ".jobs")
    assert isinstance(run, RunDir)
