import json
import re
import subprocess
import sys

import pytest

from biasbound.cli import main
from biasbound.core import schedule as schedules
from biasbound.core.search import ForcedTransition, greedy_schedule


def test_schedule_make_and_show(tmp_path, capsys):
    path = tmp_path / "s.json"
    assert main(["schedule", "make", "cosine", "-T", "8", "--out", str(path)]) == 0
    assert schedules.Schedule.load(path) == schedules.cosine(8)
    assert f"biasbound schedule show {path}" in capsys.readouterr().out
    assert main(["schedule", "show", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "8 levels" in shown
    assert all(f"{s:.6g}" in shown for s in schedules.cosine(8).sigma)


def test_show_marks_forced_steps(tmp_path, capsys):
    with pytest.warns(ForcedTransition):
        schedule = greedy_schedule([0.1, 0.5, 0.9], lambda to, start: 1.2 if to < 0.3 else 1.01)
    schedule.save(tmp_path / "s.json")
    main(["schedule", "show", str(tmp_path / "s.json")])
    lines = capsys.readouterr().out.splitlines()
    assert [line.endswith("forced") for line in lines[-3:]] == [False, False, True]


def test_without_arguments_it_shows_what_people_come_for(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    named = re.findall(r"biasbound (fit|diagnose|run) ", shown)
    assert named == ["fit", "diagnose", "run"]
    assert max(map(len, shown.splitlines())) <= 80


COMMANDS = """
fit, data, data ks, data info, data convert, run, search, train, finetune, rollout, evaluate, report, status, compare, diagnose,
predict, export, score, schedule, schedule show, schedule make, schedule plot, schedule export, schedule front
"""


def test_help_is_for_people(capsys):
    """No address of an object, no control character, not even one that was made visible; no command is left out."""
    named = [words.split() for words in COMMANDS.split(",")]
    texts = {}
    for words in [[], *named]:
        with pytest.raises(SystemExit, match="0"):
            main([*words, "--help"])
        texts[" ".join(words)] = capsys.readouterr().out
    for words, text in texts.items():
        assert not re.search(r"0x|\\x|[^\S\n ]", text), words
        assert all(letter.isprintable() or letter == "\n" for letter in text), words
    assert {*re.findall(r"^    (\w+)", texts[""], re.MULTILINE)} == {words[0] for words in named}
    told = " ".join(texts["run"].split())
    assert "(type:" not in told
    assert not re.search(r"default[^()]*\) \(default|default: (null|False|\[\]|\{\})", told), "said twice, or nothing"
    assert told.count("seed of a generated flow (default: 0)") == 1, "a zero is a default"
    assert "--print_config[=flags]" in texts["run"]


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["nosuch"], "nosuch"),
        (["schedule"], "COMMAND"),
        (["schedule", "make", "square", "--out", "x"], "square"),
        (["schedule", "make", "linear"], "--out"),
        (["schedule", "make", "linear", "-T", "many", "--out", "x"], "many"),
        (["schedule", "make", "linear", "-T", "0", "--out", "x"], "-T must be at least 1"),
        (["schedule", "make", "sigmoid", "-T", "10", "--out", "x"], "sigma_max"),
        (["schedule", "make", "linear", "--out", "nowhere/x.json"], "nowhere"),
        (["schedule", "show", "missing.json"], "missing.json"),
        (["schedule", "show", "broken.json"], "broken.json"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(argv, complaint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.json").write_text('{"sigma": [')
    try:
        code = main(argv)
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr().err
    assert code == 2
    assert complaint in said
    assert said.startswith("biasbound")
    assert len(said.strip().splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["broken.json"]


@pytest.mark.long
def test_the_module_runs_as_a_program(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "biasbound", "schedule", "make", "linear", "--out", str(tmp_path / "s.json")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "wrote" in run.stdout
    assert json.loads((tmp_path / "s.json").read_text())["meta"]["method"] == "linear"
