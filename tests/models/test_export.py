"""An exported step gives the emulator's answers, for any batch, with the noise as an input."""

import json

import onnxruntime
import pytest
import torch
from calling import called, refused
from own_networks import Convolution
from toys import advected, diffusion, frame, seeded, stirred

from biasbound.core.noise import GivenNoise, draw
from biasbound.core.schedule import Schedule
from biasbound.models.emulator import Emulator
from biasbound.models.export import TOLERANCE, _off
from biasbound.models.model import Frame, make, target_of
from biasbound.models.normalise import Normalisation
from biasbound.models.task import Forecast
from biasbound.models.tasks.reconstruct import Reconstruct
from biasbound.models.tasks.superresolve import Superresolve
from biasbound.nets import NetSpec
from biasbound.nets.foreign import adopt

pytestmark = pytest.mark.long
UNITS = Normalisation((0.5,), (2.0,))
CHAIN = {"schedule": Schedule([0.1, 0.9])}


def small(kind, grid, own=None, conditions=0, net=Convolution, **options):
    """An emulator of random weights, with the smallest U-Net or a network of one's own."""
    own = own or frame(0.3)
    inputs = own.task.inputs(1) + conditions + (own.mask is not None)
    spec = NetSpec("unet", inputs, 1, grid, ("periodic",) * len(grid), {"width": 8, "multipliers": [1]})
    spec = spec.resolved() if net is None else NetSpec("own", inputs, 1, grid)
    noisy = kind != "direct"
    built = stirred(spec.build(noisy) if net is None else adopt(net, spec, noisy), 0.15)
    units = Normalisation((0.5,), (2.0,), (1.0,) * conditions, (0.5,) * conditions)
    names = tuple(f"c{i}" for i in range(conditions))
    return Emulator(make(kind, built, own, options).eval(), units, ("u",), 0.2, names)


def inputs(emulator, batch):
    """Random ones; a program is traced with a batch of two."""
    past = emulator.model.frame.task.past
    grid = emulator.model.net.spec.grid
    x = torch.randn(batch, *([] if past == 1 else [past]), 1, *grid, generator=seeded(1))
    found = {"x": x, "noise": torch.randn(emulator.nfe, batch, 1, *grid, generator=seeded(2))}
    if emulator.conditions:
        found["conditions"] = torch.randn(batch, len(emulator.conditions), *grid, generator=seeded(3))
    return found


def answered(emulator, told):
    return emulator.step(told["x"], told.get("conditions"), GivenNoise(told["noise"]))


MASK = torch.ones(16, dtype=torch.bool).index_fill(0, torch.tensor([2, 3]), False)
MASKED = Frame(1, Forecast(2), mask=MASK)
KINDS = {  # with how many fields of noise
    "direct U-Net": (lambda: small("direct", (8, 8), conditions=1, net=None), 0),
    "U-Net": (lambda: small("diffusion", (16,), conditions=1, net=None, prediction="scaled", **CHAIN), 2),
    "masked ddim": (lambda: small("diffusion", (16,), MASKED, prediction="v", transition="ddim", **CHAIN), 1),
    "ddpm": (lambda: small("diffusion", (8, 8), frame(), transition="ddpm", **CHAIN), 2),
    "refiner": (lambda: small("refiner", (16,), refinements=1), 1),
    "edm": (lambda: small("edm", (16,), calls=2), 1),
}


@pytest.mark.parametrize("name", sorted(KINDS.keys() - {"ddpm"}))
def test_a_program_of_torch_equals_the_step(name, tmp_path):
    make, draws = KINDS[name]
    emulator, path = make(), tmp_path / "step.pt2"
    emulator.export(path)
    extra = {"biasbound.json": ""}
    program = torch.export.load(path, extra_files=extra).module()
    assert ("noise" in json.loads(extra["biasbound.json"])["shapes for a batch of 2"]) == (draws > 0)
    for batch in (1, 3):
        told = inputs(emulator, batch)
        given = {**told, "noise": told["noise"][:draws]} if draws else {k: v for k, v in told.items() if k != "noise"}
        wanted = answered(emulator, told)
        assert torch.allclose(program(**given), wanted, rtol=1e-5, atol=1e-5, equal_nan=True)


OBSERVED = {
    "superresolve": Superresolve(3, "subsample", (12, 9), (True, False)),
    "fixed sensors": Reconstruct(5, "random", grid=(15,)),
    "drawn sensors": Reconstruct(20, "drawn", 0.1, grid=(12, 9), periodic=(True, False)),
}


@pytest.mark.parametrize("name", OBSERVED)
def test_a_program_answers_observations_as_the_step_does(name, tmp_path):
    """Sensors that are drawn from a frame are no part of a program: there, NaN says what is not known."""
    task, path = OBSERVED[name], tmp_path / "step.pt2"
    emulator = small("diffusion", task.grid, Frame(1, task, target_of((0.3,), task, 1)), conditions=1, **CHAIN)
    emulator.export(path)
    told = inputs(emulator, 3)
    if name != "superresolve":  # without gaps where sensors are fixed
        gaps = torch.rand(3, 1, *task.grid, generator=seeded(4)) < (0.7 if name == "drawn sensors" else 0.0)
        told["x"] = told["x"].masked_fill(gaps, torch.nan)
    made = torch.export.load(path).module()(**told)
    assert made.isfinite().all()
    assert torch.allclose(made, answered(emulator, told), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("answer", [torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 2.001])])
def test_an_answer_that_is_lost_or_off_is_seen(answer):
    assert not _off(answer, torch.tensor([1.0, 2.0])) < TOLERANCE
    assert _off(torch.tensor([torch.nan, 1.0]), torch.tensor([torch.nan, 1.0])) == 0


def test_onnx_equals_the_step(tmp_path):
    """Of a direct U-Net: tests/test_docs.py."""
    emulator, path = KINDS["ddpm"][0](), tmp_path / "step.onnx"
    emulator.export(path, "onnx")
    session = onnxruntime.InferenceSession(path)
    for batch in (1, 3):
        told = inputs(emulator, batch)
        (found,) = session.run(None, {name: value.numpy() for name, value in told.items()})
        assert torch.allclose(torch.from_numpy(found), answered(emulator, told), rtol=1e-5, atol=1e-5)
    assert json.loads(session.get_modelmeta().custom_metadata_map["biasbound"])["channels"] == ["u"]


def test_given_noise_is_what_would_be_drawn():
    emulator = small("diffusion", (16,), **CHAIN)
    x = advected(3)[:, 0]
    generator = seeded(5)
    eps = torch.stack([draw(x, generator) for _ in range(emulator.nfe)])
    assert torch.equal(emulator.step(x, generator=seeded(5)), emulator.step(x, generator=GivenNoise(eps)))
    with pytest.raises(ValueError, match="field 2 of shape"):
        emulator.step(x, generator=GivenNoise(eps[:1]))


def test_the_command_writes_a_program_or_says_why_not(tmp_path, capsys):
    emulator = small("direct", (16,), net=None)
    emulator.save(tmp_path / "e")
    assert called(["export", tmp_path / "e", "--out", tmp_path / "s.pt2"], capsys)[0] == 0
    assert (tmp_path / "s.pt2").stat().st_size > 0
    refused(
        ["export", tmp_path / "e", "--out", tmp_path / "t", "--grid", "8x8"], capsys, "--grid is a number of points"
    )
    refused(["export", tmp_path / "none", "--out", tmp_path / "t"], capsys, "not an emulator")
    with pytest.raises(ValueError, match="exported as torch or onnx, not as 'jax'"):
        emulator.export(tmp_path / "t", "jax")
    unknown = Emulator(diffusion(lambda z, x, s: z + x), UNITS, ("u",), 0.2)
    with pytest.raises(ValueError, match="does not say which grid"):
        unknown.export(tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_a_network_that_looks_at_values_is_refused_in_one_sentence(tmp_path):
    def looks(z_t, x, log_snr):
        return z_t + x if z_t.mean() > 0 else z_t

    with pytest.raises(ValueError, match="this emulator's network cannot be exported"):
        Emulator(diffusion(looks), UNITS, ("u",), 0.2).export(tmp_path / "t", grid=(16,))
    assert list(tmp_path.iterdir()) == []
