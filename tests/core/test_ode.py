"""Solvers of the probability-flow equation, against its solution for Gaussian data."""

import math
from itertools import pairwise

import pytest
import torch

from biasbound.core.ode import heun, karras, multistep

SPREAD = 0.7


def gaussian(z, sigma):
    """E[z | z + σ ε] for z ~ N(0, SPREAD²)."""
    return z * SPREAD**2 / (SPREAD**2 + sigma**2)


def solution(z, start, end):
    """A solution of the equation keeps its place in units of the spread at each level."""
    return z * math.sqrt((SPREAD**2 + end**2) / (SPREAD**2 + start**2))


@pytest.mark.parametrize(("solver", "order"), [(heun, 2), (multistep, 2), (lambda d, z, s: heun(d, z, s, len(s)), 1)])
def test_errors_fall_with_the_order_of_the_solver(solver, order):
    z = torch.ones(1, 1, 1, dtype=torch.float64)
    exact = solution(z, 5.0, 0.1)
    errors = [float((solver(gaussian, z, karras(n + 1, 0.1, 5.0)) - exact).abs()) for n in (64, 128, 256)]
    rates = [math.log2(a / b) for a, b in pairwise(errors)]
    assert rates == pytest.approx([order, order], abs=0.15)


@pytest.mark.parametrize("solver", [heun, multistep])
def test_a_chain_down_to_zero_makes_samples_of_the_data(solver):
    z = torch.linspace(-2, 2, 9, dtype=torch.float64).reshape(1, 1, 9)
    made = solver(gaussian, 80 * z, [*karras(64, 2e-3, 80.0), 0.0])
    assert torch.allclose(made, SPREAD * z, rtol=5e-3)


@pytest.mark.parametrize(
    ("solver", "levels", "calls"),
    [(heun, [3.0, 1.0, 0.2, 0.0], 5), (heun, [3.0, 0.0], 1), (multistep, [3.0, 1.0, 0.2, 0.0], 3)],
)
def test_every_call_is_counted(solver, levels, calls):
    asked = []

    def counted(z, sigma):
        asked.append(sigma)
        return gaussian(z, sigma)

    solver(counted, torch.ones(1, 1, 2), levels)
    assert len(asked) == calls
    assert set(asked) == set(levels) - {0.0}


def test_a_denoiser_that_knows_the_answer_reaches_it_from_anywhere():
    z, answer = torch.randn(2, 1, 4, generator=torch.Generator().manual_seed(0)), torch.full((2, 1, 4), 3.0)
    for solver in (heun, multistep):
        assert torch.allclose(solver(lambda z, s: answer, 50 * z, [50.0, 2.0, 0.0]), answer, atol=1e-4)


def test_karras_levels_fall_from_end_to_end_and_are_even_in_the_root():
    levels = karras(9, 2e-3, 80.0)
    assert (levels[0], levels[-1]) == (80.0, 2e-3)
    roots = [s ** (1 / 7) for s in levels]
    gaps = [a - b for a, b in pairwise(roots)]
    assert gaps == pytest.approx([gaps[0]] * 8)
    assert karras(1, 2e-3, 80.0) == [80.0]
    with pytest.raises(ValueError, match="0 < low < high"):
        karras(4, 1.0, 0.1)
