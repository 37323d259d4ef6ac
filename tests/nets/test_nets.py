"""Networks: counts, symmetries, derivatives, configs, and that they learn."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from net_configs import CONFIGS, LEAN, ROUND, fields_for

from biasbound.core.bias import jacobian_norm
from biasbound.core.denoise import NetDenoiser
from biasbound.core.noise import renoise
from biasbound.nets import ConditionalNet, DirectNet, UNet, layers, mini, paper
from biasbound.nets.blocks import Attention, Axes, Down, Up, with_row

every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def awake(config, seed=0):
    """A network whose layers that start at zero have been stirred, so that every part has a say."""
    rng = torch.Generator().manual_seed(seed)
    net = UNet(config, rng)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=rng)
    return net


@pytest.mark.parametrize(("case", "millions"), [("ks", 0.96), ("kolmogorov", 1.87), ("transonic", 6.97)])
def test_parameter_counts_are_the_papers_within_three_percent(case, millions):
    assert UNet(paper(case)).parameter_count == pytest.approx(millions * 1e6, rel=0.03)


@pytest.mark.parametrize(
    ("size", "padding", "millions"), [("small", ROUND[:1], 0.07), ("large", ROUND[:1], 0.37), ("small", ROUND, 0.1)]
)
def test_small_networks_are_small(size, padding, millions):
    count = UNet(mini(size, padding=padding)).parameter_count
    assert count == pytest.approx(millions * 1e6, rel=0.15)


@every_config
@pytest.mark.parametrize("batch", [1, 5])
def test_shape_and_finiteness_over_the_whole_range_of_levels(config, batch):
    net = awake(config)
    inputs, _ = fields_for(config, batch)
    for level in (-25.0, 0.0, 30.0):
        outputs = net(inputs, torch.full((batch,), level))
        assert outputs.shape == (batch, config.out_channels, *inputs.shape[2:])
        assert outputs.is_contiguous()
        assert outputs.isfinite().all()


@every_config
def test_samples_do_not_see_each_other(config):
    net = awake(config)
    inputs, log_snr = fields_for(config)
    torch.testing.assert_close(net(inputs, log_snr)[1:2], net(inputs[1:2], log_snr[1:2]))


@every_config
def test_answers_without_a_gradient_are_the_same_to_the_last_bit(config):
    """Neighbours are then gathered by an index instead of joined from pieces."""
    net = awake(config)
    inputs, log_snr = fields_for(config)
    with torch.inference_mode():
        found = net(inputs, log_snr)
    assert torch.equal(found, net(inputs.requires_grad_(), log_snr))


@pytest.mark.parametrize("reach", [(1, 2), (0, 3), (4, 7)])
def test_a_grid_goes_on_round_and_round(reach, rng):
    x = torch.randn(2, 3, 4, 5, generator=rng)
    pieces, gathered = (layers.wrap(field, reach, ROUND)[0] for field in (x.clone().requires_grad_(), x))
    assert torch.equal(pieces, gathered)


@every_config
def test_a_shifted_field_gives_a_shifted_result(config):
    net = awake(config).double()
    inputs, log_snr = (t.double() for t in fields_for(config))
    shift = tuple(stride * n for stride, n in zip(config.strides, (1, -2, 1), strict=False))
    axes = tuple(range(2, 2 + config.dims))
    expected = net(inputs, log_snr).roll(shift, axes)
    torch.testing.assert_close(net(inputs.roll(shift, axes), log_snr), expected)
    single = net.float()(inputs.float().roll(shift, axes), log_snr.float())
    assert (single - expected).abs().max() < 1e-5 * expected.abs().max()


def test_zero_padding_knows_where_the_grid_ends():
    """The test above can fail: with zeros along one axis, a shift along it, and only it, changes the result."""
    net = awake(replace(CONFIGS["paper 2-D"], padding=("zeros", "circular"))).double()
    inputs, log_snr = (t.double() for t in fields_for(net.config))
    before = net(inputs, log_snr)

    def gap(axis):
        return (net(inputs.roll(4, axis), log_snr) - before.roll(4, axis)).abs().max()

    assert gap(3) < 1e-12
    assert gap(2) > 1e-3


@pytest.mark.parametrize("padding", ["circular", "zeros"])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"),
    [
        ((1, 3), 1, 1), ((1, 7), 1, 1), ((3, 3), 1, 1), ((4, 4), 2, 1), ((1, 4), 2, 1), ((3, 3, 3), 1, 1),
        ((4, 1, 4), 2, 1), ((1, 3), 1, 4), ((3, 3), 1, 2), ((3, 3, 3), 1, 3),
    ],
)  # fmt: skip
def test_convolutions_are_pytorchs(padding, kernel, stride, dilation, rng):
    ours = layers.Conv((3, 5), kernel, (padding,) * len(kernel), stride=stride, dilation=(dilation,) * len(kernel))
    kind = torch.nn.Conv2d if len(kernel) == 2 else torch.nn.Conv3d
    reach = [(k - 1) // 2 * dilation for k in kernel]
    theirs = kind(3, 5, kernel, ours.stride, reach, dilation, padding_mode=padding, dtype=torch.float64)
    ours.double()
    theirs.weight.data, theirs.bias.data = ours.weight.data.movedim(-1, 1), ours.bias.data
    x = torch.randn(2, 1 if kernel[0] == 1 else 8, *[8] * (len(kernel) - 1), 3, dtype=torch.float64, generator=rng)
    torch.testing.assert_close(ours(x), theirs(x.movedim(-1, 1)).movedim(1, -1))


@pytest.mark.parametrize(("points", "dilation"), [(1, 1), (2, 3), (3, 2), (5, 8)])
def test_a_convolution_goes_round_a_short_axis_as_often_as_it_reaches(points, dilation, rng):
    """As on the field repeated until it is long enough; beyond an end there is nothing but zeros."""
    for kernel in ((1, 3), (3, 3)):
        ours = layers.Conv((2, 4), kernel, ("circular",) * 2, dilation=(dilation, dilation)).double()
        x = torch.randn(2, points, points, 2, dtype=torch.float64, generator=rng)
        many = ours(x.repeat(1, 20, 20, 1))[:, :points, :points]
        torch.testing.assert_close(ours(x), many)
        ours.padding = ("zeros", "zeros")
        longer = torch.zeros(2, points + 40, points + 40, 2, dtype=torch.float64)
        longer[:, 20 : 20 + points, 20 : 20 + points] = x
        torch.testing.assert_close(ours(x), ours(longer)[:, 20 : 20 + points, 20 : 20 + points])


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(
    ("padding", "factors", "grid"),
    [
        (("circular",), (2,), (8,)), (("zeros",), (2,), (6,)), (("zeros",), (1,), (7,)), (ROUND, (2, 2), (8, 6)),
        (("zeros", "circular"), (2, 2), (4, 8)), (ROUND, (2, 1), (8, 5)), (("zeros",) * 3, (2, 1, 2), (4, 3, 6)),
    ],
)  # fmt: skip
def test_up_is_the_transpose_of_down(overlap, padding, factors, grid, rng):
    """⟨up(x), y⟩ = ⟨x, down(y)⟩ when both share their weights."""
    axes = Axes(padding, (1,) * len(padding))
    down = Down(axes, factors, (5, 3), overlap=overlap).double()
    up = Up(axes, factors, (3, 5), overlap=overlap).double()
    up.mix.weight.data = down.mix.weight.data if overlap else down.mix.weight.data.T
    up.mix.bias.data.zero_(), down.mix.bias.data.zero_()
    y = torch.randn(2, *with_row(grid), 5, dtype=torch.float64, generator=rng)
    below = down(y)
    x = torch.randn(below.shape, dtype=torch.float64, generator=rng)
    torch.testing.assert_close((up(x, y.shape[1:-1]) * y).sum(), (x * below).sum())


def test_the_last_points_of_an_odd_grid_count_twice_on_the_way_down_and_once_on_the_way_up(rng):
    axes, x = Axes(("zeros",) * 3, (1,) * 3), torch.randn(2, 5, 3, 6, 4, generator=rng)
    longer = torch.cat([x, x[:, -1:]], 1)
    longer = torch.cat([longer, longer[:, :, -1:]], 2)
    for overlap in (True, False):
        down, up = (kind(axes, (2, 2, 2), (4, 4), overlap=overlap) for kind in (Down, Up))
        below = down(x)
        assert below.shape == (2, 3, 2, 3, 4)
        assert torch.equal(below, down(longer))
        assert torch.equal(up(below, (5, 3, 6)), up(below, (6, 4, 6))[:, :5, :3])


def test_wrapping_continues_the_field_whatever_its_size(rng):
    x = torch.randn(1, 4, 3, 2, 2, dtype=torch.float64, generator=rng, requires_grad=True)

    def cubed(x):
        return layers.wrap(x, (2, 1, 3), ROUND[:1] * 3)[0] ** 3

    torch.autograd.gradcheck(cubed, x, check_forward_ad=True)


def test_blocks_to_space_undoes_space_to_blocks(rng):
    x = torch.randn(2, 4, 5, 6, 3, generator=rng)
    blocks = layers.space_to_blocks(x, (2, 1, 3))
    assert blocks.shape == (2, 2, 5, 2, 18)
    assert set(blocks[0, 0, 0, 0].tolist()) == set(x[0, :2, 0, :3].flatten().tolist())
    assert torch.equal(layers.blocks_to_space(blocks, (2, 1, 3)), x)


def test_linear_attention_averages_when_all_keys_are_equal(rng):
    """With equal keys softmax(k) is 1/n at each point, so every point receives the mean value, scaled alike."""
    attention = Attention(4, linear=True)
    inner = attention.out.in_features
    with torch.no_grad():
        attention.qkv.weight[: 2 * inner] = 0
    attention.out_norm = torch.nn.Identity()
    x = torch.randn(2, 3, 5, 4, generator=rng)
    change = attention(x) - x
    torch.testing.assert_close(change, change[:, :1, :1].expand_as(change), atol=1e-6, rtol=1e-5)


@every_config
def test_a_gradient_reaches_every_parameter(config):
    for net in (awake(config), awake(replace(config, noise=False))):
        inputs, log_snr = fields_for(config)
        net(inputs, log_snr if net.config.noise else None).square().sum().backward()
        for name, parameter in net.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 0, name


@every_config
def test_forward_and_reverse_derivatives_agree(config):
    """⟨u, J v⟩ = ⟨Jᵀ u, v⟩."""
    net = awake(config).double()
    inputs, log_snr = (t.double() for t in fields_for(config, batch=2))
    v = torch.randn_like(inputs)
    outputs, jv = torch.func.jvp(lambda i: net(i, log_snr), (inputs,), (v,))
    u = torch.randn_like(outputs)
    (ju,) = torch.func.vjp(lambda i: net(i, log_snr), inputs)[1](u)
    torch.testing.assert_close((u * jv).sum(), (ju * v).sum())


def test_the_norm_of_a_denoisers_derivative_can_be_found(rng):
    config = CONFIGS["lean 2-D"]
    net = ConditionalNet(config)
    net.unet = awake(config)
    denoiser = NetDenoiser(net.double(), "x0")
    y_t, x = torch.randn(2, 2, 1, 4, 4, dtype=torch.float64, generator=rng)
    norm = jacobian_norm(denoiser, y_t, x, 0.5, generator=rng)
    for i in range(2):
        exact = torch.func.jacrev(lambda y, i=i: denoiser(y, x[i : i + 1], 0.5))(y_t[i : i + 1])
        largest = torch.linalg.matrix_norm(exact.detach().reshape(16, 16), 2)
        torch.testing.assert_close(norm[i].detach(), largest, rtol=1e-3, atol=0)


@pytest.mark.long
def test_every_network_is_traced_whole():
    """torch.compile sees one graph. In a process of its own, as the tracer would follow the type checks of the
    tests too; tracing alone, since the rest is PyTorch's own work and slow."""
    program = """
import torch
from biasbound.nets import NetSpec
unet = {"width": 12, "multipliers": [1, 1], "block": "convnext", "middle": True, "attention": True}
chain = {"width": 16, "blocks": 1}
for name, options in {"unet": unet, "fno": chain, "dilated": chain | {"dilations": [1, 2]}, "dit": chain}.items():
    net = NetSpec(name, 1, 1, (9, 8), ("wall", "periodic"), options).resolved().build(True)
    for parameter in net.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    inputs = torch.randn(2, 1, 9, 8), torch.randn(2, 1, 9, 8), torch.zeros(2)
    results = []
    for run in (net, torch.compile(net, backend="eager", fullgraph=True)):
        outputs = run(*inputs)
        results.append((outputs, *torch.autograd.grad(outputs.square().sum(), list(net.parameters()))))
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-3)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # fmt: skip
    assert run.returncode == 0, run.stderr


@pytest.mark.long
@pytest.mark.parametrize("name", ["lean 1-D", "lean 2-D", "paper 1-D"])
def test_a_network_learns_advection_with_a_quadratic_term(name, rng):
    """y(p) = x(p − 1) + x(p)²/2 of white noise: persistence is wrong by the size of the field."""
    config = replace(CONFIGS[name], multipliers=(1, 1), blocks=1)
    net = DirectNet(config.deterministic(), rng)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2, fused=True)
    steps = 80
    for step in range(steps):
        x = torch.randn(16, 1, *[8] * config.dims, generator=rng)
        y = x.roll(1, -1) + x.square() / 2
        loss = F.mse_loss(net(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.param_groups[0]["lr"] = 1e-2 * (1 - step / steps)
        optimiser.step()
    assert loss < F.mse_loss(x, y) / 10


def test_a_denoiser_learns_from_the_level_as_well(rng):
    """For y = x the right output is v = (√ᾱ y_t − x)/σ: a network that could not tell the levels apart would be
    left with the variance between them."""
    denoiser = NetDenoiser(ConditionalNet(replace(LEAN, multipliers=(1,)), rng), "v")
    optimiser = torch.optim.Adam(denoiser.parameters(), lr=1e-2, fused=True)
    levels, steps = torch.tensor([0.2, 0.9], dtype=torch.float64), 120
    for step in range(steps):
        y, eps = torch.randn(2, 32, 1, 8, generator=rng)
        sigma = levels[torch.randint(2, (32,), generator=rng)]
        y_t = renoise(y, sigma, eps)
        loss = F.mse_loss(denoiser.output(y_t, y, sigma), denoiser.objective(y, y, sigma, eps))
        optimiser.zero_grad()
        loss.backward()
        optimiser.param_groups[0]["lr"] = 1e-2 * (1 - step / steps)
        optimiser.step()
    assert loss < 0.05
