"""The gradient study: what must hold whatever the network."""

import json

import pytest
import torch
from torch import nn
from toys import Filter, advected, batch, diffusion, seeded, stirred

from biasbound.core.schedule import Schedule, log_uniform
from biasbound.data.batches import Batch
from biasbound.models.gradients import gradient_similarity

LEVELS = Schedule([0.2, 0.5, 0.9])


class Copy(nn.Module):
    """net(z_t, x) = x shifted by one point: the exact x₀-estimate of the advected waves, with a weight to train."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(16))

    def forward(self, z_t, x, log_snr):
        return self.gain * x.roll(1, -1)


def model(prediction="eps", schedule=LEVELS, **more):
    return diffusion(stirred(Filter(), 0.05), prediction, schedule=schedule, **more)


def by_input(rows):
    return {row.n: row for row in rows}


def test_an_exact_first_step_makes_all_gradients_one(rng):
    frames = advected(8, frames=3)
    frames[:, 2] += torch.randn(8, 1, 16, generator=rng)  # or the gradient would be zero
    made = diffusion(Copy(), "x0", schedule=log_uniform(4))
    rows = gradient_similarity(made, Batch(frames, torch.zeros(8, 0, 16)), generator=rng)
    assert [r.n for r in rows] == [0, 1, 2, 3, "full", "teacher"]
    assert [r.nfe for r in rows] == [1, 2, 3, 4, 4, 0]
    for row in rows:
        assert row.to_full == pytest.approx(1, abs=1e-6)
        assert row.to_teacher == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("transition", ["renoise", "ddim"])
def test_the_longest_proxy_is_the_full_chain_but_for_the_signal_at_the_top(transition):
    gaps = []
    for top in (0.9, 0.99, 0.9999999):
        made = model("x0", Schedule([0.3, 0.6, top]), transition=transition)
        rows = by_input(gradient_similarity(made, batch(8, frames=3), generator=seeded(1)))
        gaps.append(1 - rows[2].to_full)
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-4


def test_cosines_are_cosines_and_symmetric(rng):
    rows = by_input(gradient_similarity(model(), batch(6, frames=3), generator=rng, batch_size=2))
    for row in rows.values():
        assert -1 <= row.to_full <= 1
        assert -1 <= row.to_teacher <= 1
        assert row.batches == 3
    assert rows["full"].to_full == pytest.approx(1)
    assert rows["teacher"].to_teacher == pytest.approx(1)
    assert rows["full"].to_teacher == pytest.approx(rows["teacher"].to_full)
    assert rows[0].to_full < 1 - 1e-9  # it measures something


def test_the_noise_is_shared_so_asking_for_more_changes_nothing():
    made = model()

    def rows(ns):
        return by_input(gradient_similarity(made, batch(4, frames=3), ns, generator=seeded(3)))

    assert rows([1])[1] == rows([0, 1, 2])[1]
    assert all(p.grad is None for p in made.parameters())


def test_conditions_reach_the_network(rng):
    made = diffusion(Filter(condition=2), "eps", schedule=LEVELS)
    rows = gradient_similarity(made, batch(4, told=1, frames=3), [0], generator=rng)
    assert json.loads(json.dumps([r.as_dict() for r in rows]))[0]["to_full_stderr"] is None


def test_refusals():
    with pytest.raises(ValueError, match="no level 7"):
        gradient_similarity(model(), batch(2, frames=3), [7])
    with pytest.raises(ValueError, match="at least one window with two targets"):
        gradient_similarity(model(), batch(2, frames=2))
    frozen = diffusion(Filter().requires_grad_(False))
    with pytest.raises(ValueError, match="no trainable parameters"):
        gradient_similarity(frozen, batch(2, frames=3))
