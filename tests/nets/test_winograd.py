"""Tiles are the same convolution as the direct one."""

import pytest
import torch
from torch.testing import assert_close

from biasbound.nets.layers import Conv
from biasbound.nets.winograd import fits, winograd

SHAPES = {"line": ((1, 3), (1, 12)), "plane": ((3, 3), (8, 12)), "one tile": ((3, 3), (4, 4))}


@pytest.mark.parametrize("padding", [("circular", "circular"), ("zeros", "zeros"), ("zeros", "circular")], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_tiles_are_the_convolution_and_its_gradients(shape, padding):
    kernel, grid = SHAPES[shape]
    torch.manual_seed(0)
    conv, x = Conv((9, 8), kernel, padding).double(), torch.randn(3, *grid, 9).double().requires_grad_()
    assert fits(conv.weight, x)
    of = (x, conv.weight, conv.bias)
    made = [conv(x), winograd(x, conv.weight, conv.bias, padding)]
    assert_close(made[1], made[0], rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(made[0])
    for one, other in zip(*(torch.autograd.grad((weight * y).sum(), of) for y in made), strict=True):
        assert_close(other, one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_tiles_lose_less_than_a_digit_of_single_precision(shape):
    kernel, grid = SHAPES[shape]
    torch.manual_seed(0)
    conv, x = Conv((32, 32), kernel, ("circular", "circular")), torch.randn(64, *grid, 32)
    with torch.no_grad():
        found = conv(x), winograd(x, conv.weight, conv.bias, conv.padding)
        exact = conv.double()(x.double())
    direct, tiled = ((y - exact).square().mean().sqrt() for y in found)
    assert tiled < 10 * direct


@pytest.mark.parametrize(
    ("kernel", "grid", "channels"),
    [((3, 3), (8, 6), (8, 8)), ((1, 3), (1, 9), (8, 8)), ((7, 7), (8, 8), (8, 8)), ((3, 3), (8, 8), (2, 8)), ((3, 3, 3), (4, 4, 4), (8, 8))],
    ids=str,
)  # fmt: skip
def test_other_convolutions_are_left_alone(kernel, grid, channels):
    conv = Conv(channels, kernel, ("circular",) * len(kernel))
    assert not fits(conv.weight, torch.zeros(1, *grid, channels[0]))
