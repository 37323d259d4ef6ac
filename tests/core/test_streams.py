"""Noise by counters: known answers, and what a number may depend on."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from biasbound.core import streams
from biasbound.core.noise import draw
from biasbound.core.streams import Streams, philox

KNOWN = [  # counter, key and answer: the test vectors of the paper's authors, for 10 rounds
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
LIKE = torch.zeros(6, 2, 5)


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_philox_gives_the_known_answers(counter, key, answer):
    words = torch.tensor(counter)[:, None]
    first, second = philox(words[[0, 2]], words[[1, 3]], key[0] + (key[1] << 32))
    made = torch.stack([first, second & 0xFFFFFFFF], 1).flatten().tolist()
    assert tuple(made) == answer


def whole(turns=3, draws=2, like=LIKE, seed=5):
    """All draws of the first turns, (turns, draws, *like)."""
    made = Streams(seed, range(len(like)))
    return torch.stack([torch.stack([draw(like, made.turn(t)), *(draw(like, made) for _ in range(draws - 1))]) for t in range(turns)])  # fmt: skip


@given(st.integers(0, 5), st.integers(1, 6), st.sampled_from([1, 20, 100, 1 << 16]), st.integers(0, 2))
def test_a_number_depends_on_its_seed_row_turn_draw_and_place_alone(start, stop, ahead, turn):
    """Not on the other rows of the batch, on how many numbers are made at once, or on the turns before."""
    rows = range(min(start, stop - 1), stop)
    before, streams.AHEAD = streams.AHEAD, ahead
    try:
        some = Streams(5, rows, 6)
        for t in range(turn, 3):
            some.turn(t)
            for k in range(2):
                assert torch.equal(draw(LIKE[: len(rows)], some), whole()[t, k, rows.start : rows.stop])
    finally:
        streams.AHEAD = before


def test_more_draws_than_in_the_turn_before_and_fields_of_other_shapes_change_nothing():
    made, wide = Streams(5, range(6)), torch.zeros(6, 3)
    draw(LIKE, made.turn(0))
    made.turn(1)
    got = [draw(LIKE, made), draw(wide, made), draw(LIKE.double(), made), draw(LIKE, made)]
    every = whole(2, 4)[1]
    assert torch.equal(got[0], every[0])
    assert torch.equal(got[3], every[3])
    torch.testing.assert_close(got[2].float(), every[2], rtol=1e-4, atol=1e-3)  # the same words in another precision
    assert got[1].shape == wide.shape


def test_precisions_see_the_same_noise():
    like = torch.zeros(4, 1, 4000)
    exact = draw(like.double(), Streams(1, range(4)))
    for dtype, off in ((torch.float32, 1e-3), (torch.bfloat16, 2e-2)):
        made = draw(like.to(dtype), Streams(1, range(4)))
        assert made.dtype == dtype
        assert (made.double() - exact).abs().max() < off
        assert made.isfinite().all()


def test_the_numbers_are_normal():
    z = draw(torch.zeros(64, 1, 8001, dtype=torch.float64), Streams(7, range(64))).flatten()
    count = len(z)
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):  # E z^p and Var z^p
        assert abs((z**power).mean().item() - mean) < 4 * math.sqrt(variance / count)
    places = (0.5 * (1 + torch.erf(z / math.sqrt(2)))).sort().values
    distance = (places - (torch.arange(count) + 0.5) / count).abs().max().item()
    assert distance < 1.95 / math.sqrt(count)  # Kolmogorov–Smirnov at 0.001
    assert 4 < z.abs().max() < 6.8


@pytest.mark.parametrize("axis", range(4))
def test_seeds_rows_turns_and_draws_are_independent(axis):
    """Fields that differ in one of them alone, also by a single bit, are not correlated, nor are their squares."""
    like = torch.zeros(4, 1, 10_000)
    every = torch.stack([whole(4, 4, like, seed).reshape(4, 4, 4, -1) for seed in (0, 1, 2, 1 << 32)])
    fields = every.transpose(0, axis)[:, 0, 0, 0].double()
    for z in (fields, fields.square() - 1):
        scaled = z / z.std(1, keepdim=True)
        correlation = scaled @ scaled.T / z.shape[1] - torch.eye(4)
        assert correlation.abs().max() < 4.5 / math.sqrt(z.shape[1])


def test_noise_is_made_where_the_field_is():
    made = draw(torch.zeros(3, 2, 8, device="meta"), Streams(0, range(3)))
    assert (made.device.type, tuple(made.shape)) == ("meta", (3, 2, 8))
    with pytest.raises(ValueError, match="3 noise streams for 4 rows"):
        draw(torch.zeros(4, 1), Streams(0, range(3)))
