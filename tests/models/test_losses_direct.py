"""Losses without a chain: direct and refining networks."""

import math

import pytest
import torch
from toys import advected, seeded

from biasbound.models.losses import direct_loss, refiner_loss
from biasbound.models.predict import DirectPredictor, Refiner


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
