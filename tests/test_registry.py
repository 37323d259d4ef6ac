"""From names to things: what there is, what may be imported, and what a worker process knows."""

import subprocess
import sys
from functools import partial
from importlib.metadata import EntryPoint

import pytest

from biasbound import registry
from biasbound.registry import additions, allow, described, enrol, find, home, kinds, known, name_of, restore


def one(levels):
    """The first line says it.

    The others do not.
    """


def two(levels):
    """Two"""


@pytest.fixture(autouse=True)
def state(monkeypatch):
    """A registry of its own, `things`, and afterwards all as it was."""
    for name in ("_HOMES", "_ALLOWED", "_PLUGGED", "_PENDING"):
        monkeypatch.setattr(registry, name, getattr(registry, name).copy())
    return home("things", {"one": one, "other": "json.decoder:JSONDecoder"})


def test_find_gives_what_stands_there(state):
    assert find(state, "one") is one
    state["two"] = two
    assert find(state, "two") is two
    assert known(state) == ("one", "other", "two")
    assert kinds()["things"] is state


def test_an_entry_of_ours_is_imported_when_it_is_first_asked_for(state):
    from json.decoder import JSONDecoder

    assert state["other"] == "json.decoder:JSONDecoder"
    assert find(state, "other") is JSONDecoder
    assert state["other"] is JSONDecoder


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("onne", r"no thing 'onne': there are one, other; did you mean one\?"), ("xyz", "there are one, other$")],
)
def test_an_unknown_name_is_refused_with_those_there_are(state, name, complaint):
    with pytest.raises(ValueError, match=complaint):
        find(state, name)
    assert known(state) == ("one", "other")


def test_every_registry_of_the_package_finds_all_its_names():
    from biasbound.core.denoise import PREDICTIONS
    from biasbound.core.schedule import SCHEDULES
    from biasbound.models.model import MODELS
    from biasbound.models.task import TASKS
    from biasbound.nets import NETS

    for entries in (SCHEDULES, PREDICTIONS, NETS, MODELS, TASKS):
        for name in known(entries):
            assert name_of(entries, find(entries, name)) == name
        assert all(described(entries).values())


def test_a_thing_knows_its_name(state):
    assert name_of(state, one) == "one"
    with pytest.raises(ValueError, match="not one of the things"):
        name_of(state, two)


def test_descriptions_are_first_lines(state):
    state["two"] = two
    assert described(state)["one"] == "The first line says it."
    assert described(state)["two"] == "Two"


# --- what is imported -----------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A module in the current folder."""
    (tmp_path / "mine.py").write_text("def made(levels):\n    'Mine'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    yield "mine:made"
    sys.modules.pop("mine", None)


def test_only_what_the_user_typed_is_imported(state, package):
    with pytest.raises(ValueError, match="thing 'mine:made' would have to be imported, which no loaded file may ask"):
        find(state, package)
    assert "mine" not in sys.modules
    path = list(sys.path)
    allow([package, "one"])
    found = find(state, package)
    assert found is sys.modules["mine"].made
    assert state[package] is found
    assert sys.path == path
    with pytest.raises(ValueError, match="would have to be imported"):
        find(state, "mine:other")


@pytest.mark.parametrize(
    ("name", "complaint"), [("mine:nothing", "no attribute 'nothing'"), ("nowhere:made", "No module named 'nowhere'")]
)
def test_an_import_that_fails_is_one_sentence(state, package, name, complaint):
    allow([name])
    with pytest.raises(ValueError, match=f"cannot import {name}: .*{complaint}"):
        find(state, name)
    assert name not in state


def test_a_module_with_an_error_is_one_sentence(state, tmp_path, monkeypatch):
    (tmp_path / "wrong.py").write_text("def made(:\n")
    monkeypatch.chdir(tmp_path)
    allow(["wrong:made"])
    with pytest.raises(ValueError, match="cannot import wrong:made: "):
        find(state, "wrong:made")


def test_installed_packages_add_and_never_replace(state, package, monkeypatch):
    offered = [
        EntryPoint(n, v, "biasbound.things") for n, v in (("extra", package), ("one", package), ("bad", "nowhere:x"))
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: offered if group == "biasbound.things" else [])
    monkeypatch.syspath_prepend(".")
    with pytest.warns(UserWarning, match="thing 'bad' of nowhere:x cannot be used"):
        assert known(state) == ("one", "other", "extra")
    assert find(state, "one") is one
    assert find(state, "extra") is sys.modules["mine"].made


# --- workers --------------------------------------------------------------------------------------------


def test_a_worker_knows_what_its_parent_knows(state):
    state["two"] = two
    allow(["package:thing"])
    told = additions()
    assert told.entries["things"] == {"two": two}
    assert "package:thing" in told.allowed
    del state["two"]
    registry._ALLOWED.clear()
    restore(told)
    assert find(state, "two") is two
    assert additions() == told


def test_additions_wait_for_a_registry_that_is_not_loaded_yet():
    restore(registry.Additions(frozenset(), {"later": {"two": two}}))
    later = home("later", {"one": one})
    assert known(later) == ("one", "two")


def test_what_was_typed_is_imported_by_each_worker_for_itself(state, package):
    """A module in the current folder is on nobody's path: its things cannot be sent."""
    allow([package])
    find(state, package)
    told = additions()
    assert package in told.allowed
    assert "things" not in told.entries


def test_a_thing_that_a_call_was_given_has_its_own_name(state):
    assert enrol(state, two) == f"{__name__}:two"
    assert find(state, f"{__name__}:two") is two
    assert enrol(state, partial(two, levels=1)) == f"{__name__}:two"  # in its place
    assert find(state, f"{__name__}:two").func is two
    assert enrol(state, "one") == "one"


def test_built_in_names_are_no_additions(state):
    find(state, "other")  # imported now, and still built in
    assert "things" not in additions().entries


def test_a_registry_costs_no_import_of_torch():
    program = "import sys, biasbound.registry; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
