"""The ladder over the map of two-step biases, in units of cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise


def staircase(cells: Sequence[int]) -> tuple[list[float], list[float]]:
    """Steps from jump to jump: right from the diagonal to the cell (from, to), then up again."""
    x, y = [float(cells[0])], [float(cells[0])]
    for to, start in pairwise(cells):
        x += [float(start), float(start)]
        y += [float(to), float(start)]
    return x, y


def tau_edges(
    levels: Sequence[float], bias: Callable[[float, float], float], tau: float
) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """Edges ((x, x), (y, y)) between neighbouring cells of which one is within τ, one is not."""

    def within(start: int, to: int) -> bool | None:
        inside = 0 <= to < start < len(levels)
        return bias(levels[to], levels[start]) <= tau if inside else None

    for to in range(len(levels)):
        for start in range(to + 1, len(levels)):
            here = within(start, to)
            right, above = within(start + 1, to), within(start, to + 1)
            if right is not None and right != here:
                yield (start + 0.5, start + 0.5), (to - 0.5, to + 0.5)
            if above is not None and above != here:
                yield (start - 0.5, start + 0.5), (to + 0.5, to + 0.5)
