"""The peers: each is exact where the answer is known, and becomes a simpler model where it should."""

import math

import pytest
import torch
from toys import batch, frame, seeded

from biasbound.core.crps import crps
from biasbound.data.batches import Batch
from biasbound.models.direct import Direct
from biasbound.models.edm import EDM
from biasbound.models.flow import Flow, clock
from biasbound.models.flowrefiner import FlowRefiner
from biasbound.models.meanflow import MeanFlow
from biasbound.models.member import Member
from biasbound.models.method import method
from biasbound.models.model import MODELS, Recipe, Settings, make
from biasbound.models.recfm import RecFM
from biasbound.models.task import Forecast
from biasbound.nets import NetSpec
from biasbound.registry import find

MEAN, SPREAD = 0.4, 0.3  # of z, whatever x is
NETS = ("unet", "fno", "dilated", "dit")
PEERS = ("edm", "flow", "recfm", "meanflow", "flowrefiner", "member", "member-crps", "member-ucrps")


def like(z, values):
    return values.reshape(-1, *[1] * (z.ndim - 1))


def time_of(told):
    """t, from what a flow's network is told."""
    return (1 - told / 10) / 2


def velocity(z_t, t):
    """E[ε − z | z_t] for z ~ N(MEAN, SPREAD²)."""
    t = like(z_t, t)
    variance = ((1 - t) * SPREAD) ** 2 + t**2
    slope = (t - (1 - t) * SPREAD**2) / variance
    return -MEAN + slope * (z_t - (1 - t) * MEAN)


def mean_velocity(z_t, r, t):
    """(t − r)^{-1} ∫ v: along the flow z keeps its place in units of the spread at each time."""
    r, t = like(z_t, r), like(z_t, t)
    spread = [(((1 - s) * SPREAD) ** 2 + s**2).sqrt() for s in (r, t)]
    z_r = (1 - r) * MEAN + spread[0] / spread[1] * (z_t - (1 - t) * MEAN)
    return (z_t - z_r) / (t - r)


def gaussian_batch(count, points=64):
    """Windows whose second frame is N(MEAN, SPREAD²), whatever the first is."""
    frames = torch.randn(count, 2, 1, points, generator=seeded(3), dtype=torch.float64)
    frames[:, 1] = MEAN + SPREAD * frames[:, 1]
    return Batch(frames, torch.zeros(count, 0, points, dtype=torch.float64))


# --- EDM ----------------------------------------------------------------------------------------------


def exact_edm(z_in, x, told):
    """F of the exact denoiser: D = (σ² MEAN + s² z_σ)/(s² + σ²)."""
    s = torch.exp(-like(z_in, told) / 2)
    q = (s**2 + 1).sqrt()
    z_s = z_in * q
    best = (s**2 * MEAN + SPREAD**2 * z_s) / (SPREAD**2 + s**2)
    return (best - z_s / q**2) * q / s


@pytest.mark.parametrize(("sampler", "calls"), [("2m", 18), ("heun", 64), ("heun", 63)])
def test_edm_samples_a_gaussian_that_its_denoiser_knows(sampler, calls):
    model = EDM(exact_edm, frame(), sampler=sampler, calls=calls, sigma_max=20.0)
    y = model.advance(torch.zeros(64, 1, 512, dtype=torch.float64), seeded())
    assert float(y.mean()) == pytest.approx(MEAN, abs=0.05)
    assert float(y.std()) == pytest.approx(SPREAD, rel=0.06)
    assert model.rows == 64 * calls


def test_edm_without_noise_is_the_identity_and_its_network_has_a_target_of_unit_size():
    z = torch.randn(5, 1, 8, generator=seeded(), dtype=torch.float64)
    model = EDM(lambda z, x, told: torch.ones_like(z), frame())
    assert torch.allclose(model.denoise(z, z, 1e-9), z, atol=1e-8)
    still = EDM(lambda z, x, told: torch.zeros_like(z), frame())
    frames = torch.randn(4000, 2, 1, 8, generator=seeded(1), dtype=torch.float64)  # of the spread that it expects
    assert float(still.loss(Batch(frames, frames[:, 0, :0]), seeded())) == pytest.approx(1.0, rel=0.03)


def test_edm_loses_nothing_but_what_noise_hides():
    """E‖D* − z‖²/c_out² = s²σ²/(s² + σ²)·(σ² + 1)/σ², averaged over ln σ."""
    model, chance = EDM(exact_edm, frame()), torch.randn(100_000, generator=seeded(4), dtype=torch.float64)
    s2 = (model.drawn[0] + model.drawn[1] * chance).exp() ** 2
    expected = float((SPREAD**2 * (s2 + 1) / (SPREAD**2 + s2)).mean())
    assert float(model.loss(gaussian_batch(4000), seeded())) == pytest.approx(expected, rel=0.03)


# --- flows --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Flow, RecFM])
def test_a_flow_with_the_exact_velocity_answers_its_mean_in_one_call_and_samples_in_many(kind):
    model = kind(lambda z, x, told: velocity(z, time_of(told)), frame(), calls=1)
    x = torch.zeros(16, 1, 256, dtype=torch.float64)
    assert torch.allclose(model.advance(x, seeded()), torch.full_like(x, MEAN))
    model.resample(calls=200)
    y = model.advance(x, seeded())
    assert (float(y.mean()), float(y.std())) == pytest.approx((MEAN, SPREAD), rel=0.04)


def test_recfm_on_whole_paths_alone_is_twice_the_flow():
    def net(z, x, told):
        return 0.3 * z + x[:, :1] + 0.1 * like(z, told)

    parts = [kind(net, frame(0.5), **more) for kind, more in ((Flow, {}), (RecFM, {"shortest": 1.0}))]
    losses = [float(model.loss(batch(32), seeded())) for model in parts]
    assert losses[1] == pytest.approx(2 * losses[0], rel=1e-6)


def test_recfm_has_no_loss_of_its_own_where_velocities_scale():
    """With v(z, τ, α) = α v(z, ατ, 1) the second term is α² times the first, and the third is 0."""

    def net(z, x, told):
        scale = x[:, -1:]
        return scale * (z - 0.2 * scale * like(z, time_of(told)))

    given = batch(200, dtype=torch.float64)
    free, bound = (float(RecFM(net, frame(), weight=w).loss(given, seeded())) for w in (0.0, 1.0))
    assert bound == pytest.approx(free, rel=1e-12)


def test_the_mean_velocity_of_a_gaussian_obeys_the_identity_of_meanflow():
    """V = u + (t − r) du/dt is the velocity itself, and one call samples the data exactly."""

    def net(z, x, told):
        t = time_of(told)
        gap = x[:, -1].mean(-1)
        return torch.where(like(z, gap == 0), velocity(z, t), mean_velocity(z, t - torch.where(gap == 0, 0.5, gap), t))

    model = MeanFlow(net, frame())
    z = torch.randn(6, 1, 5, generator=seeded(), dtype=torch.float64)
    t, r = torch.linspace(0.3, 0.9, 6, dtype=torch.float64), torch.linspace(0.0, 0.7, 6, dtype=torch.float64)
    assert torch.allclose(model.instant(z, 0 * z, r, t), velocity(z, t))
    assert model.forward_mode
    noise = torch.randn(6, 1, 5, generator=seeded(2), dtype=torch.float64)
    assert torch.allclose(model.advance(0 * z, seeded(2)), MEAN + SPREAD * noise)


class Opaque(torch.autograd.Function):
    """A square that forward mode cannot go through."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient


def test_meanflow_differentiates_a_network_that_has_no_forward_mode():
    def net(square):
        return lambda z, x, told: square(z) + 0.1 * x[:, -1:] * like(z, told)

    z = torch.randn(4, 1, 5, generator=seeded(), dtype=torch.float64)
    t, r = torch.full((4,), 0.6, dtype=torch.float64), torch.full((4,), 0.2, dtype=torch.float64)
    known, opaque = (MeanFlow(net(square), frame()) for square in (torch.square, Opaque.apply))
    assert torch.allclose(opaque.instant(z, z, r, t), known.instant(z, z, r, t), atol=1e-5)
    assert (known.forward_mode, opaque.forward_mode) == (True, False)
    assert (known.rows, opaque.rows) == (3 * 4, 4 * 4)


@pytest.mark.parametrize("name", NETS)
def test_meanflow_trains_all_our_networks_in_forward_mode_and_counts_its_passes(name):
    spec = NetSpec(name, 1, 1, (16,), ("periodic",), {"width": 16}).resolved()
    torch.manual_seed(0)
    model = method("meanflow").build(spec, Forecast(), 1.0, {})
    model.loss(batch(400), seeded()).backward()
    assert model.forward_mode
    assert model.rows / 400 == pytest.approx(model.passes(Recipe(), 1), rel=0.1)
    assert any(p.grad is not None and float(p.grad.abs().max()) > 0 for p in model.parameters())


def test_what_a_flow_is_told_falls_from_answer_to_noise():
    assert clock(torch.tensor([0.0, 0.5, 1.0])).tolist() == [10.0, 0.0, -10.0]


# --- FlowRefiner --------------------------------------------------------------------------------------


def test_flowrefiner_without_refinements_is_the_direct_model():
    def net(z, x, told):
        return 0.7 * x[:, :1] + 0.1 + 5 * z  # which sees zeros

    refiner, direct = FlowRefiner(net, frame(0.5), refinements=0), Direct(lambda x: net(0 * x, x, 0), frame(0.5))
    given = batch(8)
    assert refiner.calls == 1
    assert torch.equal(refiner.advance(given.frames[:, 0]), direct.advance(given.frames[:, 0]))
    assert float(refiner.loss(given, seeded())) == pytest.approx(float(direct.loss(given, seeded())))


@pytest.mark.parametrize("calls", [3, 5, 9])
def test_an_exact_flowrefiner_ends_at_the_truth_without_loss(calls):
    given = batch(6, dtype=torch.float64)
    x, y = given.frames.unbind(1)

    def net(z, x, told):
        sigma, tau = torch.exp(-like(z, told) / 2), x[:, -1:]
        return torch.where(sigma == 1, y, (y - z) / (sigma * (1 - tau)))

    model = FlowRefiner(net, frame())
    model.resample(calls=calls)
    assert torch.allclose(model.advance(x, seeded()), y)
    assert model.rows == 6 * calls
    assert float(model.loss(given, seeded())) < 1e-18
    with pytest.raises(ValueError, match="1 \\+ 2 N calls, not 4"):
        model.resample(calls=4)


# --- CRPS ---------------------------------------------------------------------------------------------


def test_the_crps_of_equal_members_is_the_mean_absolute_error():
    x, y = torch.randn(2, 5, 1, 8, generator=seeded())
    assert torch.allclose(crps(torch.stack([x, x, x]) - y), (x - y).abs())
    model = Member(lambda x: 0.5 * x[:, :1], frame())  # deaf to its noise
    model.recipe = Recipe(members=2)
    given = batch(6)
    expected = (0.5 * given.frames[:, 0] - given.frames[:, 1]).abs().mean()
    assert float(model.loss(given, seeded())) == pytest.approx(float(expected))


def test_the_unrolled_crps_of_equal_members_is_the_mean_absolute_error_of_their_rollout():
    model = Member(lambda x: 0.5 * x[:, :1], frame())  # deaf to its noise: after k steps a state is halved k times
    model.recipe = Recipe(2, members=2)
    given = batch(6, frames=4)
    start, *targets = given.frames.unbind(1)
    expected = sum((start / 2**k - y).abs().mean() for k, y in enumerate(targets, 1)) / 3
    assert float(model.loss(given, seeded())) == pytest.approx(float(expected))
    assert model.rows == 6 * model.passes(model.recipe, 1) == 6 * 2 * 3


@pytest.mark.parametrize("count", [2, 5])
def test_the_crps_of_a_gaussian_ensemble_is_least_at_the_right_spread(count):
    """E CRPS = E|X − Y| − ½E|X − X'| = √(2/π)(√(1 + s²) − s/√2), whatever the number of members."""
    chance = torch.randn(count + 1, 200_000, 1, 1, generator=seeded(1), dtype=torch.float64)
    scores = {s: float(crps(s * chance[1:] - chance[0]).mean()) for s in (0.5, 1.0, 2.0)}
    exact = {s: math.sqrt(2 / math.pi) * (math.sqrt(1 + s * s) - s / math.sqrt(2)) for s in scores}
    assert scores == pytest.approx(exact, abs=5e-3)
    assert min(scores, key=scores.get) == 1.0


# --- all of them --------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", PEERS)
@pytest.mark.parametrize("residual", ["", "-residual"])
def test_a_peer_learns_counts_its_passes_and_is_made_again_from_its_spec(label, residual):
    base, _, tuned = label.partition("-")
    made = method(f"{base}{residual}{'-' + tuned if tuned else ''}")
    spec = NetSpec("unet", 2, 1, (16,), ("periodic",), {"width": 8, "multipliers": [1, 1]}).resolved()
    torch.manual_seed(0)
    model = made.build(spec, Forecast(), 0.5, made.options(Settings()))
    model.recipe = made.recipe(1)
    given = batch(200, told=1, frames=2 + model.recipe.unroll)
    loss = model.loss(given, seeded())
    loss.backward()
    assert loss.isfinite()
    assert any(p.grad is not None and float(p.grad.abs().max()) > 0 for p in model.parameters())
    assert model.rows / 200 == pytest.approx(model.passes(model.recipe, model.calls), rel=0.12)
    again = make(made.model, model.net, model.frame, model.spec())
    x = model.windows(given)[0][:3]
    with torch.no_grad():
        model.rows, answer = 0, model.advance(x, seeded(1))
        assert torch.equal(again.advance(x, seeded(1)), answer)
    assert model.rows == 0 or model.rows == 3 * model.calls
    assert find(MODELS, made.model) is type(model)


@pytest.mark.parametrize(("label", "calls"), [("edm-heun-7", 7), ("edm-2", 2), ("flow-1", 1), ("recfm-2", 2)])
def test_a_sampler_of_a_label_is_that_of_the_model(label, calls):
    made = method(label)
    spec = NetSpec("unet", 1, 1, (16,), ("periodic",), {"width": 8, "multipliers": [1, 1]}).resolved()
    model = made.trained.build(spec, Forecast(), 1.0, {})
    made.sampled(model)
    model.advance(torch.zeros(2, 1, 16), seeded())
    assert model.calls == calls
    assert model.rows == 2 * calls
    again = make(made.model, model.net, model.frame, model.spec())
    assert again.calls == calls


def test_what_a_model_cannot_be_sampled_with_is_refused():
    with pytest.raises(ValueError, match="sampler is one of 2m, heun, not 'ode'"):
        method("edm-ode")
    with pytest.raises(ValueError, match="a meanflow model has no calls"):
        method("meanflow-2")
    with pytest.raises(ValueError, match="finetune is one of crps, ucrps, not 'proxy'"):
        method("member-proxy")
    with pytest.raises(ValueError, match="has the samplers"):
        EDM(None, frame(), sampler="euler")
