"""The same network, levels and noise give the same sample here and in the neighbours' loops."""

import json
import math
import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from azula.denoise import KarrasDenoiser
from azula.noise import CosineSchedule, VESchedule
from azula.sample import DDIMSampler
from calling import called
from diffusers import DDIMScheduler, DDPMScheduler, EulerDiscreteScheduler, FlowMatchEulerDiscreteScheduler
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import seeds

from biasbound.core.denoise import NetDenoiser
from biasbound.core.interop import azula, diffusers, edm
from biasbound.core.interop.scheduler import LadderScheduler
from biasbound.core.interop.text import TEXTS
from biasbound.core.noise import coefficients, log_snr, renoise
from biasbound.core.sample import sample
from biasbound.core.schedule import Schedule, linear, log_uniform

PREDICTIONS = {"epsilon": "eps", "sample": "x0", "v_prediction": "v"}
TRANSITIONS = st.sampled_from(["renoise", "ddpm", "ddim"])


@st.composite
def chains(draw):
    """σ_0 from 1e-5 to 1e-1 and up to seven levels above it."""
    lowest = 10 ** draw(st.floats(-5, -1))
    jumps = draw(st.lists(st.floats(0.05, 0.95), min_size=0, max_size=7))
    ratios = [lowest]
    for jump in jumps:
        ratios.append(ratios[-1] * (1 + 10 * jump))
    return [r / math.hypot(1, r) for r in ratios if r < 40]


def net(z_t, x, log_snr):
    """A non-linear network that depends on all that it is given."""
    return torch.tanh(0.7 * z_t - 0.4 * x + 0.05 * log_snr[:, None, None])


class Told:
    """Noise in the order of its use, for every loop alike: ŷ_T first, then what each transition draws."""

    def __init__(self, seed):
        self.seed = seed
        made = torch.Generator().manual_seed(seed + 1)
        self.x = torch.randn(3, 1, 8, generator=made, dtype=torch.float64)
        torch.manual_seed(seed)
        self.y_T = torch.randn_like(self.x)

    def ours(self, denoiser, schedule, transition):
        torch.manual_seed(self.seed)
        return sample(denoiser, self.x, schedule, transition=transition)

    def __enter__(self):
        torch.manual_seed(self.seed)
        return torch.randn_like(self.x)

    def __exit__(self, *problem):
        pass


def close(found, wanted):
    return torch.allclose(found, wanted, rtol=1e-6, atol=1e-6)


@settings(deadline=None, max_examples=60)
@given(chains(), TRANSITIONS, st.sampled_from(sorted(PREDICTIONS)), seeds)
def test_a_scheduler_of_diffusers_samples_as_we_do(levels, transition, prediction, seed):
    schedule = Schedule(levels)
    told, denoiser = Told(seed), NetDenoiser(net, PREDICTIONS[prediction])
    at = log_snr(torch.tensor(levels, dtype=torch.float64))
    scheduler = schedule.to_diffusers(transition, prediction=prediction)
    assert isinstance(scheduler, DDIMScheduler if transition == "ddim" else LadderScheduler)
    scheduler.set_timesteps(len(schedule))
    with told as y:
        for t in scheduler.timesteps:
            output = net(scheduler.scale_model_input(y, t), told.x, at[t].expand(3))
            y = scheduler.step(output, t, y).prev_sample
    assert close(y, told.ours(denoiser, schedule, transition))


@settings(deadline=None, max_examples=40)
@given(chains(), TRANSITIONS, seeds)
def test_azulas_sampler_samples_as_we_do(levels, transition, seed):
    schedule = Schedule(levels)
    told, denoiser = Told(seed), NetDenoiser(net, "v")
    sampler = azula.sampler_of(azula.as_azula(denoiser, schedule.sigma), schedule.sigma, transition)
    with told as y:
        found = sampler(y, cond=told.x)
    assert close(found, told.ours(denoiser, schedule, transition))


@settings(deadline=None, max_examples=40)
@given(chains(), TRANSITIONS, seeds)
def test_a_loop_of_k_diffusion_samples_as_we_do(levels, transition, seed):
    """`sample_euler`, `sample_euler_ancestral` and `sample_lcm`, as their formulas say."""
    schedule = Schedule(levels)
    told, denoiser = Told(seed), NetDenoiser(net, "v")
    model, ratios = edm.as_edm(denoiser, told.x), schedule.to_edm()
    with told as y:
        y = y * (1 + ratios[0] ** 2).sqrt()
        for now, below in pairwise(ratios):
            denoised = model(y, now * y.new_ones(len(y)))
            down, up = below, torch.zeros(())
            if transition == "ddpm":
                up = below * ((now**2 - below**2) / now**2).sqrt()
                down = (below**2 - up**2).clamp(min=0).sqrt()
            if transition == "renoise":
                down, up = torch.zeros(()), below
            y = y + (y - denoised) / now * (down - now)
            if below > 0 and transition != "ddim":
                y = y + up * torch.randn_like(y)
    assert close(y, told.ours(denoiser, schedule, transition))


@settings(deadline=None, max_examples=40)
@given(chains())
def test_schedules_come_back_from_every_library(levels):
    schedule = Schedule(levels)

    def same(found, tolerance=1e-9):
        assert found.sigma == pytest.approx(schedule.sigma, rel=tolerance)

    same(Schedule.from_betas(schedule.to_betas()))
    same(Schedule.from_edm(schedule.to_edm()))
    same(Schedule.from_diffusers(schedule.to_diffusers("ddim")))
    same(Schedule.from_diffusers(schedule.to_diffusers()), 0)
    same(Schedule.from_azula(schedule.to_azula(), len(schedule)), 0)


def test_a_ladder_saved_by_diffusers_comes_back_exactly(tmp_path):
    trained = DDPMScheduler(prediction_type="v_prediction")
    made = log_uniform(5, 1e-5).to_diffusers("ddpm", like=trained)
    made.save_pretrained(tmp_path)
    back = LadderScheduler.from_pretrained(tmp_path)
    assert (back.schedule, back.transition, back.rule) == (made.schedule, made.transition, made.rule)
    assert torch.equal(back.timesteps, made.timesteps)


def test_a_ladder_tells_a_network_the_timesteps_of_its_training():
    trained = DDPMScheduler()
    every = Schedule.from_diffusers(trained)
    some = Schedule([every.sigma[t] for t in (3, 40, 700)])
    assert some.to_diffusers(like=trained).timesteps.tolist() == pytest.approx([700, 40, 3])
    between = Schedule([0.5 * (every.sigma[3] + every.sigma[4])]).to_diffusers(like=trained)
    assert 3 < float(between.timesteps[0]) < 4
    trained.set_timesteps(10)
    assert len(Schedule.from_diffusers(trained)) == 10
    beyond = Schedule([1e-5, 1e-4, 0.5]).to_diffusers(like=trained)  # two levels that are told alike
    y = torch.ones(1, 1, 4)
    steps = [beyond.step(torch.zeros_like(y), t, y).pred_original_sample[0, 0, 0].item() for t in beyond.timesteps]
    assert steps == pytest.approx([1 / math.sqrt(1 - s * s) for s in (0.5, 1e-4, 1e-5)], rel=1e-7)


def test_noise_is_added_as_we_do(rng):
    schedule = log_uniform(4, 0.01)
    y, eps = torch.randn(2, 3, 1, 8, generator=rng)
    made = schedule.to_diffusers().add_noise(y, eps, torch.tensor([0, 3, 1]))
    levels = torch.tensor([schedule.sigma[t] for t in (0, 3, 1)], dtype=torch.float64)
    assert torch.allclose(made, renoise(y, levels, eps))


def test_the_levels_of_diffusers_schedulers_are_those_of_their_tables():
    plain = Schedule.from_diffusers(DDPMScheduler(num_train_timesteps=20, beta_start=25e-4, beta_end=0.5))
    assert plain.sigma == pytest.approx(linear(20).sigma, rel=1e-6)
    euler = EulerDiscreteScheduler()
    euler.set_timesteps(7)
    assert Schedule.from_diffusers(euler).to_edm().tolist() == pytest.approx(euler.sigmas.tolist(), rel=1e-6)
    with pytest.raises(ValueError, match="mixes signal and noise linearly"):
        Schedule.from_diffusers(FlowMatchEulerDiscreteScheduler())


def test_the_levels_of_azulas_schedules_are_where_its_samplers_call():
    for own in (CosineSchedule(), VESchedule()):
        times = DDIMSampler(None, steps=8, dtype=torch.float64).timesteps[:-1]
        alpha, sigma = own(times)
        ratios = Schedule.from_azula(own, 8).to_edm()[:-1]
        assert torch.allclose(ratios, sigma / alpha, rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_time_of_azula_in_any_precision_means_its_level(dtype):
    schedule = log_uniform(37, 1e-5)
    alpha, sigma = schedule.to_azula()(torch.linspace(0, 1, 38, dtype=dtype))
    assert sigma.tolist() == pytest.approx([0, *schedule.sigma], rel=1e-6)
    assert torch.allclose(alpha**2 + sigma**2, torch.ones_like(alpha))


def test_their_denoisers_are_ours_and_back(rng):
    x, y_t = torch.randn(2, 3, 1, 8, generator=rng, dtype=torch.float64)
    denoiser, sigma = NetDenoiser(net, "v"), 0.3
    wanted = denoiser(y_t, x, sigma)
    levels = torch.full((3,), sigma, dtype=torch.float64)
    there = edm.denoiser_of(lambda noisy, x, ratio: edm.as_edm(denoiser, x)(noisy, ratio))
    assert torch.allclose(there(y_t, x, sigma), wanted)
    assert torch.allclose(there(y_t, x, levels), wanted)

    trained = DDPMScheduler(prediction_type="v_prediction", num_train_timesteps=200)
    table = Schedule.from_diffusers(trained)

    def unet(field, timestep):
        levels = torch.tensor([table.sigma[round(float(t))] for t in timestep], dtype=torch.float64)
        a, s = coefficients(levels, field)
        return net(field[:, :1], field[:, 1:], 2 * (a / s).log().flatten())

    known = table.sigma[50]
    assert torch.allclose(diffusers.denoiser_of(unet, trained)(y_t, x, known), denoiser(y_t, x, known))


def test_a_missing_library_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "azula.noise", None)
    with pytest.raises(ValueError, match="exchange with azula needs azula: install it with pip install azula"):
        log_uniform(3).to_azula()
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(ValueError, match=r"install it with pip install 'biasbound\[interop\]'"):
        log_uniform(3).to_diffusers()


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_every_exported_file_holds_the_levels(name, tmp_path, capsys):
    schedule = log_uniform(5, 0.02)
    schedule.save(tmp_path / "s.json")
    out = tmp_path / "out"
    code, _, _ = called(["schedule", "export", tmp_path / "s.json", "--format", name, "--out", out], capsys)
    assert code == 0
    text = out.read_text()
    back = {
        "txt": lambda: Schedule(text.split()),
        "csv": lambda: Schedule([line.split(",")[1] for line in text.splitlines()[1:]]),
        "json": lambda: Schedule.load(out),
        "betas": lambda: Schedule.from_betas(json.loads(text)["trained_betas"]),
        "diffusers": lambda: Schedule.from_diffusers(DDIMScheduler.from_config(json.loads(text))),
        "edm": lambda: Schedule.from_edm(json.loads(text)["sigmas"]),
        "k-diffusion": lambda: Schedule.from_edm(json.loads(text)),
        "azula": lambda: Schedule(json.loads(text)["sigma"][1:]),
    }[name]()
    assert back.sigma == pytest.approx(schedule.sigma, rel=1e-12)


def test_an_export_that_float32_would_spoil_says_so(tmp_path, capsys):
    log_uniform(4, 1e-4).save(tmp_path / "s.json")
    argv = ["schedule", "export", tmp_path / "s.json", "--format", "diffusers", "--out", tmp_path / "o.json"]
    assert "use Schedule.load" in called(argv, capsys)[1]


def test_the_programs_of_the_page_run(tmp_path, rng):
    text = (Path(__file__).parents[2] / "docs/interop.md").read_text()
    first, for_diffusers, for_azula, *_ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    x, y = torch.randn(2, 4, 1, 8, generator=rng)

    class Backbone(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.size = torch.nn.Parameter(torch.ones(()))

        def forward(self, x_t, t, cond):
            return self.size * net(x_t, cond, -2 * t)

    known = {"x": x, "y": y, "model": KarrasDenoiser(Backbone(), CosineSchedule()), "scheduler": DDPMScheduler()}
    known["unet"] = lambda field, t: torch.tanh(field[:, :1] - field[:, 1:])
    for program in (first, for_diffusers, for_azula):
        with torch.no_grad():
            exec(program, known)  # noqa: S102 - our own page
    assert len(known["found"].levels) == 8
