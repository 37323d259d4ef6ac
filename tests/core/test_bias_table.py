"""Two-step biases between any two levels, and the transition that a chain makes them with."""

import math
from collections import deque
from typing import get_args

import pytest
import torch
from toys import exact, seeded

from biasbound.core import bias
from biasbound.core.bias import Measure, two_step_bias
from biasbound.core.bias.curve import LevelNoise, chain_terms
from biasbound.core.noise import coefficients
from biasbound.core.oracle import GaussianOracle
from biasbound.core.sample import Transition, denoise_chain
from biasbound.core.schedule import Schedule, log_uniform


def test_the_table_agrees_with_two_step_bias():
    """Different checkpoints for the two steps, as in Phase 2."""
    levels = log_uniform(4, 0.1, 0.9).sigma
    checkpoints = {s: GaussianOracle(0.2 + 0.2 * i) for i, s in enumerate(levels)}
    x, y = GaussianOracle(0.3).pairs((64, 1, 256), seeded())
    table = bias.TwoStepTable(checkpoints, x, y, Measure(generator=seeded(1), batch_size=24))
    for to, start, measured in table.matrix():
        direct = two_step_bias(
            checkpoints[to], x, y, to, start, Measure(generator=seeded(2)), first=checkpoints[start]
        )
        assert abs(measured.mean - direct.mean) < 4 * math.hypot(measured.stderr, direct.stderr)
        assert measured.pairs == 64
    direct = bias.clean_error(checkpoints[levels[0]], x, y, levels[0], Measure(generator=seeded(3)))
    kept = table.clean_error(levels[0])
    assert abs(kept.mean - direct.mean) < 4 * math.hypot(kept.stderr, direct.stderr)


@pytest.mark.parametrize(("to", "start", "complaint"), [(0.5, 0.1, "steps down"), (0.1, 0.3, "not among")])
def test_the_table_refuses_what_it_does_not_hold(to, start, complaint):
    x = torch.zeros(2, 1, 4)
    table = bias.TwoStepTable(dict.fromkeys((0.1, 0.5), exact), x, x)
    with pytest.raises(ValueError, match=complaint):
        table(to, start)


# --- the transition -------------------------------------------------------------------------------


LOW, HIGH = 0.2, 0.7
every_transition = pytest.mark.parametrize("transition", get_args(Transition))


class Remembering:
    """A non-linear denoiser that keeps what it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, y_t, x, sigma):
        self.asked.append((sigma, y_t))
        return torch.tanh(y_t * (1 - sigma) + 0.5 * x)


def one_step_of_the_chain(denoiser, x, y_from, eps_to, transition):
    chain = denoise_chain(denoiser, x, y_from, Schedule([LOW, HIGH]), noise=lambda _: eps_to, transition=transition)
    return deque(chain, maxlen=1)[0].y_est


@every_transition
def test_two_step_biases_make_the_step_of_the_chain(transition):
    """A single bias, a table and a curve: the second input of each is what the chain makes of the first."""
    x, y = torch.randn(2, 3, 1, 16, generator=seeded(), dtype=torch.float64)
    how, single, tabled = Measure(1, transition=transition, generator=seeded(1)), Remembering(), Remembering()
    measured = two_step_bias(single, x, y, LOW, HIGH, how)
    table = bias.TwoStepTable(dict.fromkeys((LOW, HIGH), tabled), x, y, how)
    for found, denoiser in ((measured, single), (table(LOW, HIGH), tabled)):
        a, s = coefficients(LOW, y)
        (y_from,) = [y_t for sigma, y_t in denoiser.asked if sigma == HIGH]
        at_low = [y_t for sigma, y_t in denoiser.asked if sigma == LOW]
        second, clean = at_low if denoiser is single else at_low[::-1]
        made = one_step_of_the_chain(denoiser, x, y_from, (clean - a * y) / s, transition)
        assert torch.allclose(denoiser(second, x, LOW), made, rtol=1e-9, atol=1e-9)
        ratio = bias.error_norm(made - y) / bias.error_norm(denoiser(clean, x, LOW) - y)
        assert found.mean == pytest.approx(ratio.mean().item())
    noise = LevelNoise(y, seeded(1))  # draws in the order of the single bias
    *_, low = chain_terms(Remembering(), x, y, Schedule([LOW, HIGH]), noise, transition)
    ratio = bias.error_norm(low.two_step - y) / bias.error_norm(low.clean - y)
    assert measured.mean == pytest.approx(ratio.mean().item())


@every_transition
def test_the_chain_of_a_curve_is_that_of_the_sampler(transition):
    x, y = torch.randn(2, 3, 1, 16, generator=seeded(), dtype=torch.float64)
    schedule, noises = log_uniform(4, 0.1, 0.9), torch.randn(4, 3, 1, 16, generator=seeded(2), dtype=torch.float64)
    terms = chain_terms(Remembering(), x, y, schedule, noises.__getitem__, transition)
    chain = denoise_chain(Remembering(), x, noises[3], schedule, noise=noises.__getitem__, transition=transition)
    for term, step in zip(terms, chain, strict=True):
        assert torch.equal(term.inference, step.y_est)


def test_without_noise_between_levels_a_perfect_chain_keeps_its_error():
    """ddim, y = x: the implied noise of an exact estimate is the true one, so every step is clean."""
    x = torch.randn(4, 1, 16, generator=seeded(), dtype=torch.float64)
    oracle = GaussianOracle(1e-6)
    found = two_step_bias(oracle, x, x, LOW, HIGH, Measure(transition="ddim", shared=True, generator=seeded(1)))
    assert found.mean == pytest.approx(1, rel=1e-6)
