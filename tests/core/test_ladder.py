"""The grid of a search, its measurements and the ladder on it."""

import math

import pytest
import torch
from toys import seeded

from biasbound.core.bias import two_step_bias
from biasbound.core.denoise import NetDenoiser
from biasbound.core.ladder import grid, ladder, measure_of
from biasbound.core.noise import log_snr
from biasbound.core.options import SearchOptions
from biasbound.core.oracle import AffineOracle
from biasbound.core.schedule import log_uniform


@pytest.mark.parametrize("over", ["ratio", "sigma"])
def test_the_grid_is_the_log_uniform_schedule_of_its_options(over):
    options = SearchOptions(levels=9, sigma_min=0.02, sigma_max=0.9, over=over)
    assert grid(options) == log_uniform(9, 0.02, 0.9, over)
    step = {"sigma": math.log, "ratio": log_snr}[over]
    marks = torch.tensor([step(s) for s in grid(options).sigma])
    assert torch.allclose(marks.diff(), marks.diff()[0], rtol=1e-4)


def test_each_round_has_noise_of_its_own_and_always_the_same():
    like, options = torch.zeros(2, 1, 4), SearchOptions(seed=3, draws=5)
    noises = [measure_of(options, "ddim", shift).noise(like) for shift in (0, 0, 1)]
    assert torch.equal(noises[0], noises[1])
    assert not torch.equal(noises[0], noises[2])
    how = measure_of(options, "ddim", batch_size=7)
    assert (how.draws, how.transition, how.batch_size) == (5, "ddim", 7)


@pytest.mark.parametrize(("prediction", "rule"), [("x0", "error"), ("v", "sigma"), ("eps", "sigma")])
def test_auto_starts_a_ladder_where_the_prediction_says(prediction, rule):
    """x₀-prediction is stable at every level, and the lowest says nothing."""
    denoiser = NetDenoiser(lambda z_t, x, log_snr: 0.1 * z_t, prediction)
    assert denoiser.rule.start == rule
    x, y = torch.randn(2, 16, 1, 8, generator=seeded())
    levels = dict.fromkeys((0.1, 0.5, 0.99), denoiser)
    found = {
        start: ladder(levels, x, y, SearchOptions(tau=50.0, start=start), start=denoiser.rule.start)[0]
        for start in ("auto", "sigma", "error")
    }
    assert found["auto"].sigma == found[rule].sigma
    assert found["auto"].meta["start"] == rule


def test_a_ladder_is_measured_with_the_transition_of_its_chain():
    oracle = AffineOracle(lambda s: 0.3 * s, 0.05)
    x, y = (v.double() for v in oracle.pairs((32, 1, 64), seeded()))
    levels, options = dict.fromkeys((0.1, 0.5, 0.9), oracle), SearchOptions(draws=2, tau=50.0)
    for transition in ("renoise", "ddpm", "ddim"):
        _, table = ladder(levels, x, y, options, transition=transition)
        direct = two_step_bias(oracle, x, y, 0.1, 0.5, measure_of(options, transition))
        other = two_step_bias(oracle, x, y, 0.1, 0.5, measure_of(options, "renoise"))
        measured = table(0.1, 0.5)
        assert abs(measured.mean - direct.mean) < 4 * math.hypot(measured.stderr, direct.stderr)
        if transition == "ddim":
            assert abs(measured.mean - other.mean) > 4 * math.hypot(measured.stderr, other.stderr)


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ({"tau": 0.9}, "tau bounds a bias"),
        ({"tau_explore": math.inf}, "tau_explore bounds a bias"),
        ({"levels": 1}, "at least 2 levels"),
        ({"sigma_min": 0.5, "sigma_max": 0.4}, "0 < sigma_min < sigma_max < 1"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"patience": 0}, "patience must be at least 1"),
    ],
)
def test_options_that_cannot_be_are_refused(bad, complaint):
    with pytest.raises(ValueError, match=complaint):
        SearchOptions(**bad)
