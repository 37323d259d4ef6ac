"""The gradient study: what must hold whatever the network."""

import json

import pytest
import torch
from torch import nn
from toys import Filter, advected

from biasbound.core.denoise import EpsDenoiser, X0Denoiser
from biasbound.core.schedule import Schedule, log_uniform
from biasbound.models.gradients import gradient_similarity


class Copy(nn.Module):
    """net(z_t, x) = x shifted by one point: the exact x₀-estimate of the advected waves, with a weight to train."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(16))

    def forward(self, z_t, x, log_snr):
        return self.gain * x.roll(1, -1)


def trained_a_little(rng):
    """Weights that are neither zero nor exact."""
    net = Filter()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=rng))
    return net


def by_input(rows):
    return {row.n: row for row in rows}


def test_an_exact_first_step_makes_all_gradients_one(rng):
    frames = advected(8, frames=3)
    frames[:, 2] += torch.randn(8, 1, 16, generator=rng)  # or the gradient would be zero
    rows = gradient_similarity(X0Denoiser(Copy()), frames, log_uniform(4), generator=rng)
    assert [r.n for r in rows] == [0, 1, 2, 3, "full", "teacher"]
    assert [r.nfe for r in rows] == [1, 2, 3, 4, 4, 0]
    for row in rows:
        assert row.to_full == pytest.approx(1, abs=1e-6)
        assert row.to_teacher == pytest.approx(1, abs=1e-6)


def test_the_longest_proxy_is_the_full_chain_but_for_the_signal_at_the_top(rng):
    denoiser, frames = X0Denoiser(trained_a_little(rng)), advected(8, frames=3)
    gaps = []
    for top in (0.9, 0.99, 0.9999999):
        schedule = Schedule([0.3, 0.6, top])
        state = torch.Generator().manual_seed(1)
        rows = by_input(gradient_similarity(denoiser, frames, schedule, generator=state))
        gaps.append(1 - rows[2].to_full)
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-4


def test_cosines_are_cosines_and_symmetric(rng):
    denoiser, frames = EpsDenoiser(trained_a_little(rng)), advected(6, frames=3)
    rows = by_input(
        gradient_similarity(
            denoiser, frames, Schedule([0.2, 0.5, 0.9]), generator=rng, batch_size=2
        )
    )
    for row in rows.values():
        assert -1 <= row.to_full <= 1
        assert -1 <= row.to_teacher <= 1
        assert row.batches == 3
    assert rows["full"].to_full == pytest.approx(1)
    assert rows["teacher"].to_teacher == pytest.approx(1)
    assert rows["full"].to_teacher == pytest.approx(rows["teacher"].to_full)
    assert rows[0].to_full < 1 - 1e-9  # it measures something


def test_the_noise_is_shared_so_asking_for_more_changes_nothing(rng):
    denoiser, frames = EpsDenoiser(trained_a_little(rng)), advected(4, frames=3)

    def rows(ns):
        state = torch.Generator().manual_seed(3)
        schedule = Schedule([0.2, 0.5, 0.9])
        return by_input(gradient_similarity(denoiser, frames, schedule, ns, generator=state))

    assert rows([1])[1] == rows([0, 1, 2])[1]
    assert all(p.grad is None for p in denoiser.parameters())


def test_conditions_reach_the_network(rng):
    denoiser = EpsDenoiser(Filter(condition=2))
    frames, extra = advected(4, frames=3), torch.randn(4, 1, 16, generator=rng)
    rows = gradient_similarity(
        denoiser, frames, Schedule([0.2, 0.9]), [0], conditions=extra, generator=rng
    )
    assert json.loads(json.dumps([r.as_dict() for r in rows]))[0]["to_full_stderr"] is None


def test_refusals(rng):
    denoiser, frames = EpsDenoiser(Filter()), advected(2, frames=3)
    with pytest.raises(ValueError, match="no level 7"):
        gradient_similarity(denoiser, frames, Schedule([0.2, 0.9]), [7])
    with pytest.raises(ValueError, match="at least one window"):
        gradient_similarity(denoiser, frames[:0], Schedule([0.2, 0.9]))
    frozen = EpsDenoiser(Filter().requires_grad_(False))
    with pytest.raises(ValueError, match="no trainable parameters"):
        gradient_similarity(frozen, frames, Schedule([0.2, 0.9]))
