"""`evaluate RECORD` removes only what an earlier call made, and only once all of the record is valid."""

import json

import pytest
from calling import refused
from records import everything, record

from biasbound.study import rescore
from biasbound.study.rescore import MARK, workplace


def test_a_damaged_record_removes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    kept = record(tmp_path / "kept")
    ours = tmp_path / "runs/rescored-kept"
    ours.mkdir(parents=True)
    (ours / MARK).write_text("{}")
    (ours / "results.jsonl").write_text("of last week")
    for damaged in (
        kept / "results.jsonl",
        kept / "config.yaml",
        kept / "03-train/direct/seed-0/emulator/config.json",
    ):
        whole = damaged.read_text()
        damaged.write_text("][")
        before = everything(tmp_path)
        refused(["evaluate", kept, "--jobs", "1"], capsys, str(damaged.parent))
        assert everything(tmp_path) == before
        damaged.write_text(whole)


def test_a_folder_that_someone_else_made_stays(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    kept, mine = record(tmp_path / "kept"), tmp_path / "runs/rescored-kept"
    mine.mkdir(parents=True)
    (mine / "thesis.tex").write_text("years of work")
    before = everything(tmp_path)
    refused(["evaluate", kept, "--jobs", "1"], capsys, "is in the way")
    assert everything(tmp_path) == before


def test_what_an_earlier_call_made_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    work = workplace(tmp_path / "kept")
    (work / "01-data").mkdir()
    again = workplace(tmp_path / "kept")
    assert again == work
    assert [p.name for p in again.iterdir()] == [MARK]
    assert json.loads((again / MARK).read_text()) == {"record": str(tmp_path / "kept")}


@pytest.mark.parametrize("left", [(), (f".{MARK}.writing", f".{MARK}.lock")])
def test_a_call_that_was_killed_before_its_mark_goes_on(left, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    work = tmp_path / "runs/rescored-kept"
    work.mkdir(parents=True)
    for name in left:
        (work / name).touch()
    assert [p.name for p in workplace(tmp_path / "kept").iterdir()] == [MARK]


def test_the_mark_stays_while_the_rest_is_removed(tmp_path, monkeypatch):
    """A call that is killed in the middle must know the folder again."""
    monkeypatch.chdir(tmp_path)
    work = workplace(tmp_path / "kept")
    (work / "01-data").mkdir()

    def killed(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(rescore, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            workplace(tmp_path / "kept")
    assert (work / MARK).is_file()
    assert [p.name for p in workplace(tmp_path / "kept").iterdir()] == [MARK]
