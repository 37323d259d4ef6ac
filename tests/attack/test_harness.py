"""The short part of the attack (`make attack` has the long one): some damaged files, lines and kills, seeds kept."""

import shutil
from functools import lru_cache
from pathlib import Path

import pytest
from arena import fought
from commands import QUICK, inputs
from files import Shelf
from kills import siege
from lines import bad_lines, line_cases
from specimens import SPECIMENS

from biasbound.cli import wish

pytestmark = pytest.mark.long
CASES = [line for line in (Path(__file__).parent / "cases.txt").read_text().splitlines() if line and line[0] != "#"]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    made = Shelf(tmp_path_factory.mktemp("shelf"))
    yield made
    shutil.rmtree(made.home)


def test_good_files_are_read(shelf, tmp_path):
    for specimen in SPECIMENS:
        folder = tmp_path / specimen.name
        folder.mkdir()
        specimen.use(specimen.make(folder))


def test_damaged_files(shelf):
    found = fought(shelf.cases(300))
    assert found.findings == []
    assert found.refused > 100


def test_what_was_found_before_is_not_found_again(shelf):
    kinds = {specimen.name: specimen for specimen in SPECIMENS}
    named = [line.rpartition(" #") for line in CASES]
    found = fought([shelf.case(kinds[kind], int(number)) for kind, _, number in named])
    assert found.findings == []
    assert found.cases == len(CASES) > 0


def test_bad_lines(monkeypatch):
    monkeypatch.setattr(wish, "_parser", lru_cache(wish._parser))  # each takes longer to make than to use
    found = fought(line_cases(list(bad_lines(25, seed=7))))
    assert found.findings == []
    assert found.refused == 25


@pytest.mark.parametrize("command", QUICK[1::3], ids=lambda command: command.name)
def test_kills(command, tmp_path):
    told = siege(command, inputs(tmp_path / "good"), tmp_path / "work", 4, seed=3)
    assert told.findings == []
    assert told.kills == 4
