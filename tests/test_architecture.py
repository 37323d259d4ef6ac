"""The page on the architecture is about the package as it is."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import architecture


def test_the_tree_on_the_page_is_the_package():
    assert architecture.page() == architecture.PAGE.read_text(encoding="utf-8")
    assert {name for name, told in architecture.entries() if not told} == set()


def test_every_file_of_the_traces_exists():
    traces = architecture.PAGE.read_text(encoding="utf-8").partition("## Three traces")[2].partition("## Modules")[0]
    named = [word for word in traces.split("`") if word.endswith((".py", ".yaml"))]
    assert len(named) > 25
    assert [name for name in named if not (ROOT / "biasbound" / name).exists()] == []
