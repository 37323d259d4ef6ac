"""What the README says must run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from biasbound.cli import main

ROOT = Path(__file__).parents[1]
TESTS = "\n".join(p.read_text() for p in (ROOT / "tests").glob("test_*.py"))


def test_the_readme_program_runs(tmp_path):
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    program += "assert next_state.shape == y.shape and len(ladder) < len(levels)\n"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "REB" in run.stdout
    assert (tmp_path / "ladder.json").exists()


def test_the_readme_data_commands_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text()
    commands = [
        line.partition("#")[0] for line in text.splitlines() if line.startswith("biasbound data")
    ]
    assert len(commands) == 3
    for command in commands:
        assert main(command.split()[1:]) == 0, capsys.readouterr().err
    assert {"ks.h5", "ks.png", "ks.npy"} <= {p.name for p in tmp_path.iterdir()}


def test_every_decision_names_tests_that_exist():
    text = (ROOT / "docs" / "decisions.md").read_text()
    for entry in text.split("\n## ")[1:]:
        named = re.findall(r"`(test_\w+)`", entry)
        assert named, f"no test pins the decision {entry.splitlines()[0]!r}"
        for name in named:
            assert f"def {name}(" in TESTS, name


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "docs/data.md",
        "docs/decisions.md",
        "docs/log.md",
        "docs/report.md",
    ],
)
def test_links_and_pictures_point_to_files(page):
    path = ROOT / page
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target
