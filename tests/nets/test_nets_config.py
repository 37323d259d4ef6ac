"""What a network is made from: its seed, its config, its fields, and what it refuses."""

import json
import math
import re
from dataclasses import fields, replace

import pytest
import torch
from net_configs import CONFIGS, LEAN, fields_for

from biasbound.core.denoise import Network
from biasbound.nets import ConditionalNet, DirectNet, UNet, UNetConfig, mini, paper
from biasbound.nets.blocks import LogSnrEmbedding


def test_a_network_is_its_seed():
    def bytes_of(net):
        return [p.detach().numpy().tobytes() for p in net.state_dict().values()]

    torch.manual_seed(1)
    first = UNet(LEAN)
    torch.manual_seed(1)
    assert bytes_of(first) == bytes_of(UNet(LEAN))
    assert bytes_of(first) != bytes_of(UNet(LEAN))
    torch.manual_seed(2)
    before = torch.get_rng_state()
    one, two = (UNet(LEAN, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert bytes_of(one) == bytes_of(two)


def test_weights_are_plain_contiguous_tensors():
    for config in CONFIGS.values():
        state = UNet(config).state_dict()
        assert all(t.is_contiguous() and t.dtype == torch.float32 for t in state.values())
        assert set(state) == {name for name, _ in UNet(config).named_parameters()}


def test_a_new_network_starts_at_zero_or_not():
    inputs, log_snr = fields_for(LEAN)
    assert not UNet(LEAN)(inputs, log_snr).any()
    assert UNet(replace(LEAN, zero_init=False))(inputs, log_snr).std() > 0.01


def test_the_two_roles():
    x, z_t, log_snr = torch.randn(3, 1, 16), torch.randn(3, 1, 16), torch.zeros(3)
    net = ConditionalNet(replace(LEAN, zero_init=False))
    assert isinstance(net, Network)
    torch.testing.assert_close(net(z_t, x, log_snr), net.unet(torch.cat([z_t, x], 1), log_snr))
    direct = DirectNet(net.config.deterministic())
    assert direct(x).shape == x.shape
    assert direct.config.in_channels == 1
    assert 0 < direct.parameter_count < net.parameter_count
    with pytest.raises(ValueError, match="needs a noise input"):
        ConditionalNet(replace(LEAN, noise=False))
    with pytest.raises(ValueError, match="has no noise input"):
        DirectNet(LEAN)


def test_levels_close_together_look_alike_and_levels_apart_do_not():
    features = LogSnrEmbedding(LEAN, 8).features
    level = torch.linspace(-25, 30, 56)

    def distance(a, b):
        return torch.linalg.vector_norm(features(a) - features(b), dim=-1)

    waves = LEAN.embedding // 8
    slope = distance(level, level + 1e-2) / 1e-2
    assert (slope <= LEAN.frequency * math.sqrt(waves) * 1.001).all()
    apart = torch.cdist(features(level), features(level)) + 10 * torch.eye(56)
    assert apart.min() > 0.05


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        (torch.zeros(2, 2, 18), "multiples of [4] points along the axes, got a grid of [18]"),
        (torch.zeros(2, 3, 16), "shape (batch, 2, X), got (2, 3, 16)"),
        (torch.zeros(2, 2, 16, 16), "shape (batch, 2, X), got (2, 2, 16, 16)"),
    ],
)
def test_unfit_fields_are_refused(inputs, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        UNet(LEAN)(inputs, torch.zeros(2))


def test_a_missing_or_needless_level_is_refused():
    x = torch.zeros(1, 2, 16)
    with pytest.raises(ValueError, match="needs log_snr"):
        UNet(LEAN)(x)
    with pytest.raises(ValueError, match="takes no log_snr"):
        UNet(replace(LEAN, noise=False))(x, torch.zeros(1))


@pytest.mark.parametrize("config", [*CONFIGS.values(), paper("transonic"), mini("large")])
def test_a_config_survives_json(config):
    assert UNetConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("in_channels", 0), ("in_channels", 2.0), ("out_channels", True), ("dims", 4), ("dims", "1"),
        ("width", -1), ("width", None), ("multipliers", []), ("multipliers", [1, 0]), ("multipliers", 3),
        ("block", "resnet"), ("block", None), ("blocks", 0), ("middle", 2), ("attention", "yes"),
        ("padding", ["circular", "zeros"]), ("padding", ["reflect"]), ("padding", "circular"), ("noise", 1),
        ("embedding", 12), ("embedding", 0), ("frequency", 0), ("frequency", float("nan")), ("frequency", "2"),
        ("zero_init", None), ("positions", -1), ("positions", 1.5),
        ("halvings", [3]), ("halvings", [1, 1]), ("halvings", [-1]), ("halvings", 2),
    ],
)  # fmt: skip
def test_an_unfit_field_is_named_in_one_sentence(name, value):
    with pytest.raises(ValueError, match=rf"^the network's {name} must be .*, got ") as error:
        UNetConfig.from_dict({**LEAN.to_dict(), name: value})
    assert "\n" not in str(error.value)


def test_every_field_has_a_wrong_value_above():
    tested = test_an_unfit_field_is_named_in_one_sentence.pytestmark[0].args[1]
    assert {name for name, _ in tested} == {f.name for f in fields(UNetConfig)}


def test_unknown_and_missing_fields_are_named():
    with pytest.raises(ValueError, match="no field 'depth'; its fields are in_channels"):
        UNetConfig.from_dict({**LEAN.to_dict(), "depth": 3})
    with pytest.raises(ValueError, match="needs the field 'out_channels'"):
        UNetConfig.from_dict({"in_channels": 1})
    with pytest.raises(ValueError, match="no network for 'burgers'"):
        paper("burgers")
    with pytest.raises(ValueError, match="no mini network 'huge'"):
        mini("huge")
