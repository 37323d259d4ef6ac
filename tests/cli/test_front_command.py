"""`biasbound schedule front`: the best ladder of an emulator for every number of calls."""

import json
from dataclasses import replace

import pytest
from calling import called, refused
from emulators import UNITS, model
from toys import advected

import biasbound
from biasbound.core.schedule import Schedule, linear
from biasbound.data.formats import save
from biasbound.data.trajectories import Trajectories
from biasbound.models.emulator import Emulator


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """An emulator and its data; beside them one without a chain."""
    folder = tmp_path_factory.mktemp("front")
    save(Trajectories.from_array(advected(3, frames=5).numpy(), dt=1.0, channels=["u"]), folder / "waves.h5")
    for name, kind in (("emulator", "x0 ddim"), ("direct", "direct")):
        Emulator(model(kind), replace(UNITS, mean=(0.0,)), ("u",), 1.0).save(folder / name)
    return folder / "emulator", folder / "waves.h5"


def fronted(place, *more):
    return ["schedule", "front", place[0], "--data", place[1], "--pairs", "8", *more]


def test_the_front_of_an_emulator_is_printed_written_and_taken(place, tmp_path, capsys):
    own, out, ladder = biasbound.load(place[0]).schedule, tmp_path / "front.json", tmp_path / "ladder.json"
    argv = fronted(place, "--calls", "3", "--out", out, "--take", "2", "--ladder", ladder)
    code, said, _ = called(argv, capsys)
    assert code == 0
    told = json.loads(out.read_text())
    assert [row["calls"] for row in told["front"]] == [1, 2, 3]
    assert told["front"][0]["sigma"] == [own.sigma[-1]]
    assert all({*row["sigma"]} <= {*own.sigma} for row in told["front"])
    assert told["own"]["sigma"] == list(own.sigma)
    assert told["chosen"] == len(own)
    assert Schedule.load(ladder).sigma == tuple(told["front"][1]["sigma"])
    assert said.count("(best") + said.count(", best") == 1
    assert said.count("its own ladder") == 1
    assert f"{told['front'][0]['mean']:.4g} ± {told['front'][0]['stderr']:.2g}" in said


def test_ladders_are_compared_by_the_crps_where_asked(place, tmp_path, capsys):
    scored = {}
    for score in ("error", "crps"):
        out = tmp_path / f"{score}.json"
        assert called(fronted(place, "--calls", "2", "--draws", "3", "--score", score, "--out", out), capsys)[0] == 0
        scored[score] = json.loads(out.read_text())["front"][0]["mean"]
    assert 0 < scored["crps"] <= scored["error"]  # |e| ≤ ‖e‖ in the mean, and members that differ lower it
    refused(fronted(place, "--draws", "1", "--score", "crps"), capsys, "--draws 2 or more")


def test_the_whole_ladder_is_on_its_own_front(place, tmp_path, capsys):
    """With as many calls as levels there is one ladder left: the emulator's own."""
    out = tmp_path / "front.json"
    code, said, _ = called(fronted(place, "--calls", "6", "--out", out, "--draws", "1"), capsys)
    told = json.loads(out.read_text())
    assert code == 0
    assert told["own"] == told["front"][-1]
    assert said.count("its own ladder") == 1


def test_levels_come_from_a_grid_or_from_a_file(place, tmp_path, capsys):
    own = biasbound.load(place[0]).schedule
    linear(9, sigma_max=0.99).save(tmp_path / "mine.json")
    wanted = {"--levels": "5", "--schedule": tmp_path / "mine.json"}
    for option, value in wanted.items():
        argv = fronted(place, option, value, "--calls", "2", "--draws", "1", "--out", tmp_path / "f.json")
        assert called(argv, capsys)[0] == 0
        levels = json.loads((tmp_path / "f.json").read_text())["about"]["levels"]
        if option == "--levels":
            assert {*own.sigma} <= {*levels}
            assert (levels[0], levels[-1]) == (own.sigma[0], own.sigma[-1])
            assert len(levels) > len(own)
        else:
            assert tuple(levels) == Schedule.load(value).sigma


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--take", "2"], "--take K and --ladder FILE belong together"),
        (["--ladder", "l.json"], "--take K and --ladder FILE belong together"),
        (["--take", "9", "--ladder", "l.json"], "from 1 to 4 or `best`, got '9'"),
        (["--take", "few", "--ladder", "l.json"], "got 'few'"),
        (["--calls", "0"], "--calls must be at least 1"),
        (["--draws", "0"], "--draws must be at least 1"),
        (["--pairs", "0"], "--pairs must be at least 1"),
        (["--levels", "1"], "at least 2 levels"),
        (["--schedule", "nosuch.json"], "cannot read schedule nosuch.json"),
        (["--levels", "3", "--schedule", "s.json"], "not allowed with"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(place, more, complaint, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(fronted(place, *more), capsys, complaint)
    assert not list(tmp_path.iterdir())


def test_only_an_emulator_with_a_chain_has_a_front(place, capsys, tmp_path):
    refused(fronted((tmp_path / "nothing", place[1])), capsys, "not an emulator's folder")
    refused(fronted((place[0].with_name("direct"), place[1])), capsys, "only a diffusion emulator has one")
