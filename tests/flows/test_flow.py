"""Flows by name: sizes and splits, settings, test sets, and flows that others add."""

from __future__ import annotations

import pytest
from toy_source import ToySource

from biasbound import registry
from biasbound.flows import FLOWS
from biasbound.flows.flow import Size, source
from biasbound.registry import find


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(FLOWS, "toy", ToySource)


@pytest.mark.parametrize("name", ["ks", "kolmogorov", "transonic", "toy"])
def test_every_split_of_every_size_is_a_source_of_its_own(name):
    for size in find(FLOWS, name).sizes:
        for split in ("train", "valid", "test"):
            made = source(name, size, split, seed=3)
            assert (made.split, made.seed) == (split, 3)
            assert made.layout.name == name
            assert made.provenance()["seed"] == 3


def test_a_change_goes_before_the_size_and_has_the_type_of_its_setting():
    assert source("toy", "smoke", frames=7) == ToySource(frames=7)
    assert source("transonic", "smoke", mach=[0.5], cells=[16, 24]).cells == (16, 24)
    assert repr(source("ks", "smoke", length=64).length) == "64.0"


def test_the_test_split_is_one_of_the_test_sets_or_like_valid():
    assert source("toy", "small", "test").points == 8
    assert source("toy", "small", "test", test="far").points == 32
    for split in ("train", "valid"):
        assert source("toy", "small", split, test="far").points == 16
    assert Size({"a": 1}, valid={"a": 2, "b": 3}).of("test") == {"a": 2, "b": 3}
    with pytest.raises(ValueError, match="ks has no setting 'test'"):
        source("ks", "smoke", "test", test="far")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"name": "tyo"}, r"there is no flow 'tyo': there are ks, .* did you mean toy\?"),
        ({"size": "vast"}, "toy has no size 'vast'; it has smoke, small"),
        ({"colour": "red"}, "toy has no setting 'colour'; it has trajectories, "),
        ({"split": "test", "test": "odd"}, "toy has no test set 'odd'; it has near, far"),
        ({"frames": 2.5}, "setting frames of toy: Input should be a valid integer"),
    ],
)
def test_what_a_flow_does_not_have_is_one_sentence(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        source(**{"name": "toy", "size": "small", **given})


def test_a_flow_can_be_typed_but_not_come_from_a_file(monkeypatch):
    with pytest.raises(ValueError, match="which no loaded file may ask for"):
        source("toy_source:ToySource", "smoke")
    monkeypatch.setattr(registry, "_ALLOWED", {"toy_source:ToySource", "toy_source:main"})
    for name in registry._ALLOWED:
        monkeypatch.setitem(FLOWS, name, None)  # so that both are forgotten afterwards
        del FLOWS[name]
    assert source("toy_source:ToySource", "smoke") == ToySource(frames=5)
    with pytest.raises(ValueError, match="toy_source:main is not a flow"):
        source("toy_source:main", "smoke")
