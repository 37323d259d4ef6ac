"""Super-resolution and reconstruction: what is seen of a field, and the first guess that keeps it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import seeded

from biasbound.models.task import Task
from biasbound.models.tasks.reconstruct import Reconstruct
from biasbound.models.tasks.superresolve import Superresolve

GRIDS = st.sampled_from([(16,), (8, 12), (4, 8, 4)])
FACTORS = st.sampled_from([1, 2, 4])
PLACED = st.sampled_from(["regular", "random", "drawn", "gap"])


def fields(grid, channels=2, count=3, dtype=torch.float64):
    return torch.randn(count, channels, *grid, generator=seeded(), dtype=dtype)


def asked(task, frames, planes=None):
    """(x, guess) of fields that stand alone."""
    nothing = frames.new_empty(len(frames), 0, *frames.shape[2:])
    x = task.given(frames[:, None], nothing if planes is None else planes)
    return x, task.guess(x, frames.shape[1])


def task_on(placed, grid, **more):
    return Reconstruct(2 ** len(grid), placed, grid=grid, **more)


@given(GRIDS, FACTORS, st.sampled_from(["mean", "subsample"]), st.booleans())
def test_the_guess_of_a_fine_field_has_the_coarse_values_that_it_was_made_of(grid, factor, by, around):
    task, frames = Superresolve(factor, by, grid, (around,) * len(grid)), fields(grid)
    x, guess = asked(task, frames)
    coarse = task.coarse(frames)
    torch.testing.assert_close(task.coarse(guess), coarse)
    every = (..., *[slice(None, None, factor)] * len(grid))
    if by == "subsample":
        torch.testing.assert_close(coarse, frames[every])
        torch.testing.assert_close(guess[every], frames[every])
    else:
        blocks = frames.reshape(*frames.shape[:2], *(m for n in grid for m in (n // factor, factor)))
        torch.testing.assert_close(coarse, blocks.mean(tuple(range(3, blocks.ndim, 2))))
    if factor == 1:
        torch.testing.assert_close(guess, frames)
    assert (x.shape[1], x[:, 2].sum()) == (task.inputs(2), coarse[:, 0].numel())  # one mark per block
    assert torch.equal(task.wanted(frames[:, None])[0], frames)


@given(GRIDS, FACTORS, st.sampled_from(["mean", "subsample"]))
def test_a_shift_by_whole_blocks_commutes_with_the_guess_on_periodic_grids(grid, factor, by):
    task, frames, axes = Superresolve(factor, by), fields(grid), tuple(range(2, 2 + len(grid)))
    shifted = [factor] * len(grid)
    torch.testing.assert_close(asked(task, frames.roll(shifted, axes))[0], asked(task, frames)[0].roll(shifted, axes))


@pytest.mark.parametrize("by", ["mean", "subsample"])
def test_long_waves_are_guessed_without_error_along_a_period_and_straight_lines_between_open_ends(by):
    place = torch.arange(24, dtype=torch.float64)
    waves = torch.stack([torch.cos(2 * torch.pi * k * place / 24 + 0.3) for k in (0, 1, 2)])[
        None
    ]  # of 6 coarse points
    torch.testing.assert_close(asked(Superresolve(4, by), waves)[1], waves)
    line = (0.7 * place - 3).expand(1, 1, -1)
    ends = 4 if by == "mean" else 3  # blocks at the ends have no neighbour on one side
    guess = asked(Superresolve(4, by, periodic=(False,)), line)[1]
    if by == "subsample":
        torch.testing.assert_close(guess[..., :-ends], line[..., :-ends])
    constant = torch.ones_like(line)
    torch.testing.assert_close(asked(Superresolve(4, by, periodic=(False,)), constant)[1], constant)


def test_a_field_that_is_coarse_already_is_taken_as_it_is():
    task, frames = Superresolve(4, grid=(8, 16)), fields((8, 16))
    told = torch.randn(3, 1, 1, 1, generator=seeded(1), dtype=torch.float64)
    fine = task.given(frames[:, None], told.expand(-1, -1, 8, 16))
    torch.testing.assert_close(task.given(task.coarse(frames)[:, None], told.expand(-1, -1, 2, 4)), fine)
    with pytest.raises(
        ValueError, match=r"4 × 4 points is neither the fine grid \(8, 16\) nor the coarse one \(2, 4\)"
    ):
        asked(task, frames[..., :4, :4])


@given(PLACED, GRIDS, st.booleans(), st.sampled_from([torch.float32, torch.float64]))
def test_the_guess_of_a_reconstruction_is_exact_at_its_sensors_and_within_their_range(placed, grid, around, dtype):
    task, frames = task_on(placed, grid, periodic=(around,) * len(grid)), fields(grid, dtype=dtype)
    x, guess = asked(task, frames)
    known, seen = task.seen(frames)
    assert torch.equal(torch.where(seen, guess, 0.0), known)
    assert torch.equal(known, torch.where(seen, frames, 0.0))
    assert torch.equal(x[:, 2:], seen.to(dtype))
    assert x.shape[1] == task.inputs(2)
    if placed != "gap":
        assert (seen.flatten(1).sum(1) == task.sensors).all()
    else:
        assert (~seen).flatten(1).any(1).all()
    for made, true, at in zip(guess, frames, seen[:, 0], strict=True):
        low, high = (getattr(true[:, at], of)(1, keepdim=True) for of in ("amin", "amax"))
        assert (made.flatten(1) >= low - 1e-5).all()
        assert (made.flatten(1) <= high + 1e-5).all()


@given(PLACED, GRIDS)
def test_a_frame_is_always_seen_in_the_same_way(placed, grid):
    """Whatever else is in its batch; what is drawn differs from frame to frame and from seed to seed."""
    task, frames = task_on(placed, grid, noise=0.1), fields(grid, count=6)
    x, _ = asked(task, frames)
    torch.testing.assert_close(asked(task, frames[[4, 1]])[0], x[[4, 1]], rtol=0, atol=1e-12)
    marks = {mark.numpy().tobytes() for mark in x[:, 2]}
    assert len(marks) == 1 if placed in ("regular", "random") else len(marks) > 1
    other = asked(task_on(placed, grid, noise=0.1, seed=1), frames)[0]
    assert not torch.equal(other[:, :2], x[:, :2])
    assert torch.equal(other[:, 2], x[:, 2]) == (placed == "regular")


def test_noise_has_its_standard_deviation_and_is_at_the_sensors_alone():
    task, frames = Reconstruct(64, "regular", noise=0.2), fields((64,), count=200)
    known, seen = task.seen(frames)
    assert seen.all()
    assert (known - frames).std() == pytest.approx(0.2, rel=0.02)


def test_a_frame_with_gaps_says_itself_what_is_known():
    frames = fields((8, 8))
    holed = frames.clone()
    holed[1, :, 2:5, 3:6] = torch.nan
    x, guess = asked(Reconstruct(4, noise=0.3), holed)
    assert torch.equal(x[1, 2] == 0, holed[1, 0].isnan())
    assert guess.isfinite().all()
    assert torch.equal(guess[1][:, x[1, 2] == 1], frames[1][:, x[1, 2] == 1])  # no noise on top
    with pytest.raises(ValueError, match="NaN at every point"):
        asked(Reconstruct(4), torch.full_like(frames, torch.nan))


@pytest.mark.parametrize("grid", [(16,), (8, 8)])
def test_a_shift_by_the_distance_of_the_sensors_commutes_on_periodic_grids(grid):
    task, frames, axes = Reconstruct(4 ** len(grid)), fields(grid), tuple(range(2, 2 + len(grid)))
    by = [n // 4 for n in grid]
    torch.testing.assert_close(asked(task, frames.roll(by, axes))[0], asked(task, frames)[0].roll(by, axes))


def test_between_two_sensors_on_a_line_the_guess_is_straight_and_goes_round_a_period():
    ramp = torch.tensor([[[0.0, 9, 9, 9, 4, 9, 9, 9]]])
    _, guess = asked(Reconstruct(2, periodic=(True,)), ramp)
    assert guess[0, 0].tolist() == [0, 1, 2, 3, 4, 3, 2, 1]
    _, guess = asked(Reconstruct(2, periodic=(False,)), ramp)
    assert guess[0, 0].tolist() == [0, 1, 2, 3, 4, 4, 4, 4]


@pytest.mark.parametrize("task", [Superresolve(), Reconstruct()])
def test_such_tasks_do_not_advance(task):
    assert isinstance(task, Task)
    assert not task.advances
    x = torch.randn(2, 2, 8, generator=seeded())
    assert torch.equal(task.follow(x, x[:, :1]), x)
    assert (task.past, task.window()) == (1, 0)
    with pytest.raises(ValueError, match="nothing to unroll"):
        task.window(1)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Superresolve(0), "factor .* at least 1, not 0"),
        (lambda: Superresolve(3, grid=(16, 9)), "16 × 9 points has no blocks of 3"),
        (lambda: Reconstruct(0), "sensors .* at least 1, not 0"),
        (lambda: Reconstruct(noise=-1.0), "noise is a standard deviation: 0 or more, not -1"),
        (lambda: Reconstruct(8, grid=(16, 16)), "8 sensors cannot stand evenly on a grid of 16 × 16"),
        (lambda: Reconstruct(65, "drawn", grid=(64,)), "64 points has no 65 sensors"),
    ],
)
def test_what_cannot_be_seen_is_refused(make, complaint):
    with pytest.raises(ValueError, match=complaint):
        make()


def test_operators_are_built_for_any_even_and_odd_number_of_blocks():
    for blocks in range(1, 8):
        frames = torch.from_numpy(np.random.default_rng(blocks).standard_normal((1, 1, 3 * blocks)))
        task = Superresolve(3)
        torch.testing.assert_close(task.coarse(asked(task, frames)[1]), task.coarse(frames))
