import math
from itertools import pairwise

import pytest
import torch
from toys import Filter, advected

from biasbound.denoise import EpsDenoiser, VDenoiser, X0Denoiser
from biasbound.losses import (
    diffusion_loss,
    direct_loss,
    full_unrolled_loss,
    proxy_unrolled_loss,
    refiner_loss,
    unrolled_loss,
)
from biasbound.noise import Schedule, ShardGenerator, alpha_bar, draw, log_uniform, renoise
from biasbound.oracle import GaussianOracle
from biasbound.predict import DirectPredictor, Refiner
from biasbound.sample import proxy_estimate, sample


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def exact(wrapper, truth):
    """A denoiser of this parameterisation whose estimate is `truth(x)` whatever its input."""

    def net(z_t, x, told):
        s = torch.sigmoid(-told).sqrt().reshape(-1, 1, 1)
        a = torch.sigmoid(told).sqrt().reshape(-1, 1, 1)
        z = truth(x)
        return wrapper(net).objective(z, (z_t - a * z) / s, a, s)

    return wrapper(net)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 0.9])
def test_the_exact_posterior_mean_is_at_the_known_minimum(sigma):
    """ε-prediction from E[y | y_t] has the loss ᾱ r²(1 − k)/σ² = k; no network can have less."""
    oracle = GaussianOracle(0.5)

    def net(z_t, x, told):
        return (z_t - math.sqrt(alpha_bar(sigma)) * oracle(z_t, x, sigma)) / sigma

    x, y = oracle.pairs((200, 1, 500), seeded())
    loss = diffusion_loss(EpsDenoiser(net), x, y, Schedule([sigma]), generator=seeded(1)).item()
    k = oracle.gain(sigma)
    assert loss == pytest.approx(k, rel=4 * math.sqrt(2 / x.numel()))
    worse = diffusion_loss(
        EpsDenoiser(lambda *a: 0.9 * net(*a)), x, y, Schedule([sigma]), generator=seeded(1)
    )
    assert worse.item() > loss


@pytest.mark.parametrize("wrapper", [EpsDenoiser, X0Denoiser, VDenoiser])
def test_an_exact_denoiser_has_no_loss(wrapper):
    frames = advected(8)
    denoiser = exact(wrapper, lambda x: x.roll(1, -1))
    x = frames[:, 0].double()
    loss = diffusion_loss(
        denoiser, x, x.roll(1, -1), log_uniform(5, 0.01, 0.9), generator=seeded()
    )
    assert loss.item() < 1e-20


def test_levels_are_drawn_uniformly_and_weights_multiply_their_level():
    y = torch.zeros(4000, 1, 2)
    schedule = log_uniform(4)
    told = []
    denoiser = X0Denoiser(lambda z_t, x, log_snr: told.append(log_snr) or torch.ones_like(z_t))
    plain = diffusion_loss(denoiser, y, y, schedule, generator=seeded())
    assert plain.item() == 1
    counts = told[0].unique(return_counts=True)[1]
    assert len(counts) == 4
    assert (counts - 1000).abs().max() < 4 * math.sqrt(4000 * 0.25 * 0.75)
    weighted = diffusion_loss(
        denoiser, y, y, schedule, generator=seeded(), weights=(4.0, 0.0, 0.0, 0.0)
    )
    top = (told[0] == told[0].max()).double().mean()
    assert weighted.item() == pytest.approx(4 * top.item())
    with pytest.raises(ValueError, match="3 weights do not fit 4"):
        diffusion_loss(denoiser, y, y, schedule, weights=(1.0, 1.0, 1.0))


@pytest.mark.parametrize("unroll", [0, 1, 3])
@pytest.mark.parametrize("n", [0, 2])
def test_the_proxy_loss_of_an_exact_denoiser_is_teacher_forcing(unroll, n):
    """An exact proxy is the next frame, so each term is L_diff on true frames: here with a loss that is not zero."""
    frames = advected(16, frames=unroll + 2, dtype=torch.float64)
    schedule = log_uniform(3, 0.1, 0.9)
    denoiser = exact(VDenoiser, lambda x: x.roll(1, -1))
    denoiser.target = lambda y, x, sigma, eps: (
        y + eps
    )  # not what the network learned: the loss is not zero
    got = proxy_unrolled_loss(
        denoiser, frames, schedule, n=n, detach=True, generator=(g := seeded(3))
    )
    expected, same = torch.zeros(()), seeded(3)
    for j, (x, y) in enumerate(pairwise(frames.unbind(1))):
        expected = expected + diffusion_loss(denoiser, x, y, schedule, generator=same)
        if j < unroll:
            for _ in range(n + 1):
                draw(y, same)  # the proxy's noise, which an exact denoiser forgets
    assert got.item() == pytest.approx(expected.item(), rel=1e-9)
    assert torch.equal(torch.randn(2, generator=g), torch.randn(2, generator=same))


def test_gradients_of_the_full_proxy_are_those_of_full_unrolling():
    """Same noise, same start: P⁽ᵀ⁾ is the chain."""
    torch.manual_seed(0)
    frames, schedule = advected(4, frames=3, dtype=torch.float64), log_uniform(4, 0.2, 0.95)
    denoiser = VDenoiser(Filter().double())
    torch.nn.init.normal_(denoiser.net.mix, std=0.2)
    gradients = []
    for proxy in (True, False):
        generator = seeded(5)

        def estimate(x, y, proxy=proxy, generator=generator):
            if proxy:
                return proxy_estimate(
                    denoiser, x, y, schedule, n=schedule.top, generator=generator
                )
            start = renoise(y, schedule.sigma[-1], draw(y, generator))
            return sample(denoiser, x, schedule, start=start, generator=generator)

        loss = unrolled_loss(denoiser, frames, schedule, estimate, generator=generator)
        gradients.append(torch.autograd.grad(loss, list(denoiser.parameters())))
    for a, b in zip(*gradients, strict=True):
        assert torch.equal(a, b)
    assert any(g.abs().max() > 1e-6 for g in gradients[0])


@pytest.mark.parametrize("loss", [proxy_unrolled_loss, full_unrolled_loss])
def test_detach_changes_the_gradient_and_not_the_value(loss):
    torch.manual_seed(0)
    frames, schedule = advected(4, frames=3, dtype=torch.float64), log_uniform(3, 0.2, 0.95)
    denoiser = VDenoiser(Filter().double())
    torch.nn.init.normal_(denoiser.net.mix, std=0.2)
    values, slopes = [], []
    for detach in (False, True):
        value = loss(denoiser, frames, schedule, detach=detach, generator=seeded(1))
        values.append(value.item())
        slopes.append(torch.autograd.grad(value, denoiser.net.mix)[0])
    assert values[0] == values[1]
    assert not torch.allclose(slopes[0], slopes[1])


def test_direct_unrolling_feeds_predictions_back():
    frames = advected(4, frames=4, dtype=torch.float64)
    half = DirectPredictor(torch.nn.Identity(), 1)
    half.forward = lambda x: 0.5 * x
    x0 = frames[:, 0]
    expected = sum((x0 * 0.5**j - frames[:, j]).square().mean() for j in (1, 2, 3)) / 3
    for pushforward in (False, True):
        assert direct_loss(half, frames, pushforward=pushforward).item() == pytest.approx(
            expected.item()
        )


def test_pushforward_cuts_the_gradient_between_frames():
    frames = advected(4, frames=3, dtype=torch.float64)
    weight = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    predictor = DirectPredictor(torch.nn.Identity(), 1)
    predictor.forward = lambda x: weight * x
    x0, x1, x2 = frames.unbind(1)
    w = weight.item()
    cut = (2 * (w * x0 - x1) * x0).mean() / 2 + (2 * (w * (w * x0) - x2) * (w * x0)).mean() / 2
    whole = (2 * (w * x0 - x1) * x0).mean() / 2 + (2 * (w**2 * x0 - x2) * 2 * w * x0).mean() / 2
    for pushforward, expected in ((True, cut), (False, whole)):
        (slope,) = torch.autograd.grad(
            direct_loss(predictor, frames, pushforward=pushforward), weight
        )
        assert slope.item() == pytest.approx(expected.item())


def test_a_residual_direct_model_counts_errors_in_its_own_units():
    frames = advected(4, dtype=torch.float64)
    plain, residual = (
        DirectPredictor(torch.nn.Identity(), 1),
        DirectPredictor(torch.nn.Identity(), 1, 0.1),
    )
    x, y = frames.unbind(1)
    assert direct_loss(plain, frames).item() == pytest.approx((x - y).square().mean().item())
    expected = ((x + 0.1 * x - y) / 0.1).square().mean().item()
    assert direct_loss(residual, frames).item() == pytest.approx(expected)


# --- PDE-Refiner --------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 3, 4])
def test_the_refiner_visits_at_inference_the_levels_that_it_trains(steps):
    told = []

    def net(z_t, x, log_snr):
        told.extend(log_snr.tolist())
        return torch.zeros_like(z_t)

    refiner = Refiner(net, 1, steps=steps, sigma_min=1e-2)
    x = torch.zeros(500, 1, 4)
    refiner_loss(refiner, x, x, generator=seeded())
    trained = set(told)
    told.clear()
    refiner(x[:1], seeded())
    assert set(told) == trained
    assert len(told) == len(trained) == steps + 1
    levels = [1e-2 ** (k / steps) for k in range(steps + 1)]
    assert told == pytest.approx([-2 * math.log(s) for s in levels], abs=1e-5)


def test_an_exact_refiner_refines_to_the_truth_without_loss():
    """Its first call sees zeros and answers y; later calls see y + σ_k ε and answer ε."""
    y = advected(6, dtype=torch.float64)[:, 1]

    def net(z_t, x, log_snr):
        sigma = torch.exp(-log_snr / 2).reshape(-1, 1, 1)
        return torch.where(sigma == 1, x, (z_t - x) / sigma)

    for residual in (None, 0.25):
        condition = y if residual is None else torch.zeros_like(y)

        def scaled(z_t, x, log_snr, residual=residual):
            return net(z_t, y if residual is None else y / residual, log_snr)

        refiner = Refiner(scaled, 1, steps=3, residual=residual)
        assert refiner_loss(refiner, condition, y, generator=seeded()).item() < 1e-20
        assert torch.allclose(refiner(condition, seeded(1)), y)


@pytest.mark.parametrize(
    "bad", [{"steps": 0}, {"sigma_min": 0.0}, {"sigma_min": 1.0}, {"residual": -1.0}]
)
def test_a_refiner_refuses_impossible_levels(bad):
    with pytest.raises(ValueError, match=r"refiner needs|residual scale"):
        Refiner(lambda *a: a[0], 1, **bad)


# --- one batch, divided among processes ---------------------------------------------------------------


def test_shards_of_a_batch_meet_the_noise_of_the_whole():
    torch.manual_seed(0)
    frames, schedule = advected(8, frames=3, dtype=torch.float64), log_uniform(4)
    denoiser = VDenoiser(Filter().double())
    torch.nn.init.normal_(denoiser.net.mix, std=0.2)
    whole = proxy_unrolled_loss(denoiser, frames, schedule, n=1, generator=seeded(9)).item()
    parts = [
        proxy_unrolled_loss(
            denoiser, part, schedule, n=1, generator=ShardGenerator(rank, 2, 9)
        ).item()
        for rank, part in enumerate(frames.chunk(2))
    ]
    assert sum(parts) / 2 == pytest.approx(whole, rel=1e-12)
