"""Emulators as folders: what was saved comes back, in every version; what is damaged or foreign runs nothing."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from emulators import KINDS, UNITS, emulator
from safetensors.torch import load_file
from torch import nn
from toys import SCHEDULE, Filter, advected, diffusion, seeded, stirred

import biasbound
from biasbound.core.noise import coefficients, draw, log_snr
from biasbound.core.schedule import Schedule
from biasbound.models.emulator import Emulator
from biasbound.nets import ConditionalNet, DirectNet, UNetConfig

RECORDS = Path(__file__).parents[2] / "results/archive/version-1"


def start(name):
    return advected(3, frames=2) if "history" in name else advected(3)[:, 0]


@pytest.mark.parametrize("name", KINDS)
def test_a_saved_emulator_gives_the_same_bits(name, tmp_path):
    made, folder = emulator(name), tmp_path / "it"
    made.save(folder)
    back = biasbound.load(folder)
    before, after = (e.rollout(start(name), 3, members=2, generator=seeded(1)).states for e in (made, back))
    assert torch.equal(before, after)
    for fact in ("nfe", "channels", "dt", "conditions", "normalisation", "schedule", "meta"):
        assert getattr(back, fact) == getattr(made, fact)
    assert type(back.model) is type(made.model)
    assert back.model.spec() == made.model.spec()  # the transition too
    assert back.model.frame.task == made.model.frame.task
    files = {"README.md", "config.json", "model.safetensors"} | ({"schedule.json"} if made.schedule else set())
    assert {p.name for p in folder.iterdir()} == files
    with pytest.raises(ValueError, match="never replaced"):
        made.save(folder)


def own_network(folder):
    made = Emulator(diffusion(stirred(Filter()), scale=0.5), UNITS, ("u",), 0.2)
    made.save(folder)
    return made


@pytest.mark.parametrize("net", [Filter(), Filter, partial(Filter, points=16), "toys:Filter"])
def test_a_network_of_ones_own_is_given_again_to_load(net, tmp_path):
    made = own_network(tmp_path / "own")
    back = biasbound.load(tmp_path / "own", net=net)
    x = advected(2)[:, 0]
    assert torch.equal(back.step(x, generator=seeded()), made.step(x, generator=seeded()))
    back.save(tmp_path / "again")
    assert biasbound.load(tmp_path / "again", net=net).model.state_dict().keys() == made.model.state_dict().keys()


def test_an_emulator_says_which_network_is_missing(tmp_path):
    own_network(tmp_path / "own")
    said = r"own was trained with a network of its author's, toys:Filter; load it with biasbound.load\(folder, net=Filter\)"
    with pytest.raises(ValueError, match=said):
        biasbound.load(tmp_path / "own")
    assert 'load("this folder", net=Filter)  # toys:Filter' in (tmp_path / "own/README.md").read_text()
    changed("network", value=None)(tmp_path / "own")  # as earlier releases left it
    with pytest.raises(ValueError, match=r"a network of its author's; load it with biasbound.load\(folder, net=…\)"):
        biasbound.load(tmp_path / "own")
    assert isinstance(biasbound.load(tmp_path / "own", net=Filter).model.net, Filter)


@pytest.mark.parametrize(
    ("net", "complaint"),
    [
        (
            Filter(points=8),
            r"net.mix has shape \(2, 2, 16, 16\) in model.safetensors and \(2, 2, 8, 8\) in the network",
        ),
        (nn.Conv1d(3, 1, 3), "has no tensor net.mix"),
        (nn.Bilinear(1, 1, 1), r"Bilinear.forward\(input1, input2\) cannot be called"),
        (3, "neither a module nor what makes one: it is of type int"),
        ("nowhere:Filter", "cannot import nowhere:Filter"),
    ],
    ids=["shape", "names", "call", "number", "module"],
)
def test_another_network_is_refused_with_one_sentence(net, complaint, tmp_path):
    own_network(tmp_path / "own")
    with pytest.raises(
        ValueError, match=f"own cannot be read with the network that was given: .*{complaint}"
    ) as refused:
        biasbound.load(tmp_path / "own", net=net)
    assert "\n" not in str(refused.value)


# --- what is damaged ----------------------------------------------------------------------------------


def changed(*path, value=None, remove=False):
    """A damage of config.json: set or remove what stands at this path."""

    def damage(folder):
        file = folder / "config.json"
        whole = inner = json.loads(file.read_text())
        for key in path[:-1]:
            inner = inner[key]
        if remove:
            del inner[path[-1]]
        else:
            inner[path[-1]] = value
        file.write_text(json.dumps(whole))

    return damage


def one_bit(folder):
    weights = folder / "model.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[-3] ^= 1
    weights.write_bytes(raw)


def cut(name, size):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


DAMAGES = {
    "no config": lambda folder: (folder / "config.json").unlink(),
    "half a config": cut("config.json", 40),
    "not an emulator": lambda folder: (folder / "config.json").write_text("{}"),
    "a list": lambda folder: (folder / "config.json").write_text("[]"),
    "version": changed("version", value=9),
    "first version without its fields": changed("version", value=1),
    "model": changed("model", value="magic"),
    "model option": changed("options", "code", value="import os"),
    "transition": changed("options", "transition", value="euler"),
    "prediction": changed("options", "prediction", value="w"),
    "task": changed("task", "name", value="magic"),
    "task option": changed("task", "history", value=0),
    "task option of another type": changed("task", "history", value=1.5),
    "no task": changed("task", "name", remove=True),
    "network": changed("network", "name", value="magic"),
    "another network": changed("network", "options", "width", value=16),
    "unknown network option": changed("network", "options", "code", value="import os"),
    "residual": changed("residual", value=[-1.0]),
    "no normalisation": changed("facts", "normalisation", remove=True),
    "channels": changed("facts", "channels", value=["u", "v"]),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "half the weights": cut("model.safetensors", 500),
    "one bit": one_bit,
    "no schedule": lambda folder: (folder / "schedule.json").unlink(),
    "half a schedule": cut("schedule.json", 30),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "it"
    emulator("v residual ddpm").save(folder)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    """A copy to damage."""
    made = tmp_path / "it"
    made.mkdir()
    for file in whole.iterdir():
        (made / file.name).write_bytes(file.read_bytes())
    return made


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_folder_is_refused_with_one_sentence(how, folder):
    DAMAGES[how](folder)
    with pytest.raises(ValueError, match=str(folder)) as refused:
        biasbound.load(folder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "place", [("model",), ("network", "name"), ("task", "name"), ("options", "prediction")], ids=".".join
)
@pytest.mark.parametrize("name", ["intruder:thing", "os.path:join", "biasbound.models.direct:Direct"])
def test_a_name_in_a_folder_imports_nothing(place, name, folder, tmp_path, monkeypatch):
    (tmp_path / "intruder.py").write_text("thing = print\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    imported = []
    monkeypatch.setattr("importlib.import_module", lambda name, *rest: imported.append(name))
    changed(*place, value=name)(folder)
    said = "would have to be imported, which no loaded file may ask for"
    with pytest.raises(ValueError, match=f"its author's, {name}; load" if place[0] == "network" else said):
        biasbound.models.emulator.load(folder)
    assert imported == []
    assert "intruder" not in sys.modules


# --- emulators of version 1 ---------------------------------------------------------------------------


def record(path):
    """(folder, config, network) of an emulator from the record, with its network built and filled by hand."""
    folder = RECORDS / path / "seed-0/emulator"
    config = json.loads((folder / "config.json").read_text())
    assert config["version"] == 1
    network = UNetConfig.from_dict(config["network"])
    net = (ConditionalNet if network.noise else DirectNet)(network)
    net.load_state_dict({k.removeprefix("net."): v for k, v in load_file(folder / "model.safetensors").items()})
    return folder, config, net


def units(config, state):
    """(state in the network's units, a function back)."""
    told = config["facts"]["normalisation"]
    mean, std = (torch.tensor(told[k]).reshape(-1, *[1] * (state.ndim - 2)) for k in ("mean", "std"))
    return (state - mean) / std, lambda inner: inner * std + mean


def waves(points=64):
    return advected(2, points=points)[:, 0]


@torch.no_grad()
@pytest.mark.parametrize("path", ["ks/03-train/unet", "ks/03-train/unet-residual"])
def test_a_direct_emulator_of_version_1(path):
    folder, config, net = record(path)
    x, out = units(config, waves())
    expected = net(x) if config["residual"] is None else x + config["residual"] * net(x)
    assert torch.allclose(biasbound.load(folder).step(waves()), out(expected), atol=1e-6)


@torch.no_grad()
def test_a_diffusion_emulator_of_version_1():
    """v-prediction of the residual: z_t = (y_t − a x)/q, y_est = x + r (a r/q z_t − s/q v)."""
    folder, config, net = record("ks/03-train/adaptive-v-residual")
    (r,), levels = config["residual"], Schedule.load(folder / "schedule.json").sigma
    x, out = units(config, waves())
    generator = seeded(1)
    y_t = draw(x, generator)
    for sigma, below in zip(levels[::-1], [*levels[-2::-1], None], strict=True):
        a, s = coefficients(sigma, x)
        q = (a**2 * r**2 + s**2) ** 0.5
        z_t = (y_t - a * x) / q
        told = torch.full((2,), log_snr(sigma)) + 2 * torch.tensor(r).log()
        y_est = x + r * (a * r / q * z_t - s / q * net(z_t, x, told))
        if below is not None:
            a, s = coefficients(below, x)
            y_t = a * y_est + s * draw(x, generator)
    made = biasbound.load(folder)
    assert torch.allclose(made.step(waves(), generator=seeded(1)), out(y_est), atol=1e-5)
    assert (made.nfe, made.model.transition) == (config["facts"]["nfe"], "renoise")


@torch.no_grad()
def test_a_refiner_of_version_1():
    folder, config, net = record("ks/03-train/refiner")
    x, out = units(config, waves())
    steps, generator = config["steps"], seeded(1)
    z = net(torch.zeros_like(x), x, torch.zeros(2))
    for k in range(1, steps + 1):
        sigma = config["sigma_min"] ** (k / steps)
        z_k = z + sigma * draw(z, generator)
        z = z_k - sigma * net(z_k, x, -2 * torch.full((2,), sigma).log())
    assert torch.allclose(biasbound.load(folder).step(waves(), generator=seeded(1)), out(z), atol=1e-5)


@torch.no_grad()
def test_conditions_of_version_1():
    folder, config, net = record("transonic/03-train/unet")
    state, mach = torch.rand(1, 4, 16, 32, generator=seeded()), torch.tensor([[0.8]])
    x, out = units(config, state)
    told = config["facts"]["normalisation"]
    plane = ((mach - told["condition_mean"][0]) / told["condition_std"][0]).reshape(1, 1, 1, 1).expand(1, 1, 16, 32)
    expected = out(net(torch.cat([x, plane], 1)))
    assert torch.allclose(biasbound.load(folder).step(state, mach), expected, atol=1e-6)


def test_an_emulator_of_version_1_is_saved_in_the_present_one(tmp_path):
    old = biasbound.load(RECORDS / "ks/03-train/adaptive-v-residual/seed-0/emulator")
    old.save(tmp_path / "new")
    assert json.loads((tmp_path / "new/config.json").read_text())["version"] == 2
    new = biasbound.load(tmp_path / "new")
    assert torch.equal(*(e.step(waves(), generator=seeded(1)) for e in (old, new)))
    assert (new.schedule, new.meta) == (old.schedule, old.meta)
    assert len(SCHEDULE) != old.nfe == new.nfe
