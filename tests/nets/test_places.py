"""Networks that are told where a point is."""

from dataclasses import replace

import pytest
import torch

from biasbound.nets import NETS, NetSpec
from biasbound.nets.places import waves

WIDTHS = {"unet": 8, "fno": 8, "dilated": 8, "dit": 16}
every_network = pytest.mark.parametrize("name", WIDTHS)


def spec_of(name, boundary=("periodic", "periodic"), **options):
    return NetSpec(name, 2, 1, (8, 12), boundary, {"width": WIDTHS[name], **options}).resolved()


def awake(spec):
    """In double precision, with the layers that start at zero stirred."""
    torch.manual_seed(0)
    net = spec.build(True).double()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "place" not in name:
                parameter += 0.1 * torch.randn_like(parameter)
    return net


def answer(net, field=1.0):
    return net(
        field * torch.ones(1, 1, 8, 12).double(), field * torch.ones(1, 2, 8, 12).double(), torch.zeros(1).double()
    )


def test_all_of_our_networks_are_asked():
    assert {*WIDTHS} == {name for name in NETS if name in ("unet", "fno", "dilated", "dit")}


@every_network
def test_only_a_network_that_is_told_places_tells_the_points_of_a_uniform_field_apart(name):
    """So without `positions` it has to guess where a force stands that the fields do not show."""
    for positions in (0, 2):
        net = awake(spec_of(name, positions=positions))
        strides = net.unet.config.strides if name == "unet" else net.body.strides
        first, second = strides  # the points of one patch are told apart in any case
        made = answer(net)[:, :, ::first, ::second]
        for axis in (2, 3):
            spread = made.std(axis).max()
            assert spread > 1e-3 if positions else spread < 1e-12


def test_waves_are_orthogonal_and_the_same_on_a_finer_grid():
    like = torch.zeros((), dtype=torch.float64)
    padding, harmonics = ("circular", "zeros"), (3, 2)
    found = waves((16, 10), padding, harmonics, like).flatten(0, 1)
    assert found.shape[1] == 2 * 3 + 2
    torch.testing.assert_close(found.T @ found, 80 * torch.eye(8).double())
    # Along an axis with ends every third cell of the finer grid has its centre where a coarse one has.
    fine = waves((48, 30), padding, harmonics, like)[::3, 1::3]
    torch.testing.assert_close(fine.flatten(0, 1), found)


@every_network
def test_a_spec_from_before_positions_is_the_same_network(name):
    spec = spec_of(name)
    older = replace(spec, options={k: v for k, v in spec.options.items() if k != "positions"})
    assert torch.equal(answer(awake(older)), answer(awake(spec)))


@every_network
def test_all_other_weights_start_as_without_positions(name):
    """So that a comparison with and without differs in one thing."""
    torch.manual_seed(0)
    plain = dict(spec_of(name).build(True).named_parameters())
    torch.manual_seed(0)
    told = dict(spec_of(name, positions=2).build(True).named_parameters())
    assert {*told} - {*plain} == {next(k for k in told if k.endswith("place.weight"))}
    assert all(torch.equal(told[k], plain[k]) for k in plain)


@every_network
def test_an_axis_with_ends_needs_no_positions(name):
    """There `positions` change nothing."""
    ends = ("open", "wall")
    assert torch.equal(answer(awake(spec_of(name, ends))), answer(awake(spec_of(name, ends, positions=3))))


@every_network
def test_a_number_of_waves_is_a_whole_number(name):
    for wrong in (-1, 1.5, "two"):
        with pytest.raises(ValueError, match="positions"):
            spec_of(name, positions=wrong)
