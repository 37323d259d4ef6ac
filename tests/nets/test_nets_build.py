"""From a name and a shape to a network."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from biasbound._io import as_kind, plain
from biasbound.nets import NETS, ConditionalNet, DirectNet, NetSpec, UNetConfig, mini, paper

SPEC = NetSpec("unet", 3, 1, (32,), ("periodic",))
FLOW = NetSpec("unet", 5, 4, (32, 64), ("wall", "open"), {"width": 8})


@pytest.mark.parametrize("spec", [SPEC, FLOW, replace(FLOW, boundary=("periodic", "wall"))])
@pytest.mark.parametrize("noisy", [True, False])
def test_a_network_maps_what_its_spec_says(spec, noisy):
    net = spec.resolved().build(noisy)
    x, y = (torch.randn(2, channels, *spec.grid) for channels in (spec.inputs, spec.outputs))
    made = net(y, x, torch.zeros(2)) if noisy else net(x)
    assert made.shape == y.shape
    assert isinstance(net, ConditionalNet if noisy else DirectNet)
    assert net.spec == spec.resolved()


@pytest.mark.parametrize("spec", [SPEC, FLOW])
def test_a_resolved_spec_is_all_that_a_folder_needs(spec):
    """It is complete, stays as it is and survives JSON."""
    resolved = spec.resolved()
    assert resolved.resolved() == resolved
    assert {"width", "multipliers", "padding"} <= resolved.options.keys()
    back = as_kind(NetSpec, json.loads(json.dumps(plain(resolved))), "spec")
    assert back == resolved
    shapes = [[p.shape for p in s.build(True).parameters()] for s in (resolved, back)]
    assert shapes[0] == shapes[1]


def test_boundaries_choose_the_padding():
    flow = replace(FLOW, boundary=("periodic", "wall")).resolved()
    assert flow.options["padding"] == ["circular", "zeros"]
    assert SPEC.resolved().options["padding"] == ["circular"]


@pytest.mark.parametrize("size", ["small", "large"])
def test_sizes_are_the_presets(size):
    built = replace(SPEC, inputs=1, options={"size": size}).resolved().build(True)
    assert built.config == mini(size)
    assert replace(SPEC, inputs=1, options={"size": size}).resolved().build(False).config == mini(size).deterministic()


def test_the_papers_networks_are_a_size():
    assert replace(SPEC, inputs=1, grid=(64,), options={"size": "paper"}).resolved().build(True).config == paper("ks")
    wide = NetSpec("unet", 5, 4, (64, 64), ("wall", "open"), {"size": "paper", "width": 128}).resolved().build(True)
    assert wide.config == paper("transonic")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"name": "mlp"}, "no net 'mlp': there are unet"),
        ({"grid": (8,) * 4, "boundary": ("periodic",) * 4}, "one, two or three dimensions, and these fields have 4"),
        ({"options": {"size": "huge"}}, "no mini network 'huge'"),
        ({"options": {"depth": 3}}, "no field 'depth'; its fields are in_channels"),
        ({"options": {"width": 0}}, "the network's width must be"),
        ({"options": {"block": "resnet"}}, "the network's block must be"),
    ],
)
def test_what_does_not_fit_is_refused(change, complaint):
    with pytest.raises(ValueError, match=complaint):
        replace(SPEC, **change).resolved()


def test_an_architecture_of_ones_own(monkeypatch):
    """Any callable (spec, noisy) → module; without `resolve`, its options are as they were given."""

    def pointwise(spec, noisy):
        return nn.Conv1d(spec.inputs, spec.outputs, spec.options["kernel"])

    monkeypatch.setitem(NETS, "pointwise", pointwise)
    spec = replace(SPEC, name="pointwise", options={"kernel": 1})
    assert spec.resolved() == spec
    net = spec.build(False)
    assert net(torch.zeros(2, 3, 32)).shape == (2, 1, 32)
    assert net.spec is spec


def test_the_config_of_a_network_is_a_value():
    config = UNetConfig.from_dict({**SPEC.resolved().options, "in_channels": 4, "out_channels": 1})
    assert config == SPEC.resolved().build(True).config
