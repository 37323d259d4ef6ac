import math

import pytest
import torch
from toys import seeded

from biasbound.models.normalise import Normalisation

UNITS = Normalisation((1.0, -2.0), (0.5, 4.0), (0.7, 5.0), (0.1, 0.0))


@pytest.mark.parametrize(("axis", "shape"), [(1, (3, 2, 8)), (1, (3, 2, 4, 4)), (2, (3, 5, 2, 8))])
def test_decode_inverts_encode(axis, shape):
    state = torch.randn(shape, generator=seeded(), dtype=torch.float64)
    assert torch.allclose(UNITS.decode(UNITS.encode(state, axis), axis), state)
    second = UNITS.encode(state, axis).select(axis, 1)
    assert torch.allclose(second, (state.select(axis, 1) + 2) / 4)


def test_planes_spread_conditions_over_the_grid():
    """A condition that never varied has no spread and is only shifted."""
    frames, values = torch.zeros(3, 1, 2, 4, 4), torch.tensor([[0.8, 6.0]]).expand(3, 2)
    planes = UNITS.planes(values, frames)
    assert planes.shape == (3, 2, 4, 4)
    assert torch.allclose(planes, torch.ones(()), atol=1e-5)
    assert torch.equal(planes, UNITS.planes(values.reshape(3, 2, 1, 1).expand(3, 2, 4, 4), frames))
    assert Normalisation((0.0,), (1.0,)).planes(None, frames).shape == (3, 0, 4, 4)


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        (((0.0,), (0.0,)), "positive spreads"),
        (((math.nan,), (1.0,)), "finite means"),
        (((0.0, 1.0), (1.0,)), "a mean and a spread"),
        (((0.0,), (1.0,), (1.0,)), "a mean and a spread"),
    ],
)
def test_units_that_are_none_are_refused(told, complaint):
    with pytest.raises(ValueError, match=complaint):
        Normalisation(*told)
