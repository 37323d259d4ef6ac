"""Which axes of a bare array are trajectories, frames, channels and space.

The number of space axes D comes from `dims`, or from the length of `domain` or `boundary`. The shape then decides:

    D + 1 axes   (K, *N)         one trajectory of one channel
    D + 2 axes   (K, C, *N)      one trajectory, where several channels are named
                 (S, K, *N)      one channel, otherwise
    D + 3 axes   (S, K, C, *N)

Where D is not told, two axes are (K, N), three are (K, C, N) if several channels are named and else refused, and four
or more are (S, K, C, *N).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["arranged", "space_axes"]


def space_axes(name: str, dims: int | None, domain: Sequence[Any], boundary: Sequence[Any]) -> int | None:
    """The number of space axes that the options tell, or None; options that disagree are refused."""
    told = {"dims": dims, "domain": len(domain) or None, "boundary": len(boundary) or None}
    given = {key: value for key, value in told.items() if value is not None}
    if len({*given.values()}) > 1:
        said = " and ".join(f"{key} tells {value}" for key, value in given.items())
        raise ValueError(f"{name}: {said} space axes; give each one entry per space axis")
    count = next(iter(given.values()), None)
    if count is not None and count < 1:
        raise ValueError(f"{name}: dims is {count}, expected at least one space axis")
    return count


def arranged(shape: tuple[int, ...], name: str, dims: int | None, channels: Sequence[str]) -> tuple[int, ...]:
    """An array's shape as (S, K, C, *N) by the rule above; what is ambiguous is refused, saying what to give."""
    rank, several = len(shape), len(channels) > 1
    if dims is None:
        if rank == 3 and not several:
            may = "(S, K, N) with dims=1 or (K, N, N) with dims=2"
            raise ValueError(f"{name}: found shape {shape}, which may be {may}; give one of them")
        if rank < 2:
            raise ValueError(f"{name}: found shape {shape}, expected (S, K, C, *N) or (K, *N)")
        dims = max(1, rank - 3)
    lead, grid = shape[: rank - dims], shape[rank - dims :]
    if len(lead) not in (1, 2, 3) or rank < dims:
        raise ValueError(f"{name}: found shape {shape}, which cannot have {dims} space axes; correct dims")
    if len(lead) == 1:
        lead = (1, *lead, 1)
    elif len(lead) == 2:
        lead = (1, *lead) if several else (*lead, 1)
    if channels and lead[2] != len(channels):
        raise ValueError(
            f"{name}: found {len(channels)} names for {lead[2]} channels in an array of shape {shape}; "
            "name each channel once, and give dims where the axes are others than (S, K, C, *N)"
        )
    return (*lead, *grid)
