"""Models of masked problems, and of three-dimensional ones."""

import pytest
import torch
from torch import nn
from toys import SCHEDULE, Filter, advected, seeded, stirred

from biasbound.core import losses
from biasbound.core.noise import draw
from biasbound.data.batches import Batch
from biasbound.models.emulator import Broken, Emulator, load
from biasbound.models.method import method
from biasbound.models.model import MODELS, Frame, Recipe, make, target_of
from biasbound.models.normalise import Normalisation
from biasbound.models.task import Forecast
from biasbound.nets import NetSpec
from biasbound.registry import find

MASK = torch.ones(16, dtype=torch.bool)
MASK[5:9] = False
UNITS = Normalisation((0.5,), (2.0,))
CHAIN = {"schedule": SCHEDULE, "prediction": "v"}
KINDS = {
    "diffusion": ("diffusion", (), CHAIN, Recipe()),
    "residual ddpm": ("diffusion", (0.3,), {**CHAIN, "transition": "ddpm"}, Recipe()),
    "proxy": ("diffusion", (), CHAIN, Recipe(1, "proxy", 0)),
    "proxy of two": ("diffusion", (), CHAIN, Recipe(1, "proxy", 1)),
    "full": ("diffusion", (), CHAIN, Recipe(1, "full")),
    "direct": ("direct", (), {}, Recipe(1)),
    "direct residual": ("direct", (0.3,), {}, Recipe()),
    "refiner": ("refiner", (), {"refinements": 2, "sigma_min": 0.02}, Recipe()),
    "edm": ("edm", (), {"calls": 3}, Recipe()),
    "recfm residual": ("recfm", (0.3,), {"calls": 2}, Recipe()),
    "meanflow": ("meanflow", (), {}, Recipe()),
    "flowrefiner": ("flowrefiner", (), {}, Recipe()),
}


def added(name):
    """Channels that a model adds to x."""
    return find(MODELS, KINDS[name][0]).extra(1)


def made(name, mask=MASK, net=None):
    kind, scale, options, recipe = KINDS[name]
    task = Forecast()
    frame = Frame(1, task, target_of(scale, task, 1), mask)
    model = make(kind, stirred(Filter(condition=2 + added(name))) if net is None else net, frame, options)
    model.recipe = recipe
    return model


def trained_on(model, frames):
    """(loss, gradient) of a batch of frames."""
    model.zero_grad()
    loss = model.loss(Batch(frames, frames.new_empty(len(frames), 0, *frames.shape[3:])), seeded(2))
    loss.backward()
    return loss.detach(), torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("name", KINDS)
def test_data_under_the_mask_have_no_part_in_loss_or_gradient(name):
    frames, model = advected(6, frames=3), made(name)
    loss, gradient = trained_on(model, frames)
    assert loss.isfinite()
    assert bool((gradient != 0).any())
    for junk in (7.0, torch.nan):
        other = trained_on(model, torch.where(MASK, frames, junk))
        assert torch.equal(other[0], loss)
        assert torch.equal(other[1], gradient)
    assert not torch.equal(trained_on(model, torch.where(MASK, 7.0, frames))[0], loss)


@pytest.mark.parametrize("name", ["diffusion", "residual ddpm", "proxy"])
def test_noise_under_the_mask_has_no_part_in_loss_or_gradient(name, monkeypatch):
    frames, model = advected(6, frames=3), made(name)
    loss, gradient = trained_on(model, frames)
    monkeypatch.setattr(losses, "draw", lambda y, g: torch.where(MASK, draw(y, g), -3.0))
    other = trained_on(model, frames)
    assert torch.equal(other[0], loss)
    assert torch.equal(other[1], gradient)


@pytest.mark.parametrize("name", KINDS)
def test_answers_are_zero_under_the_mask_and_know_nothing_of_it(name):
    x, model = advected(4)[:, 0], made(name)
    answer = model.advance(x, seeded(1))
    assert bool((answer[..., ~MASK] == 0).all())
    assert bool((answer[..., MASK] != 0).any())
    assert torch.equal(model.advance(torch.where(MASK, x, torch.nan), seeded(1)), answer)


@pytest.mark.parametrize("name", KINDS)
def test_the_network_is_shown_the_mask_as_the_last_channel_of_x(name):
    seen = []

    def net(*inputs):
        seen.append(inputs)
        return inputs[0][:, :1]

    model = made(name, net=net)
    model.advance(advected(3)[:, 0] + 1, seeded())
    for *noisy, x in (call[:2] if model.noisy else call[:1] for call in seen):
        assert x.shape[1] == 2 + added(name)
        assert torch.equal(x[:, -1], MASK.float().expand(3, 16))
        assert all(bool((field[..., ~MASK] == 0).all()) for field in (*noisy, x))


def emulator(model):
    return Emulator(model, UNITS, ("u",), 0.2)


def test_states_are_nan_under_the_mask_and_may_be_given_so():
    own, x0 = emulator(made("diffusion")), advected(3)[:, 0]
    rollout = own.rollout(x0, 4, members=2, generator=seeded(1))
    assert not rollout.broken.any()
    assert rollout.states[..., ~MASK].isnan().all()
    assert rollout.states[..., MASK].isfinite().all()
    again = own.rollout(torch.where(MASK, x0, torch.nan), 4, members=2, generator=seeded(1))
    assert torch.equal(again.states.nan_to_num(), rollout.states.nan_to_num())
    first = own.step(x0, generator=seeded(1))
    assert own.step(first, generator=seeded(2))[..., MASK].isfinite().all()


def test_a_start_that_is_nan_at_a_valid_point_is_refused():
    own, x0 = emulator(made("direct")), advected(3)[:, 0]
    x0[1, 0, 2] = torch.nan
    with pytest.raises(ValueError, match="NaN at 1 valid points"):
        own.step(x0)
    with pytest.raises(ValueError, match=r"the emulator's grid is \(16,\)"):
        own.step(torch.zeros(1, 1, 8))


def test_a_break_at_a_valid_point_is_still_one():
    own = emulator(made("direct", net=lambda x: x[:, :1] / 0))
    with pytest.warns(Broken, match="3 of 3"):
        own.rollout(advected(3)[:, 0], 2)


@pytest.mark.parametrize("label", ["direct-residual", "linear-v", "refiner", "persistence"])
@pytest.mark.parametrize("mask", [None, MASK])
def test_an_emulator_keeps_its_mask(tmp_path, label, mask):
    chosen, task = method(label), Forecast()
    spec = NetSpec("unet", 1 + (mask is not None), 1, (16,), ("periodic",), {"width": 8, "multipliers": [1, 1]})
    options = {"schedule": SCHEDULE, "prediction": "v"} if chosen.model == "diffusion" else {}
    saved = emulator(chosen.build(spec.resolved(), task, 0.3, options, mask))
    saved.save(tmp_path / "emulator")
    again, x0 = load(tmp_path / "emulator"), advected(2)[:, 0]
    assert (again.mask is None) == (mask is None)
    assert mask is None or torch.equal(again.mask, mask)
    states = [e.rollout(x0, 2, generator=seeded(1)).states.nan_to_num() for e in (saved, again)]
    assert torch.equal(*states)


def test_persistence_repeats_the_newest_frame_without_a_network():
    frames = advected(3, frames=4)
    kept = method("persistence").build(NetSpec("unet", 2, 1), Forecast(2), 1.0, {})
    own = emulator(kept)
    assert (own.nfe, sum(p.numel() for p in kept.parameters()), find(MODELS, "persistence").trained) == (0, 0, False)
    assert torch.allclose(own.rollout(frames[:, :2], 3).states[0], frames[:, 1:2].expand(3, 3, 1, 16), atol=1e-6)
    with pytest.raises(ValueError, match="a persistence model has no residual"):
        method("persistence-residual")


class Pointwise(nn.Module):
    """A 1 × 1 convolution in any number of dimensions, scaled by the log-SNR."""

    def __init__(self, inputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, inputs, generator=seeded(6)))

    def forward(self, first, x=None, log_snr=None):
        fields = first if x is None else torch.cat([first, x], 1)
        made = torch.einsum("oi,bi...->bo...", self.weight, fields).tanh()
        return made if log_snr is None else made * torch.sigmoid(log_snr).reshape(-1, *[1] * (made.ndim - 1))


@pytest.mark.parametrize("name", KINDS)
def test_three_dimensions_are_so_many_points(name):
    """A pointwise network learns and answers the same on a cube and on its points in a row."""
    frames = torch.randn(3, 3, 1, 2, 4, 3, generator=seeded(3))
    inputs = added(name) + (2 if find(MODELS, KINDS[name][0]).noisy else 1)
    model = made(name, None, Pointwise(inputs))
    whole, flat = trained_on(model, frames), trained_on(model, frames.flatten(3))
    assert torch.allclose(whole[0], flat[0], rtol=1e-5)
    assert torch.allclose(whole[1], flat[1], rtol=1e-4, atol=1e-6)
    states = emulator(model).rollout(frames[:, 0], 3, members=2, generator=seeded(1)).states
    assert states.shape == (2, 3, 3, 1, 2, 4, 3)
    row = emulator(model).rollout(frames[:, 0].flatten(2), 3, members=2, generator=seeded(1)).states
    assert torch.allclose(states.flatten(4), row, atol=1e-5)
