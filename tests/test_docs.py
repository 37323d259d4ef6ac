"""What the README says must run."""

import re
from pathlib import Path

import pytest
import torch

from biasbound.search import ForcedTransition

ROOT = Path(__file__).parents[1]
TESTS = "\n".join(p.read_text() for p in (ROOT / "tests").glob("test_*.py"))


@pytest.mark.filterwarnings(f"ignore::{ForcedTransition.__module__}.{ForcedTransition.__name__}")
def test_the_readme_program_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    names = {}
    exec(program, names)
    assert (tmp_path / "ladder.json").exists()
    assert names["next_state"].shape == (64, 1, 32)


def test_every_decision_names_tests_that_exist():
    text = (ROOT / "docs" / "decisions.md").read_text()
    for entry in text.split("\n## ")[1:]:
        named = re.findall(r"`(test_\w+)`", entry)
        assert named, f"no test pins the decision {entry.splitlines()[0]!r}"
        for name in named:
            assert f"def {name}(" in TESTS, name


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "docs/decisions.md", "docs/log.md"]
)
def test_links_and_pictures_point_to_files(page):
    path = ROOT / page
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target
