"""A mask of valid points: what is under it has no part in any error or bias."""

import pytest
import torch
from toys import seeded

from biasbound.core.appendix import appendices
from biasbound.core.bias import (
    Measure,
    TwoStepTable,
    bias_curve,
    clean_error,
    residual_spectrum,
    stability,
    two_step_bias,
)
from biasbound.core.front import inference_error, optimal_schedules
from biasbound.core.mask import cleared, valid
from biasbound.core.oracle import AffineOracle
from biasbound.core.schedule import log_uniform

GRID, CHAIN = (4, 6), log_uniform(3, 0.05, 0.9)
MASK = torch.ones(GRID, dtype=torch.bool)
MASK[1:3, 2:5] = False
POINTS = torch.linspace(0.5, 2, 24, dtype=torch.float64).reshape(GRID)


def oracle(direction=POINTS, sensitivity=0.0, mask=None):
    made = AffineOracle(0.1, sensitivity, direction)
    made.mask = mask
    return made


def pairs(count=5):
    x, y = AffineOracle(0.0, 0.0).pairs((count, 2, *GRID), seeded(1))
    return x.double(), y.double()


def test_cleared_and_valid_divide_a_field():
    field = torch.randn(3, 2, *GRID, generator=seeded())
    assert cleared(field, None) is field
    assert valid(field, None) is field
    lost = torch.where(MASK, field, torch.nan)
    assert torch.equal(cleared(lost, MASK), cleared(field, MASK))
    assert torch.equal(valid(cleared(field, MASK), MASK), valid(field, MASK))
    assert bool((cleared(field, MASK)[..., ~MASK] == 0).all())
    assert valid(field, MASK).shape == (3, 2, int(MASK.sum()))


def test_the_error_of_a_masked_problem_is_that_of_its_valid_points():
    """Also where a table, a curve, a front or a sample measures it."""
    x, y = pairs()
    masked = oracle(mask=MASK)
    alone = oracle(POINTS[MASK]), valid(x, MASK), valid(y, MASK)
    expected = clean_error(*alone, 0.3).mean
    assert expected == pytest.approx(0.1 * float(POINTS[MASK].square().mean().sqrt()), rel=1e-12)
    found = [
        clean_error(masked, x, y, 0.3).mean,
        stability(masked, x, y, 0.3).clean.mean,
        TwoStepTable(dict.fromkeys(CHAIN.sigma, masked), x, y).clean_error(CHAIN.sigma[1]).mean,
        bias_curve(masked, x, y, CHAIN)[1].inference.mean,
        optimal_schedules(masked, x, y, CHAIN, 2)[2][1].mean,
        inference_error(masked, x, y, CHAIN).mean,
    ]
    assert found == pytest.approx([expected] * len(found), rel=1e-12)
    assert clean_error(oracle(), x, y, 0.3).mean != pytest.approx(expected)


def everything(denoiser, x, y):
    """All that is measured of a denoiser, as plain values."""
    how = Measure(2, generator=seeded(3))
    table = TwoStepTable(dict.fromkeys(CHAIN.sigma, denoiser), x, y, how)
    return [
        stability(denoiser, x, y, 0.3, how).as_dict(),
        two_step_bias(denoiser, x, y, 0.2, 0.5, how).as_dict("two"),
        [row.as_dict() for row in bias_curve(denoiser, x, y, CHAIN, how)],
        [bias.as_dict("two") for *_, bias in table.matrix()],
        appendices(denoiser, x, y, (0.3,), CHAIN, how).as_dict()["predicted"],
        [
            found.as_dict("error")
            for _, found in optimal_schedules(denoiser, x, y, CHAIN, 2, generator=seeded(4)).values()
        ],
    ]


def test_errors_under_the_mask_change_nothing():
    x, y = pairs()
    worse = torch.where(MASK, POINTS, 1e6)
    first, second = (everything(oracle(of, 0.2, MASK), x, y) for of in (POINTS, worse))
    assert first == second
    assert everything(oracle(POINTS, 0.2), x, y) != everything(oracle(worse, 0.2), x, y)


def test_the_spectrum_of_a_masked_error_sums_to_its_square():
    x, y = pairs()
    found = residual_spectrum(oracle(mask=MASK), x, y, 0.3).power.sum()
    assert float(found) == pytest.approx(2 * 0.01 * float(POINTS[MASK].square().sum()), rel=1e-12)


def test_three_dimensions_are_so_many_points():
    """A pointwise oracle has the same biases on a cube and on its points in a row."""
    x, y = (f.reshape(5, 1, 2, 4, 6) for f in pairs())
    cube = AffineOracle(0.1, 0.3, POINTS.expand(2, 4, 6))
    row = AffineOracle(0.1, 0.3, POINTS.expand(2, 4, 6).flatten())
    for of, other in zip(
        bias_curve(cube, x, y, CHAIN, Measure(2, generator=seeded(5))),
        bias_curve(row, x.flatten(2), y.flatten(2), CHAIN, Measure(2, generator=seeded(5))),
        strict=True,
    ):
        told = {k: v for k, v in of.as_dict().items() if v is not None}
        assert told == pytest.approx({k: v for k, v in other.as_dict().items() if v is not None}, rel=1e-9)
