"""Everything that can be known before work begins is checked before, also by a dry run; the option is named."""

import json
from functools import lru_cache

import pytest
from calling import called, refused
from lines import Accepted, _refused, bad_lines, nonsense, options

from biasbound.cli import wish
from biasbound.study.config import Config, DataConfig, NetworkConfig, RolloutConfig
from biasbound.study.execute import Manner
from biasbound.study.plan import require_possible

SOME = nonsense()
PARSERS = lru_cache(wish._parser)  # each takes longer to make than to use


@pytest.fixture(autouse=True)
def kept(monkeypatch):
    monkeypatch.setattr(wish, "_parser", PARSERS)


@pytest.mark.parametrize("line", SOME[::7], ids=lambda line: line[0][-1])
def test_nonsense_is_refused_by_name(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("biasbound.cli.study.dry_run", lambda *given: None)
    with pytest.raises(ValueError, match="biasbound"):
        _refused(*line, tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ["fit", "nowhere.h5", "--history=--"],
        ["diagnose", "nowhere.h5", "--data", "nowhere.h5", "--levels=--"],
        ["run", "run", "--preset", "ks-smoke", "--jobs=--"],
    ],
)
def test_two_dashes_are_no_value(words, capsys):
    """argparse drops them: the option stayed at its default, or a list took the place of a number."""
    refused(words, capsys, words[-1].removesuffix("=--"), "no value")


def test_the_list_is_long_and_the_parsers_tell_their_options():
    assert len(SOME) >= 100
    found = {option.name for option in options()}
    assert {"--train.clip", "--sigma-max", "--trajectories", "--rollout.steps", "--stride-time"} <= found
    lines = list(bad_lines(200))
    assert len({" ".join(line) for line, _ in lines}) > 150


def test_what_is_accepted_would_be_seen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Accepted, match="exit code 0"):
        _refused(["schedule", "make", "linear", "-T", "4", "--out", "a.json"], "-T", tmp_path)


def test_optional_numbers_are_explained_in_words(tmp_path, capsys):
    line = ["run", tmp_path / "r", "--preset", "ks-smoke", "--dry-run", "--train.clip", "abc"]
    _, _, said = called(line, capsys)
    assert "train.clip must be a number or null, got abc" in said


def test_the_fixed_schedules_do_not_ignore_their_ends(tmp_path, capsys):
    line = ["schedule", "make", "linear", "-T", "5", "--sigma-max", "0.9999999", "--out", tmp_path / "a.json"]
    code, _, said = called(line, capsys)
    if code == 0:
        assert json.loads((tmp_path / "a.json").read_text())["sigma"][-1] == 0.9999999
    else:
        assert "--sigma-max" in said
    refused(["schedule", "make", "cosine", "--sigma-min", "0.1", "--out", tmp_path / "a.json"], capsys, "--sigma-min")


@pytest.mark.parametrize("device", ["cpu:5", "cpu:0", "meta", "cuda:99", "", "nothing"])
def test_devices_that_are_not_there(device):
    with pytest.raises(ValueError, match="--device"):
        Manner(device=device)


@pytest.mark.parametrize("wrong", [RolloutConfig(steps=10**5), RolloutConfig(trajectories=10**5)])
def test_rollouts_longer_than_the_data(wrong):
    with pytest.raises(ValueError, match=r"rollout\.(steps|trajectories) is 100000"):
        require_possible(Config(data=DataConfig(size="smoke"), rollout=wrong))


@pytest.mark.parametrize("options", [{"positions": -1}, {"postions": 1}])
def test_options_of_the_network_of_one_method(options):
    """They were refused by its training alone, after the data had been made."""
    network = NetworkConfig(others={"dilated": options})
    config = Config(methods=("direct", "direct-dilated"), data=DataConfig(size="smoke"), network=network)
    with pytest.raises(ValueError, match=rf"network\.others: dilated: {next(iter(options))}"):
        require_possible(config)
