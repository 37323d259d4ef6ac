"""The Fourier operator, the dilated network and the transformer: their own laws, their options, and that they learn."""

import json
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from emulators import KINDS, UNITS
from toys import seeded

import biasbound
from biasbound._io import as_kind, plain
from biasbound.models.emulator import Emulator
from biasbound.models.model import make
from biasbound.nets import NETS, NetSpec
from biasbound.nets.dit import HEAD_CHANNELS, Turns, patches
from biasbound.nets.fno import SpectralLayer, Waves
from biasbound.registry import described

P = "periodic"
SMALL = {"fno": {"width": 8}, "dilated": {"width": 8}, "dit": {"width": 16}}
every_chain = pytest.mark.parametrize("name", SMALL)


def spec_of(name, grid=(9, 8), boundary=("open", P)):
    return NetSpec(name, 2, 1, grid, boundary, SMALL[name]).resolved()


def awake(spec, noisy=True, seed=0, by=0.1):
    torch.manual_seed(seed)
    net = spec.build(noisy).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += by * torch.randn_like(parameter)
    return net


def fields_for(spec, batch=3):
    rng = torch.Generator().manual_seed(0)
    z_t, x = (torch.randn(batch, c, *spec.grid, generator=rng).double() for c in (spec.outputs, spec.inputs))
    return z_t, x, torch.linspace(-8, 12, batch).double()


# --- what all of them do --------------------------------------------------------------------------------


@every_chain
def test_a_new_network_hears_x_as_loudly_as_a_direct_one(name):
    torch.manual_seed(0)
    spec = NetSpec(name, 2, 1, (9, 8), ("open", P), {"width": 64}).resolved()
    noisy, direct = (spec.build(n).body.lift for n in (True, False))
    bound = 1 / math.sqrt(direct.weight[0].numel())
    assert noisy.weight[0].numel() > direct.weight[0].numel()
    for lift in (noisy, direct):
        assert 0.9 * bound < lift.weight.abs().max() <= bound
        assert lift.bias.abs().max() <= bound


@every_chain
def test_a_gradient_reaches_every_parameter(name):
    spec = spec_of(name)
    z_t, x, log_snr = fields_for(spec)
    for noisy, inputs in ((True, (z_t, x, log_snr)), (False, (x,))):
        net = awake(spec, noisy)
        net(*inputs).square().sum().backward()
        for place, parameter in net.named_parameters():
            assert parameter.grad is not None, place
            assert parameter.grad.abs().max() > 0, place


@every_chain
def test_samples_do_not_see_each_other_but_their_own_level(name):
    net, inputs = awake(spec_of(name)), fields_for(spec_of(name))
    made = net(*inputs)
    torch.testing.assert_close(made[1:2], net(*(i[1:2] for i in inputs)))
    other = net(*inputs[:2], inputs[2] + 3)
    assert ((other - made).flatten(1).abs().amax(1) > 1e-3).all()


@every_chain
def test_forward_and_reverse_derivatives_agree(name):
    """⟨u, J v⟩ = ⟨Jᵀ u, v⟩."""
    net, (z_t, x, log_snr) = awake(spec_of(name)), fields_for(spec_of(name))
    outputs, jv = torch.func.jvp(lambda z: net(z, x, log_snr), (z_t,), (x[:, :1],))
    u = torch.randn_like(outputs)
    (ju,) = torch.func.vjp(lambda z: net(z, x, log_snr), z_t)[1](u)
    torch.testing.assert_close((u * jv).sum(), (ju * x[:, :1]).sum())


@every_chain
def test_a_network_is_its_seed_and_its_spec(name):
    """Weights are plain contiguous tensors; a spec survives JSON and builds the same network."""
    spec = spec_of(name)
    back = as_kind(NetSpec, json.loads(json.dumps(plain(spec))), "spec")
    assert back == spec == spec.resolved()
    for noisy in (True, False):
        states = []
        for one, seed in ((spec, 1), (back, 1), (spec, 2)):
            torch.manual_seed(seed)
            states.append(one.build(noisy).state_dict())
        first, same, other = states
        assert all(t.is_contiguous() and t.dtype == torch.float32 for t in first.values())
        assert first.keys() == same.keys()
        assert all(torch.equal(first[k], same[k]) for k in first)
        assert not all(torch.equal(first[k], other[k]) for k in first)


@pytest.mark.parametrize("kind", ["direct residual", "eps"])
@every_chain
def test_a_saved_emulator_gives_the_same_bits(name, kind, tmp_path):
    model, frame, options = KINDS[kind]
    net = awake(NetSpec(name, 1, 1, (15,), (P,), SMALL[name]).resolved(), model == "diffusion").float()
    made = Emulator(make(model, net, frame, options), UNITS, ("u",), 0.2)
    made.save(tmp_path / "it")
    x = smooth(15, 1).float()
    states = [e.rollout(x, 2, generator=seeded()).states for e in (made, biasbound.load(tmp_path / "it"))]
    assert torch.equal(*states)
    assert states[0].std() > 0


@pytest.mark.parametrize("grid", [(64,), (32, 32), (16, 16, 16)], ids=len)
@pytest.mark.parametrize("size", ["small", "large"])
@every_chain
def test_a_size_is_about_that_of_the_unet(name, size, grid):
    def parameters(name):
        spec = NetSpec(name, 1, 1, grid, (P,) * len(grid), {"size": size}).resolved()
        return sum(p.numel() for p in spec.build(True).parameters())

    assert 0.7 < parameters(name) / parameters("unet") < 1.2


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("fno", {"width": 0}, "^the network's options: width: Input should be greater than or equal to 1$"),
        ("fno", {"modes": "all"}, "modes: Input should be a valid integer"),
        ("fno", {"depth": 3}, "depth: Unexpected keyword argument"),
        ("dilated", {"dilations": []}, "dilations: .* at least 1 item"),
        ("dilated", {"embedding": 12}, "embedding: Input should be a multiple of 8"),
        ("dilated", {"frequency": float("nan")}, "frequency: "),
        ("dit", {"width": 24}, "width: Input should be a multiple of 16"),
        ("dit", {"patch": [3]}, r"patch must have 2 sizes, one per axis, got \[3\]"),
        (
            "dit",
            {"patch": [2, 3]},
            r"patches of \[2, 3\] points do not divide the periodic axes of a grid of \[9, 8\]",
        ),
        ("dit", {"size": "huge"}, "^the network's size: Input should be 'small' or 'large'$"),
    ],
)
def test_an_unfit_option_is_named(name, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        NetSpec(name, 2, 1, (9, 8), ("open", P), options).resolved()


@every_chain
def test_unfit_fields_are_refused(name):
    with pytest.raises(ValueError, match=r"3 channels in 2 dimensions, got a field of shape \(1, 4, 9, 8\)"):
        awake(spec_of(name))(
            torch.zeros(1, 2, 9, 8).double(), torch.zeros(1, 2, 9, 8).double(), torch.zeros(1).double()
        )
    with pytest.raises(ValueError, match="one, two or three dimensions, and these fields have 4"):
        replace(spec_of(name), grid=(4,) * 4, boundary=(P,) * 4).resolved()


def test_lists_describe_every_network():
    assert all(0 < len(text) < 110 for text in described(NETS).values())


# --- the Fourier operator -------------------------------------------------------------------------------


def spectral(modes, axes=1, width=3):
    torch.manual_seed(0)
    return SpectralLayer(width, axes, modes).double()


def along_all(x, modes):
    return [Waves.along(x, dim, modes) for dim in range(-1 - (x.ndim - 2), -1)]


@pytest.mark.parametrize(("points", "modes"), [(16, 5), (15, 5), (15, 7), (8, 20), (3, 2), (1, 2)])
def test_a_spectral_layer_multiplies_fourier_modes(points, modes, rng):
    """As PyTorch's transform does it, up to the last wavenumber below Nyquist's, however many modes there are."""
    layer, x = spectral(modes), torch.randn(2, points, 3, dtype=torch.float64, generator=rng)
    kept = min(modes, (points - 1) // 2) + 1
    found = torch.fft.rfft(x, dim=1)
    made = torch.zeros_like(found)
    weight = torch.complex(*layer.weight[:, 0, :, :kept].unbind(1))
    made[:, :kept] = torch.einsum("bki,oki->bko", found[:, :kept], weight)
    torch.testing.assert_close(layer(x, along_all(x, modes)), torch.fft.irfft(made, points, dim=1))


def test_the_axes_of_a_spectral_layer_add_up(rng):
    layer, x = spectral(3, axes=2), torch.randn(2, 8, 9, 3, dtype=torch.float64, generator=rng)
    waves = along_all(x, 3)
    whole = layer(x, waves)
    for axis in range(2):
        other = spectral(3)
        other.weight.data = layer.weight.data[:, axis : axis + 1]
        whole = whole - other(x, waves[axis : axis + 1])
    assert whole.abs().max() < 1e-12


def smooth(points, dims):
    """A field of wavenumbers up to 2 on any grid of the periodic unit box."""
    phase = torch.arange(points, dtype=torch.float64) * (2 * math.pi / points)
    row = phase.cos() + 0.5 * (2 * phase).sin()
    return (row if dims == 1 else row[:, None] * (phase.sin() + 0.3))[None, None]


@pytest.mark.parametrize("dims", [1, 2])
def test_a_finer_grid_gives_the_same_field(dims):
    """A spectral layer is exactly the same at shared points. A network is as far as SiLU does not alias, which on twice
    as many points is less by orders of magnitude."""
    layer, every = spectral(4, dims, 1), (..., *[slice(None, None, 3)] * dims)
    coarse, fine = (smooth(n, dims).movedim(1, -1) for n in (9, 27))
    thin = layer(fine, along_all(fine, 4)).movedim(-1, 1)[every]
    torch.testing.assert_close(layer(coarse, along_all(coarse, 4)).movedim(-1, 1), thin)

    net = awake(NetSpec("fno", 1, 1, (32,) * dims, (P,) * dims, {"width": 8, "modes": 6}).resolved(), False)
    gaps = []
    for n in (16, 32):
        here, there = net(smooth(n, dims)), net(smooth(2 * n, dims))[(..., *[slice(None, None, 2)] * dims)]
        gaps.append((here - there).abs().max() / here.std())
    assert gaps[0] < 1e-3
    assert gaps[1] < 1e-6


def test_modes_are_at_most_what_the_padded_grid_resolves():
    for points, kind, modes in ((64, P, 12), (16, P, 7), (15, P, 7), (16, "wall", 9), (1, P, 1)):
        assert NetSpec("fno", 1, 1, (points,), (kind,)).resolved().options["modes"] == modes


# --- the transformer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["circular", "zeros"])
def test_attention_knows_distances_only(kind, rng):
    """Rotated queries and keys have products that depend on the difference of their places, modulo the period."""
    n = 7
    turns = Turns.of((n,), (kind,), torch.zeros(1, dtype=torch.float64))
    q, k = torch.randn(2, 1, 1, 1, HEAD_CHANNELS, dtype=torch.float64, generator=rng)
    q, k = (turns.rotate(t.expand(1, n, 1, -1)).squeeze(2) for t in (q, k))
    products = (q @ k.mT)[0]
    for i in range(n - 1):
        torch.testing.assert_close(products[i + 1, 1:], products[i, :-1])
    around = (products[0, -1] - products[1, 0]).abs()
    assert (around < 1e-12) == (kind == "circular")


@pytest.mark.parametrize(
    ("grid", "padding", "patch"),
    [
        ((64,), ("circular",), (2,)), ((33,), ("circular",), (1,)), ((33,), ("zeros",), (2,)), ((1,), ("zeros",), (1,)),
        ((2048,), ("circular",), (4,)), ((64, 64), ("circular", "zeros"), (4, 4)), ((33, 49), ("zeros", "zeros"), (2, 2)),
        ((60, 100), ("circular", "circular"), (4, 4)), ((32, 32, 32), ("circular",) * 3, (4, 4, 4)),
    ],
)  # fmt: skip
def test_patches_fit_the_grid_and_are_not_too_many(grid, padding, patch):
    assert patches(grid, padding) == patch


# --- learning -------------------------------------------------------------------------------------------


def advected(batch, points, rng):
    """Waves of wavenumbers 1 to 3, now and two points further."""
    phase = torch.arange(points) * (2 * math.pi / points) * torch.arange(1, 4)[:, None]
    x = torch.einsum("bk,kn->bn", torch.randn(batch, 6, generator=rng), torch.cat([phase.cos(), phase.sin()])) / 3**0.5
    return x[:, None], x.roll(2, -1)[:, None]


@pytest.mark.long
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("name", ["unet", *SMALL])
def test_a_network_learns_advection(name, noisy, rng):
    """From 0, the mean squared error falls to less than a fifth; v-prediction at log-SNRs from −6 to 6 if `noisy`."""
    torch.manual_seed(0)
    net = NetSpec(name, 1, 1, (24,), (P,)).resolved().build(noisy)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    losses, steps = [], 60
    for step in range(steps):
        x, y = advected(16, 24, rng)
        if noisy:
            level = torch.linspace(-6, 6, 16)
            a, s = (torch.sigmoid(sign * level).sqrt()[:, None, None] for sign in (1, -1))
            eps = torch.randn(y.shape, generator=rng)
            loss = F.mse_loss(net(a * y + s * eps, x, level), a * eps - s * y)
        else:
            loss = F.mse_loss(net(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.param_groups[0]["lr"] = 1e-2 * (1 - step / steps)
        optimiser.step()
        losses.append(loss.item())
    assert sum(losses[-5:]) / 5 < losses[0] / 5
