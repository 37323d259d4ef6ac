"""What a report shows of masked fields."""

import numpy as np
import pytest

from biasbound.report.planes import quantities
from biasbound.report.study import read_study


@pytest.mark.parametrize("rank", [1, 2])
def test_masked_points_have_no_colour_and_no_part_in_a_spectrum(run, flow, rank):
    """Whatever stands there, NaN too."""
    made = read_study(run if rank == 1 else flow)
    grid = made.test.layout.grid
    mask = np.arange(np.prod(grid)).reshape(grid) % 5 > 0
    object.__setattr__(made.test, "mask", mask)
    fields = made.truth(2, 6)[:, -1]
    other = np.where(mask, fields, np.float32(np.nan))
    assert np.array_equal(made.energy(other), made.energy(fields))
    shown, expected = quantities(made.test, other), quantities(made.test, fields)
    for name, values in shown.items():
        assert np.array_equal(values, expected[name], equal_nan=True)
        assert np.array_equal(np.isnan(values), np.broadcast_to(~mask, values.shape))
