"""PDE-Refiner: the levels that it visits are those that it learns."""

import math

import pytest
import torch
from toys import batch, frame, seeded

from biasbound.data.batches import Batch
from biasbound.models.model import make
from biasbound.models.refiner import Refiner


@pytest.mark.parametrize("steps", [1, 3, 4])
def test_the_refiner_visits_at_inference_the_levels_that_it_trains(steps):
    told = []

    def net(z_t, x, log_snr):
        told.extend(log_snr.tolist())
        return torch.zeros_like(z_t)

    refiner = Refiner(net, frame(), refinements=steps, sigma_min=1e-2)
    refiner.loss(Batch(torch.zeros(500, 2, 1, 4), torch.zeros(500, 0, 4)), seeded())
    trained = set(told)
    told.clear()
    refiner.advance(torch.zeros(1, 1, 4), seeded())
    assert set(told) == trained
    assert len(told) == len(trained) == steps + 1 == refiner.calls
    levels = [1e-2 ** (k / steps) for k in range(steps + 1)]
    assert told == pytest.approx([-2 * math.log(s) for s in levels], abs=1e-5)


@pytest.mark.parametrize("scale", [(), 0.25])
def test_an_exact_refiner_refines_to_the_truth_without_loss(scale):
    """Its first call sees zeros and answers z; later calls see z + σ_k ε and answer ε."""
    given = batch(6, dtype=torch.float64)
    x, y = given.frames.unbind(1)
    target = frame(scale).target

    def net(z_t, x, log_snr):
        z, sigma = target.encode(y, x), torch.exp(-log_snr / 2).reshape(-1, 1, 1)
        return torch.where(sigma == 1, z, (z_t - z) / sigma)

    refiner = Refiner(net, frame(scale), refinements=3)
    assert refiner.loss(given, seeded()).item() < 1e-20
    assert torch.allclose(refiner.advance(x, seeded(1)), y)


def test_the_spec_makes_the_refiner_again():
    made = Refiner(lambda z_t, x, told: 0.3 * z_t + x, frame(0.5), refinements=4, sigma_min=3e-3)
    again = make("refiner", made.net, made.frame, made.spec())
    assert again.levels == made.levels
    x = batch(3).frames[:, 0]
    assert torch.equal(again.advance(x, seeded()), made.advance(x, seeded()))


@pytest.mark.parametrize("bad", [{"refinements": 0}, {"sigma_min": 0.0}, {"sigma_min": 1.0}])
def test_a_refiner_refuses_impossible_levels(bad):
    with pytest.raises(ValueError, match="refiner needs"):
        Refiner(lambda *a: a[0], frame(), **bad)
