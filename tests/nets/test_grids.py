"""Networks on grids of any size, in one, two and three dimensions, with ends or without."""

from dataclasses import replace

import pytest
import torch

from biasbound.nets import NETS, NetSpec
from biasbound.registry import find, known

P, OPEN, WALL = "periodic", "open", "wall"
GRIDS = {
    (64,): (P,),
    (33,): (P,),
    (50,): (P,),
    (3,): (P,),
    (2,): (OPEN,),
    (1,): (P,),
    (33, 49): (WALL, OPEN),
    (32, 49): (OPEN, P),
    (9, 20): (P, P),
    (3, 24): (P, WALL),
    (8, 12, 6): (P, P, P),
    (5, 6, 9): (P, P, P),
    (7, 3, 10): (WALL, P, OPEN),
}
OPTIONS = {
    "unet": ({"width": 8}, {"width": 6, "block": "convnext", "middle": True}),
    "fno": ({"width": 8},),
    "dilated": ({"width": 8},),
    "dit": ({"width": 16},),
}
CASES = [(name, options) for name, several in OPTIONS.items() for options in several]

every_network = pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{len(o)}" for n, o in CASES])
every_grid = pytest.mark.parametrize(("grid", "boundary"), GRIDS.items(), ids=lambda v: "x".join(map(str, v)))


def awake(spec, noisy=True, seed=0):
    """In double precision, with the layers that start at zero stirred."""
    rng = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    net = spec.resolved().build(noisy).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=rng, dtype=parameter.dtype)
    return net


def fields_for(spec, batch=2, seed=0):
    rng = torch.Generator().manual_seed(seed)
    z_t, x = (torch.randn(batch, c, *spec.grid, generator=rng).double() for c in (spec.outputs, spec.inputs))
    return z_t, x, torch.linspace(-5, 8, batch).double()


def strides(net):
    """By how many points a field may be shifted along each axis."""
    return net.body.strides if hasattr(net, "body") else net.config.strides


def test_every_network_is_tested_here():
    assert OPTIONS.keys() == {n for n in known(NETS) if type(find(NETS, n)).__module__.startswith("biasbound")}


@every_network
@every_grid
def test_a_network_answers_on_its_grid_and_at_first_with_zero(name, options, grid, boundary):
    spec = NetSpec(name, 2, 1, grid, boundary, options).resolved()
    assert spec.resolved() == spec
    z_t, x, log_snr = fields_for(spec)
    for noisy, inputs in ((True, (z_t, x, log_snr)), (False, (x,))):
        assert not spec.build(noisy).double()(*inputs).any()
        made = awake(spec, noisy)(*inputs)
        assert made.shape == z_t.shape
        assert made.isfinite().all()
        assert made.is_contiguous()
        assert made.any()


@every_network
@every_grid
def test_a_shift_by_the_stride_of_a_periodic_axis_shifts_the_result(name, options, grid, boundary):
    spec = NetSpec(name, 2, 1, grid, boundary, options)
    net = awake(spec)
    z_t, x, log_snr = fields_for(spec)
    expected = net(z_t, x, log_snr)
    for axis, (n, kind, stride) in enumerate(zip(grid, boundary, strides(net), strict=True), 2):
        assert kind != P or n % stride == 0
        if kind == P:
            shifted = net(z_t.roll(stride, axis), x.roll(stride, axis), log_snr)
            torch.testing.assert_close(shifted, expected.roll(stride, axis))


@every_network
def test_a_network_knows_where_a_grid_ends(name, options):
    """The test above can fail: along the axis with ends, a shift by its stride changes the result."""
    spec = NetSpec(name, 2, 1, (24, 16), (OPEN, P), options)
    net = awake(spec)
    z_t, x, log_snr = fields_for(spec)
    by = strides(net)[0]
    gap = net(z_t.roll(by, 2), x.roll(by, 2), log_snr) - net(z_t, x, log_snr).roll(by, 2)
    assert gap.abs().max() > 1e-3


@pytest.mark.parametrize(
    ("points", "kind", "block", "halvings"),
    [
        (64, P, "residual", None), (4, P, "residual", None), (12, P, "convnext", None), (50, P, "residual", 1),
        (33, P, "residual", 0), (8, P, "convnext", 1), (3, P, "residual", 0), (33, WALL, "residual", None),
        (3, OPEN, "residual", 1), (1, OPEN, "residual", 0), (13, WALL, "convnext", None), (11, WALL, "convnext", 1),
    ],
)  # fmt: skip
def test_an_axis_is_halved_as_often_as_it_can_be(points, kind, block, halvings):
    """Of two possible halvings; where all are possible, a spec does not speak of them."""
    options = NetSpec("unet", 1, 1, (points,), (kind,), {"block": block, "width": 6}).resolved().options
    assert options.get("halvings") == (None if halvings is None else [halvings])


@pytest.mark.parametrize("points", [64, 50, 33])
def test_a_kept_axis_is_seen_as_far_as_a_halved_one(points):
    """In points of the given grid, a kernel of level i joins points 2^i apart, whether the axis was halved or not."""
    config = awake(NetSpec("unet", 1, 1, (points,), (P,), {"width": 4})).config
    for level in range(3):
        assert min(2**level, config.strides[0]) * config.dilation(level)[0] == 2**level


def test_a_network_of_one_grid_works_on_others():
    """A U-Net with ends takes any grid, one without any multiple of its strides."""
    walls, rounds = (awake(NetSpec("unet", 1, 1, (16,), (kind,), {"width": 4}), False) for kind in (WALL, P))
    for n in (1, 2, 17, 40):
        assert walls(torch.zeros(1, 1, n, dtype=torch.float64)).shape == (1, 1, n)
    assert rounds(torch.zeros(1, 1, 40, dtype=torch.float64)).shape == (1, 1, 40)
    with pytest.raises(ValueError, match=r"multiples of \[4\] points along the axes, got a grid of \[18\]"):
        rounds(torch.zeros(1, 1, 18, dtype=torch.float64))


def test_halvings_of_ones_own_are_kept():
    spec = NetSpec("unet", 1, 1, (16, 16), (P, P), {"width": 4, "halvings": [2, 0]})
    assert spec.resolved().options["halvings"] == [2, 0]
    assert strides(awake(replace(spec, grid=(4, 7)))) == (4, 1)
