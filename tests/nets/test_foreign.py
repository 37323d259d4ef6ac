"""Networks of the user's own: how they are made and called."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from own_networks import Convolution
from torch import nn
from toys import seeded

from biasbound.nets import NETS, NetSpec
from biasbound.nets.foreign import Call, Foreign, adopt, timestep
from biasbound.registry import enrol

SPEC = NetSpec("mine:Net", 2, 1, (16,), ("periodic",))
Z, X, LEVEL = torch.randn(3, 1, 16, generator=seeded(1)), torch.randn(3, 2, 16, generator=seeded(2)), torch.arange(3.0)
PLANE = (LEVEL / 10)[:, None, None].expand(3, 1, 16)


def network(forward):
    """A network with this forward, which keeps what it was given."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

    Net.forward = forward
    return Net()


# --- how it is called -----------------------------------------------------------------------------------


def ours(self, z_t, x, log_snr):
    self.seen = z_t, x, log_snr
    return z_t * self.weight


def optional(self, z_t, x=None, log_snr=None):
    self.seen = z_t, x, log_snr
    return z_t[:, :1]


def told(self, field, log_snr):
    self.seen = field, log_snr
    return field[:, :1]


def diffusers(self, sample, timestep, class_labels=None, return_dict=True):
    self.seen = sample, timestep
    return SimpleNamespace(sample=sample[:, :1])


def clocked(self, y, cond, t):
    self.seen = y, cond, t
    return (y, "more")


def plain(self, field, output_shape=None, **how):
    self.seen = (field,)
    return field[:, :1]


NOTHING, ALL = torch.zeros(3), torch.cat([Z, X], 1)
CALLS = {  # forward: what it gets with noise, what without, and of how many channels
    ours: ((Z, X, LEVEL), (torch.zeros(3, 1, 16), X, NOTHING), (3, 3)),
    optional: ((Z, X, LEVEL), (X, None, None), (3, 2)),
    told: ((ALL, LEVEL), (X, NOTHING), (3, 2)),
    diffusers: ((ALL, timestep(LEVEL)), (X, timestep(NOTHING)), (3, 2)),
    clocked: ((Z, X, timestep(LEVEL)), (torch.zeros(3, 1, 16), X, timestep(NOTHING)), (3, 3)),
    plain: ((torch.cat([ALL, PLANE], 1),), (X,), (4, 2)),
}


def alike(seen, expected):
    pairs = zip(seen, expected, strict=True)
    return all(a is b if b is None else torch.allclose(a, b, rtol=1e-6) for a, b in pairs)


@pytest.mark.parametrize("forward", CALLS, ids=lambda f: f.__name__)
def test_a_network_is_called_as_its_forward_says(forward):
    noisy, clean, channels = CALLS[forward]
    net = Foreign(network(forward), SPEC)
    assert net(Z, X, LEVEL).shape == Z.shape
    assert alike(net.module.seen, noisy)
    assert net(X).shape == Z.shape
    assert alike(net.module.seen, clean)
    assert tuple(net.call.channels(SPEC, noisy) for noisy in (True, False)) == channels


@pytest.mark.parametrize(
    "forward",
    [
        lambda self: None,
        lambda self, a, b: a,
        lambda self, z_t, x, level: z_t,
        lambda self, sample, timestep, encoder_hidden_states: sample,
        lambda self, field, *, mask: field,
    ],
)
def test_a_forward_that_cannot_be_called_is_named(forward):
    with pytest.raises(ValueError, match=r"Net\.forward\(.*\) cannot be called: it may take \(z_t, x, log_snr\)"):
        Call.of(network(forward))


def test_timesteps_rise_with_the_noise_and_are_those_of_diffusers():
    level = torch.linspace(-20, 20, 41, dtype=torch.float64)
    made = timestep(level)
    assert torch.allclose(made.diff(), torch.tensor(-25.0, dtype=torch.float64))  # no two levels alike
    assert made.tolist()[::40] == [1000, 0]
    assert timestep(torch.tensor([-99.0, 99.0])).tolist() == [1000, 0]


@pytest.mark.parametrize(
    ("forward", "complaint"),
    [
        (lambda self, field: field[:, :, :8], r"must return shape \(B, C, \*N\) = \(3, 1, 16\), got \(3, 4, 8\)"),
        (lambda self, field: None, r"must return shape .*, got NoneType"),
        (lambda self, field: field @ field, r"does not take fields of shape \(3, 4, 16\) \(.*size"),
    ],
)
def test_an_answer_that_does_not_fit_is_one_sentence(forward, complaint):
    needs = "it gets 4 channels in a diffusion model and 2 channels in a direct one, and returns 1"
    with pytest.raises(ValueError, match=f"the network Net {complaint}.*: {needs}") as said:
        Foreign(network(forward), SPEC)(Z, X, LEVEL)
    assert "\n" not in str(said.value)


# --- how it is made -------------------------------------------------------------------------------------


def test_a_factory_gets_what_its_signature_names():
    def factory(in_channels, out_channels, grid, dims, noisy, spec, points, unused=3, **more):
        seen.update(locals())
        return network(plain)

    seen = {}
    adopt(factory, NetSpec("mine", 2, 1, (16, 8), options={"points": 5, "depth": 2}), True)
    expected = {"in_channels": 4, "out_channels": 1, "grid": (16, 8), "dims": 2, "noisy": True, "unused": 3}
    assert expected.items() <= seen.items()
    assert (seen["points"], seen["more"], seen["spec"].inputs) == (5, {"depth": 2}, 2)


@pytest.mark.parametrize(("noisy", "channels"), [(True, 4), (False, 2)])
def test_a_class_is_made_with_the_channels_that_its_forward_gets(noisy, channels):
    """As if it had been made by hand, with the same random numbers."""
    torch.manual_seed(3)
    net = adopt(Convolution, SPEC, noisy)
    torch.manual_seed(3)
    by_hand = Convolution(channels, 1)
    assert {f"module.{name}" for name in by_hand.state_dict()} == net.state_dict().keys()
    assert all(torch.equal(net.state_dict()[f"module.{name}"], value) for name, value in by_hand.state_dict().items())


def test_what_an_architecture_returns_is_called_as_it_wants():
    """One that keeps to the contract stays as it is."""
    kept, wrapped = (adopt(lambda spec, noisy, f=f: network(f), SPEC, True) for f in (ours, plain))
    assert not isinstance(kept, Foreign)
    assert isinstance(wrapped, Foreign)
    assert wrapped(Z, X, LEVEL).shape == Z.shape


@pytest.mark.parametrize(
    ("thing", "options", "complaint"),
    [
        (Convolution, {"depth": 3}, "mine:Net takes no option 'depth'; it takes in_channels, out_channels, width"),
        (lambda in_channels, width, depth: None, {}, "mine:Net needs width, depth: give them as options"),
        (Convolution, {"width": "wide"}, "mine:Net cannot be made with in_channels=3, .*width='wide'"),
        (lambda: 3, {}, "must return a torch.nn.Module, not int"),
        (3, {}, "neither a module nor what makes one"),
        (network(plain), {"width": 3}, "is a module already and takes no options: width"),
    ],
)
def test_what_makes_no_network_is_refused(thing, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        adopt(thing, NetSpec("mine:Net", 2, 1, (16,), options=options), True)


def test_a_module_is_copied_and_says_how_many_channels_it_needs():
    mine = nn.Conv1d(2, 1, 1)
    net = adopt(mine, SPEC, False)
    assert torch.equal(net(X), mine(X))
    assert net.module.weight is not mine.weight
    needs = "4 channels in a diffusion model and 2 channels in a direct one"
    with pytest.raises(ValueError, match=rf"Conv1d does not take .*\(3, 4, 16\) .*{needs}"):
        adopt(mine, SPEC, True)(Z, X, LEVEL)


@pytest.mark.usefixtures("own_names")
@pytest.mark.parametrize("thing", [Convolution, Convolution(2, 1), partial(Convolution, width=4)])
def test_what_a_call_was_given_is_built_by_its_name(thing):
    spec = NetSpec(enrol(NETS, thing), 2, 1, (16,))
    assert spec.name == "own_networks:Convolution"
    assert spec.build(False)(X).shape == Z.shape
