"""The direct model: one network call, and errors of answers that are fed back."""

import pytest
import torch
from torch import nn
from toys import advected, batch, frame, seeded

from biasbound.models.direct import Direct
from biasbound.models.model import Recipe


class Times(nn.Module):
    def __init__(self, gain):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(gain, dtype=torch.float64))

    def forward(self, x):
        return self.gain * x[:, :1]


def direct(gain, scale=(), unroll=0, pushforward=False):
    made = Direct(Times(gain), frame(scale))
    made.recipe = Recipe(unroll, detach=pushforward)
    return made


def windows(frames=2, told=0):
    return batch(4, told, frames=frames, dtype=torch.float64)


@pytest.mark.parametrize("pushforward", [False, True])
def test_unrolling_feeds_answers_back(pushforward):
    given = windows(4)
    x0 = given.frames[:, 0]
    expected = sum((x0 * 0.5**j - given.frames[:, j]).square().mean() for j in (1, 2, 3)) / 3
    assert direct(0.5, unroll=2, pushforward=pushforward).loss(given, seeded()).item() == pytest.approx(
        expected.item()
    )


def test_pushforward_cuts_the_gradient_between_frames():
    given, w = windows(3), 0.7
    x0, x1, x2 = given.frames.unbind(1)
    cut = (2 * (w * x0 - x1) * x0).mean() / 2 + (2 * (w * (w * x0) - x2) * (w * x0)).mean() / 2
    whole = (2 * (w * x0 - x1) * x0).mean() / 2 + (2 * (w**2 * x0 - x2) * 2 * w * x0).mean() / 2
    for pushforward, expected in ((True, cut), (False, whole)):
        model = direct(w, unroll=1, pushforward=pushforward)
        (slope,) = torch.autograd.grad(model.loss(given, seeded()), model.net.gain)
        assert slope.item() == pytest.approx(expected.item())


def test_a_residual_model_answers_with_an_increment_and_counts_errors_in_its_units():
    given = windows()
    x, y = given.frames.unbind(1)
    assert torch.equal(direct(1.0).advance(x), x)
    assert direct(1.0).loss(given, seeded()).item() == pytest.approx((x - y).square().mean().item())
    model = direct(1.0, 0.1)
    assert torch.allclose(model.advance(x), 1.1 * x)
    assert model.loss(given, seeded()).item() == pytest.approx(((1.1 * x - y) / 0.1).square().mean().item())


def test_conditions_and_history_stay_behind_the_newest_frame():
    """ŷ = x^k for history 2 with a channel that informs: the loss is that of persistence, and the channel stays."""
    given, seen = windows(5, told=1), []
    model = Direct(lambda x: seen.append(x) or x[:, :1], frame(history=2))
    model.recipe = Recipe(2)
    errors = [(given.frames[:, 1] - given.frames[:, j]).square().mean() for j in (2, 3, 4)]
    assert model.loss(given, seeded()).item() == pytest.approx(sum(errors).item() / 3)
    newest = given.frames[:, 1]
    assert torch.equal(seen[0], torch.cat([newest, given.frames[:, 0], given.conditions], 1))
    assert torch.equal(seen[1], torch.cat([newest, newest, given.conditions], 1))


def test_one_call_per_step():
    assert direct(1.0).calls == 1
    assert direct(1.0).spec() == {}
    assert Direct.passes(Recipe(7), 1) == 8
    assert not Direct.noisy
    assert direct(1.0).advance(advected(2, dtype=torch.float64)[:, 0]).shape == (2, 1, 16)
