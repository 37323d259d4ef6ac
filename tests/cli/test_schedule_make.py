"""`biasbound schedule make`: every option is honoured or refused."""

import pytest
from calling import called, refused

from biasbound.core.schedule import SCHEDULES, Schedule, cosine, log_uniform


def made(path, capsys, *argv):
    code, _, said = called(["schedule", "make", *argv, "--out", path], capsys)
    assert code == 0, said
    return Schedule.load(path)


def test_every_registered_schedule_is_made_by_its_name(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(SCHEDULES, "mine", lambda T: log_uniform(T, 0.2, 0.8))
    for name in SCHEDULES:
        assert made(tmp_path / f"{name}.json", capsys, name, "-T", "20") == SCHEDULES[name](20)
    assert made(tmp_path / "d.json", capsys, "cosine") == cosine(20)


@pytest.mark.parametrize("over", ["ratio", "sigma"])
def test_log_uniform_takes_its_ends_and_its_spacing(over, tmp_path, capsys):
    argv = ("log-uniform", "-T", "5", "--sigma-min", "0.01", "--sigma-max", "0.9", "--over", over)
    assert made(tmp_path / "s.json", capsys, *argv) == log_uniform(5, 0.01, 0.9, over)


def test_a_highest_level_below_the_schedules_own_replaces_what_is_above_it(tmp_path, capsys):
    assert made(tmp_path / "s.json", capsys, "cosine", "--sigma-max", "0.9") == cosine(20).capped(0.9)


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["log_uniform"], "did you mean log-uniform?"),
        (["cosine", "--sigma-min", "0.1"], "the cosine schedule has no --sigma-min"),
        (["linear", "--over", "sigma"], "the linear schedule has no --over"),
        (["linear", "--sigma-max", "0.9999"], "cannot have --sigma-max 0.9999"),
        (["log-uniform", "-T", "1", "--sigma-max", "0.9"], "cannot have --sigma-max 0.9"),
        (["log-uniform", "-T", "0"], "-T must be at least 1"),
        (["log-uniform", "--sigma-min", "0.9", "--sigma-max", "0.1"], "must increase"),
        (["cosine", "--sigma", "0.1,0.9"], "needs --sigma, and no other schedule takes it"),
        (["levels"], "needs --sigma"),
        (["levels", "--sigma", "0.1,0.9", "--sigma-max", "0.5"], "leave --sigma-max out"),
        (["levels", "--sigma", "0.1,0.9", "-T", "2"], "leave -T out"),
        (["levels", "--sigma", "0.9,0.1"], "must increase"),
    ],
)
def test_no_option_is_ignored(argv, complaint, tmp_path, capsys):
    refused(["schedule", "make", *argv, "--out", tmp_path / "s.json"], capsys, complaint)
    assert not list(tmp_path.iterdir())
