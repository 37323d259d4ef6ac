"""Memory that is predicted on a device without values is that of the same tensors with values."""

import pytest
import torch
from small_fit import DATA, MODELS, options, windows

from biasbound.core.streams import AHEAD
from biasbound.train.footprint import Footprint, of_step, of_update


def test_a_footprint_is_what_lives_at_once():
    with Footprint() as seen:
        a = torch.ones(1000)
        b = a[10:] + 1  # a view has no memory of its own
        del a
        c = b.exp_()
        assert seen.now == 4 * 990
        del b, c
    assert (seen.now, seen.peak) == (0, 4 * 1990)


def predicted(name, device, **told):
    made = MODELS[name]().to(device)
    data = windows(2 + made.recipe.unroll)
    return of_update(made, lambda i: type(DATA)(*(part.to(device) for part in data(i))), options(**told))


@pytest.mark.parametrize("told", [{}, {"optimiser": "soap"}, {"accumulate": 4}])
@pytest.mark.parametrize("name", ["eps", "proxy", "direct unrolled"])
def test_an_update_without_values_takes_what_one_with_values_takes(name, told):
    assert predicted(name, "meta", **told) == pytest.approx(predicted(name, "cpu", **told), rel=0.02)


def test_more_samples_at_once_take_more_and_parts_take_less():
    small, large = (predicted("eps", "meta", batch=size) for size in (64, 256))
    ahead = 3 * 4 * AHEAD  # every part has noise that was made at once
    assert predicted("eps", "meta", batch=256, accumulate=4) == pytest.approx(small + ahead, rel=0.02)
    assert large > small


def test_a_rollout_grows_by_its_states_alone():
    made = MODELS["eps"]().to("meta")
    x = torch.zeros(64, 1, 16, device="meta")
    few, many = (of_step(made, x, rows) for rows in (64, 1064))
    assert many - few == pytest.approx(
        1000 * 4 * 4 * 16, rel=0.01
    )  # a condition, and a frame on the device, on the host and on its way out
