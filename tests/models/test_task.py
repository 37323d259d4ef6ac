"""What is given and what is wanted of a window."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import seeded

from biasbound.models.task import TASKS, Forecast, Task

histories = st.sampled_from([1, 3])


def window(history, unroll, told, channels, grid):
    frames = torch.randn(2, history + 1 + unroll, channels, *grid, generator=seeded())
    return frames, torch.randn(2, told, *grid, generator=seeded(1))


every_window = given(
    history=histories,
    unroll=st.integers(0, 2),
    told=st.integers(0, 2),
    channels=st.integers(1, 3),
    grid=st.sampled_from([(4,), (3, 2)]),
)


@every_window
def test_a_forecast_gives_the_past_and_wants_the_future(history, unroll, told, channels, grid):
    task = Forecast(history)
    frames, planes = window(history, unroll, told, channels, grid)
    x, targets = task.given(frames, planes), task.wanted(frames)
    past = frames[:, :history].flip(1).flatten(1, 2)  # the newest first
    assert torch.equal(x, torch.cat([past, planes], 1))
    assert torch.equal(torch.stack(targets, 1), frames[:, history:])
    assert torch.equal(task.guess(x, channels), frames[:, history - 1])
    assert x.shape[1] == task.inputs(channels) + told
    assert len(targets) == 1 + unroll
    assert (task.past, frames.shape[1]) == (history, task.window(unroll) + 1)


@every_window
def test_what_follows_is_given_by_the_shifted_window(history, unroll, told, channels, grid):
    task = Forecast(history)
    frames, planes = window(history, unroll, told, channels, grid)
    x = task.given(frames, planes)
    for j, y in enumerate(task.wanted(frames), 1):
        x = task.follow(x, y)
        if j <= unroll:
            assert torch.equal(x, task.given(frames[:, j:], planes))
        assert torch.equal(task.guess(x, channels), y)


@every_window
def test_the_future_is_not_looked_at(history, unroll, told, channels, grid):
    task = Forecast(history)
    frames, planes = window(history, unroll, told, channels, grid)
    assert torch.equal(task.given(frames, planes), task.given(frames[:, :history], planes))


def test_a_task_is_a_value_by_a_name():
    assert TASKS["forecast"](history=3) == Forecast(3)
    assert isinstance(Forecast(), Task)
    with pytest.raises(ValueError, match=r"task\.history .* at least 1, not 0"):
        Forecast(0)
