import json
import math

import pytest
import torch
from toys import Filter, advected, seeded

import biasbound
from biasbound.core.denoise import EpsDenoiser, VDenoiser, X0Denoiser
from biasbound.core.sample import sample
from biasbound.core.schedule import log_uniform
from biasbound.models.emulator import Broken, Emulator, Normalisation, Rollout
from biasbound.models.predict import DirectPredictor, Refiner
from biasbound.nets import ConditionalNet, DirectNet, UNetConfig

SCHEDULE = log_uniform(3, 0.1, 0.9)
PLAIN = Normalisation((0.5,), (2.0,))


def unet(noise, inputs=1):
    torch.manual_seed(0)
    config = UNetConfig(
        in_channels=inputs + noise, out_channels=1, dims=1, width=8, multipliers=(1, 1), block="residual",
        attention=False, padding=("circular",), noise=bool(noise),
    )  # fmt: skip
    net = (ConditionalNet if noise else DirectNet)(config)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.15)  # also what starts at zero
    return net


def emulators():
    return {
        "eps": Emulator(EpsDenoiser(unet(1)), PLAIN, ("u",), 0.2, SCHEDULE),
        "v residual": Emulator(VDenoiser(unet(1), 0.3), PLAIN, ("u",), 0.2, SCHEDULE, "ddpm"),
        "direct": Emulator(DirectPredictor(unet(0), 1), PLAIN, ("u",), 0.2),
        "direct residual": Emulator(DirectPredictor(unet(0), 1, 0.3), PLAIN, ("u",), 0.2),
        "refiner": Emulator(Refiner(unet(1), 1, steps=2), PLAIN, ("u",), 0.2, meta={"seed": 3}),
    }


def advecting(net=None):
    """A perfect emulator of the toy flow."""
    predictor = DirectPredictor(torch.nn.Identity(), 1)
    predictor.forward = net or (lambda x: x[:, :1].roll(1, -1))
    return Emulator(predictor, PLAIN, ("u",), 1.0)


@pytest.mark.parametrize("name", emulators())
def test_a_saved_emulator_gives_the_same_bits(name, tmp_path):
    emulator = emulators()[name]
    emulator.save(tmp_path / "it")
    back = biasbound.load(tmp_path / "it")
    x0 = advected(3)[:, 0]
    before, after = (
        e.rollout(x0, 3, members=2, generator=seeded(1)).states for e in (emulator, back)
    )
    assert torch.equal(before, after)
    assert (back.kind, back.nfe, back.channels, back.dt) == (
        emulator.kind,
        emulator.nfe,
        ("u",),
        0.2,
    )
    assert (back.normalisation, back.schedule, back.meta) == (
        PLAIN,
        emulator.schedule,
        dict(emulator.meta),
    )
    assert sorted(p.name for p in (tmp_path / "it").iterdir()) == sorted(
        [
            "README.md",
            "config.json",
            "model.safetensors",
            *(["schedule.json"] if emulator.schedule else []),
        ]
    )
    with pytest.raises(ValueError, match="never replaced"):
        emulator.save(tmp_path / "it")


def test_a_network_of_ones_own_is_given_again_to_load(tmp_path):
    torch.manual_seed(0)
    emulator = Emulator(VDenoiser(Filter()), PLAIN, ("u",), 0.2, SCHEDULE)
    torch.nn.init.normal_(emulator.model.net.mix)
    emulator.save(tmp_path / "own")
    with pytest.raises(
        ValueError, match=r"not one of biasbound's; pass it as load\(folder, net=…\)"
    ):
        biasbound.load(tmp_path / "own")
    back = biasbound.load(tmp_path / "own", net=Filter())
    x = advected(2)[:, 0]
    assert torch.equal(back.step(x, generator=seeded()), emulator.step(x, generator=seeded()))


def damage(folder, how):
    config = folder / "config.json"
    weights = folder / "model.safetensors"
    content = json.loads(config.read_text())
    if how == "no config":
        config.unlink()
    elif how == "half a config":
        config.write_text(config.read_text()[:40])
    elif how == "not an emulator":
        config.write_text("{}")
    elif how == "version":
        config.write_text(json.dumps(content | {"version": 9}))
    elif how == "kind":
        config.write_text(json.dumps(content | {"kind": "magic"}))
    elif how == "no weights":
        weights.unlink()
    elif how == "half the weights":
        weights.write_bytes(weights.read_bytes()[:500])
    elif how == "one bit":
        raw = bytearray(weights.read_bytes())
        raw[-3] ^= 1
        weights.write_bytes(raw)
    elif how == "another network":
        content["network"]["width"] = 16
        config.write_text(json.dumps(content))
    elif how == "unknown network field":
        content["network"]["code"] = "import os"
        config.write_text(json.dumps(content))
    elif how == "no normalisation":
        del content["facts"]["normalisation"]
        config.write_text(json.dumps(content))
    elif how == "no schedule":
        (folder / "schedule.json").unlink()


@pytest.mark.parametrize(
    "how",
    [
        "no config", "half a config", "not an emulator", "version", "kind", "no weights", "half the weights", "one bit",
        "another network", "unknown network field", "no normalisation", "no schedule",
    ],
)  # fmt: skip
def test_a_damaged_folder_is_refused_with_one_sentence(how, tmp_path):
    emulators()["eps"].save(tmp_path / "it")
    damage(tmp_path / "it", how)
    with pytest.raises(ValueError, match="it") as refused:
        biasbound.load(tmp_path / "it")
    assert "\n" not in str(refused.value)


def test_a_step_is_the_model_in_physical_units():
    emulator = emulators()["eps"]
    x = advected(3)[:, 0]
    inside = (x - 0.5) / 2
    expected = sample(emulator.model, inside, SCHEDULE, generator=seeded(1)) * 2 + 0.5
    assert torch.allclose(emulator.step(x, generator=seeded(1)), expected, atol=1e-6)


def test_a_rollout_repeats_the_step():
    frames = advected(4, frames=6)
    rollout = advecting().rollout(frames[:, 0], 5)
    assert rollout.states.shape == (1, 4, 5, 1, 16)
    assert torch.allclose(rollout.states[0], frames[:, 1:], atol=1e-5)
    assert not rollout.broken.any()


def test_members_differ_and_do_not_hang_on_batching():
    emulator, x0 = emulators()["eps"], advected(5)[:, 0]
    whole = emulator.rollout(x0, 3, members=3, generator=seeded(4), batch=64).states
    for batch in (1, 4, 7):
        some = emulator.rollout(x0, 3, members=3, generator=seeded(4), batch=batch).states
        # Sums in another order differ in the last digits, and random weights amplify them step by step.
        assert (some - whole).abs().max() < 1e-3 * whole.abs().max()
    assert not torch.allclose(whole[0], whole[1], atol=1e-3)
    assert torch.equal(whole, emulator.rollout(x0, 3, members=3, generator=seeded(4)).states)


def test_batching_bounds_what_the_network_sees():
    largest = 0

    def net(x):
        nonlocal largest
        largest = max(largest, len(x))
        return x

    advecting(net).rollout(advected(5)[:, 0], 2, members=4, batch=6)
    assert largest == 6


def test_a_trajectory_that_breaks_is_reported_with_its_step():
    def net(x):
        return torch.where(x.abs().amax((1, 2), keepdim=True) > 100, torch.nan, 10 * x)

    x0 = torch.zeros(3, 1, 16) + 0.5
    x0[1] += 2.0  # normalised: 1, then 10, 100, 1000, NaN
    with pytest.warns(Broken, match=r"1 of 3 trajectories became non-finite, the first at step 4"):
        rollout = advecting(net).rollout(x0, 6)
    assert rollout.broken.tolist() == [[0, 4, 0]]
    assert rollout.states[0, [0, 2]].isfinite().all()
    with pytest.raises(ValueError, match="1 trajectories broke, the first at step 4"):
        rollout.mean()
    ok = Rollout(rollout.states[:, [0, 2]], rollout.broken[:, [0, 2]])
    assert ok.mean().shape == (2, 6, 1, 16)


def test_conditions_are_normalised_and_held_fixed():
    seen = []

    def net(x):
        seen.append(x[:, 1:].clone())
        return x[:, :1]

    predictor = DirectPredictor(torch.nn.Identity(), 1)
    predictor.forward = net
    emulator = Emulator(
        predictor,
        Normalisation((0.0,), (1.0,), (0.7, 5.0), (0.1, 0.0)),
        ("u",),
        1.0,
        conditions=("mach", "re"),
    )
    mach = torch.tensor([[0.7, 5.0], [0.8, 5.0]])
    emulator.rollout(advected(2)[:, 0], 3, conditions=mach)
    assert len(seen) == 3
    for planes in seen:
        assert torch.allclose(planes[:, 0], torch.tensor([[0.0], [1.0]]).expand(2, 16), atol=1e-5)
        assert not planes[:, 1].any()
    with pytest.raises(ValueError, match="takes 2 conditions, got 0"):
        emulator.step(advected(2)[:, 0])
    with pytest.raises(ValueError, match="has 1 channels, the field has 3"):
        emulator.step(torch.zeros(2, 3, 16), mach)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Emulator(X0Denoiser(Filter()), PLAIN, ("u",), 1.0), "needs a noise schedule"),
        (
            lambda: Emulator(DirectPredictor(Filter(), 1), PLAIN, ("u",), 1.0, SCHEDULE),
            "only it does",
        ),
        (lambda: Emulator(DirectPredictor(Filter(), 1), PLAIN, ("u", "v"), 1.0), "2 channels"),
        (lambda: Normalisation((0.0,), (0.0,)), "positive spreads"),
        (lambda: Normalisation((math.nan,), (1.0,)), "finite means"),
        (lambda: Normalisation((0.0, 1.0), (1.0,)), "a mean and a spread"),
        (lambda: advecting().rollout(torch.zeros(1, 1, 4), 0), "at least 1"),
    ],
)
def test_what_cannot_be_an_emulator_is_refused(make, complaint):
    with pytest.raises(ValueError, match=complaint):
        make()
