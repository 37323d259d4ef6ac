"""Emulators: models in physical units, and the one loop that repeats them."""

import pytest
import torch
from emulators import UNITS, emulator
from toys import SCHEDULE, advected, frame, seeded

from biasbound.core.sample import sample
from biasbound.models.direct import Direct
from biasbound.models.emulator import Broken, Emulator, Rollout
from biasbound.models.normalise import Normalisation


def advecting(net=lambda x: x[:, :1].roll(1, -1)):
    """By default a perfect emulator of the toy flow."""
    return Emulator(Direct(net, frame()), UNITS, ("u",), 1.0)


def test_a_step_is_the_model_in_physical_units():
    made, x = emulator("eps"), advected(3)[:, 0]
    expected = sample(made.model, (x - 0.5) / 2, SCHEDULE, generator=seeded(1)) * 2 + 0.5
    assert torch.allclose(made.step(x, generator=seeded(1)), expected, atol=1e-6)
    assert made.nfe == len(SCHEDULE)
    assert made.schedule == SCHEDULE
    assert emulator("direct").schedule is None


def test_a_rollout_repeats_the_step():
    frames = advected(4, frames=6)
    rollout = advecting().rollout(frames[:, 0], 5)
    assert rollout.states.shape == (1, 4, 5, 1, 16)
    assert torch.allclose(rollout.states[0], frames[:, 1:], atol=1e-5)
    assert not rollout.broken.any()


def test_a_rollout_with_history_starts_from_past_frames_in_their_order():
    """x^{k+1} = 2 x^k − x^{k−1} continues every straight line."""
    slope, start = torch.randn(2, 3, 1, 1, 16, generator=seeded())
    line = start + slope * torch.arange(7).reshape(-1, 1, 1)
    extrapolating = Direct(lambda x: 2 * x[:, :1] - x[:, 1:2], frame(history=2))
    made = Emulator(extrapolating, UNITS, ("u",), 1.0)
    assert torch.allclose(made.rollout(line[:, :2], 5).states[0], line[:, 2:], atol=1e-4)
    assert torch.allclose(made.step(line[:, :2]), line[:, 2], atol=1e-5)


def test_members_differ_and_do_not_depend_on_batching():
    made, x0 = emulator("eps"), advected(3)[:, 0]
    whole = made.rollout(x0, 3, members=2, generator=seeded(4), batch=64).states
    for size in (1, 4):
        some = made.rollout(x0, 3, members=2, generator=seeded(4), batch=size).states
        # Sums in another order differ in the last digits, and random weights amplify them step by step.
        assert (some - whole).abs().max() < 1e-3 * whole.abs().max()
    assert not torch.allclose(whole[0], whole[1], atol=1e-3)
    assert torch.equal(whole, made.rollout(x0, 3, members=2, generator=seeded(4)).states)


def test_batching_bounds_what_the_network_sees():
    seen = []
    advecting(lambda x: seen.append(len(x)) or x).rollout(advected(5)[:, 0], 2, members=4, batch=6)
    assert max(seen) == 6


def test_a_trajectory_that_breaks_is_reported_with_its_step():
    def net(x):
        return torch.where(x.abs().amax((1, 2), keepdim=True) > 100, torch.nan, 10 * x)

    x0 = torch.zeros(3, 1, 16) + 0.5
    x0[1] += 2.0  # normalised: 1, then 10, 100, 1000, NaN
    with pytest.warns(Broken, match=r"1 of 3 trajectories became non-finite, the first at step 4"):
        rollout = advecting(net).rollout(x0, 6)
    assert rollout.broken.tolist() == [[0, 4, 0]]
    assert rollout.states[0, [0, 2]].isfinite().all()
    with pytest.raises(ValueError, match="1 trajectories broke, the first at step 4"):
        rollout.mean()
    ok = Rollout(rollout.states[:, [0, 2]], rollout.broken[:, [0, 2]])
    assert ok.mean().shape == (2, 6, 1, 16)


def test_conditions_are_normalised_and_held_fixed():
    seen = []
    units = Normalisation((0.0,), (1.0,), (0.7, 5.0), (0.1, 0.0))
    told = Direct(lambda x: seen.append(x[:, 1:].clone()) or x[:, :1], frame())
    made = Emulator(told, units, ("u",), 1.0, conditions=("mach", "re"))
    mach = torch.tensor([[0.7, 5.0], [0.8, 5.0]])
    made.rollout(advected(2)[:, 0], 3, conditions=mach)
    assert len(seen) == 3
    for planes in seen:
        assert torch.allclose(planes[:, 0], torch.tensor([[0.0], [1.0]]).expand(2, 16), atol=1e-5)
        assert not planes[:, 1].any()
    with pytest.raises(ValueError, match="takes 2 conditions, got 0"):
        made.step(advected(2)[:, 0])
    with pytest.raises(ValueError, match="has 1 channels, the field has 3"):
        made.step(torch.zeros(2, 3, 16), mach)


def test_what_cannot_be_an_emulator_is_refused():
    with pytest.raises(ValueError, match="2 channels need as many means"):
        Emulator(Direct(torch.nn.Identity(), frame()), UNITS, ("u", "v"), 1.0)
    with pytest.raises(ValueError, match="at least 1"):
        advecting().rollout(torch.zeros(1, 1, 4), 0)
