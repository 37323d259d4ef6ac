"""From values at some points of a grid to all of them: the first guess of a reconstruction.

Every function takes values (B, C, *N) and which of them are known (B, 1, *N), at least one per example, and leaves the
known ones as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["interpolated"]

Values = Float[Tensor, "B C *N"]
Seen = Bool[Tensor, "B 1 *N"]


def interpolated(values: Values, seen: Seen, periodic: Sequence[bool]) -> Values:
    """Linear between neighbours along a line; by inverse distances in the plane and in space."""
    return _linear(values, seen, *periodic) if values.ndim == 3 else _weighted(values, seen, tuple(periodic))


def _linear(values: Values, seen: Seen, periodic: bool) -> Values:
    """Between the nearest known points to the left and right; beyond the ends of an open axis, the nearest."""
    points = values.shape[2]
    copies = 3 if periodic else 1  # of a period: every point of the middle one has known neighbours
    at = torch.arange(copies * points, device=values.device)
    known = seen.repeat(1, 1, copies)
    left = _highest_yet(torch.where(known, at, -1))
    right = -_highest_yet(torch.where(known, -at, -len(at)).flip(2)).flip(2)
    left, right = torch.where(left < 0, right, left), torch.where(right == len(at), left, right)
    middle = slice(copies // 2 * points, (copies // 2 + 1) * points)
    left, right, here = left[..., middle], right[..., middle], at[middle]
    share = (here - left) / (right - left).clamp(min=1)
    before, after = (values.gather(2, (side % points).expand_as(values)) for side in (left, right))
    return torch.where(seen, values, torch.lerp(before, after, share.to(values)))


def _highest_yet(places: Int[Tensor, "B 1 n"]) -> Int[Tensor, "B 1 n"]:
    """The largest value up to each point, in steps that double: ONNX has no cummax."""
    reach = 1
    while reach < places.shape[2]:
        places = torch.cat([places[..., :reach], torch.maximum(places[..., reach:], places[..., :-reach])], 2)
        reach *= 2
    return places


def _weighted(values: Values, seen: Seen, periodic: tuple[bool, ...]) -> Values:
    """Shepard's Σ_j w_ij u_j/Σ_j w_ij over known j, w = 1/distance^(d + 2) in d dimensions, as two convolutions."""
    grid = tuple(values.shape[2:])
    padded = tuple(n if wraps else 2 * n for n, wraps in zip(grid, periodic, strict=True))
    axes, own = tuple(range(2, values.ndim)), (slice(None),) * 2 + tuple(map(slice, grid))
    weight = _weights(padded).to(values.device)

    def summed(field: Tensor) -> Tensor:
        spread: Tensor = torch.fft.irfftn(torch.fft.rfftn(field.double(), padded, axes) * weight, padded, axes)
        return spread[own]

    known = torch.where(seen, values, 0.0)
    made = summed(known) / summed(seen).clamp(min=torch.finfo(torch.float64).tiny)
    return torch.where(seen, values, made.to(values))


@lru_cache(maxsize=8)
def _weights(grid: tuple[int, ...]) -> Tensor:
    """The transform of 1/distance^(d + 2), 0 at no distance."""
    steps = [np.minimum(np.arange(n), n - np.arange(n)) for n in grid]
    square = sum(np.square(s.astype(float)) for s in np.meshgrid(*steps, indexing="ij"))
    square = np.asarray(square)
    square[(0,) * len(grid)] = np.inf
    made: Tensor = torch.fft.rfftn(torch.from_numpy(square ** (-(len(grid) + 2) / 2)))
    return made
