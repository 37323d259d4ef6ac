"""`biasbound schedule export` and `import`: what is written for other programs is read again."""

import json

import pytest
from calling import called, refused
from diffusers import DDIMScheduler

from biasbound.core.interop.text import TEXTS
from biasbound.core.schedule import Schedule, log_uniform

LADDERS = [log_uniform(7, 1e-5), Schedule([0.3, 0.9997]), Schedule([0.5])]


def imported(file, folder, capsys):
    code, _, said = called(["schedule", "import", file, "--out", folder / "back.json"], capsys)
    assert code == 0, said
    return Schedule.load(folder / "back.json")


@pytest.mark.parametrize("name", TEXTS)
def test_every_format_goes_out_and_in_by_command(name, tmp_path, capsys):
    for ladder in LADDERS:
        ladder.save(tmp_path / "ladder.json")
        out = ["schedule", "export", tmp_path / "ladder.json", "--format", name, "--out", tmp_path / "theirs"]
        assert called(out, capsys)[0] == 0
        assert imported(tmp_path / "theirs", tmp_path, capsys).sigma == pytest.approx(ladder.sigma, rel=1e-10)


@pytest.mark.parametrize("transition", ["renoise", "ddim"])
def test_a_scheduler_that_diffusers_saved_is_read(transition, tmp_path, capsys):
    LADDERS[0].to_diffusers(transition).save_pretrained(tmp_path)
    found = imported(tmp_path / "scheduler_config.json", tmp_path, capsys)
    assert found.sigma == pytest.approx(LADDERS[0].sigma, rel=1e-10)


def test_files_that_hold_no_schedule_are_refused(tmp_path, capsys):
    file, argv = tmp_path / "f", ["schedule", "import", tmp_path / "f", "--out", tmp_path / "out.json"]
    DDIMScheduler().save_pretrained(tmp_path)
    config = (tmp_path / "scheduler_config.json").read_text()  # its betas are those of a formula
    for text, complaint in {
        config: "Schedule.from_diffusers",
        "": "no valid JSON",
        "one\ntwo\n": "neither numbers",
        "[": "no valid JSON",
        "[]": "must be a list of numbers",
        "[true]": "must be numbers",
        '{"sigmas": 3}': "must be a list of numbers",
        '{"trained_betas": [0.1, 1.5]}': "f: ",
        '{"alpha": [1], "sigma": [0, 0.5]}': "f: ",
        "0.5\n0.4\n": "f: ",
        json.dumps({"format": "biasbound.schedule", "version": 2}): "version 2",
    }.items():
        file.write_text(text)
        refused(argv, capsys, complaint)
    file.write_bytes(b"\xff\xfe\x00")
    refused(argv, capsys, "is no text")
    assert not (tmp_path / "out.json").exists()
