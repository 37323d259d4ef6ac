"""Which axis of a field is time and which are space, told by vectors that stand beside it in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from biasbound.data.options import ReadOptions
from biasbound.data.shapes import arranged
from biasbound.data.times import even, time_step

__all__ = ["Arrangement", "arrange"]

Vector = Float64[np.ndarray, "_"]
TIMES = ("t", "time", "tt", "times", "ts", "tspan", "tlist", "t_star", "tdata")


@dataclass(frozen=True)
class Arrangement:
    """How a field's axes become (S, K, C, *N), and where its points stand."""

    order: tuple[int, ...]  # of the stored axes, as they come in (S, K, C, *N)
    shape: tuple[int, ...]  # (S, K, C, *N)
    dt: float
    names: tuple[str, ...]  # of the space axes
    points: tuple[Vector | None, ...]
    notes: tuple[str, ...] = ()

    def ordered(self, values: np.ndarray) -> np.ndarray:
        return values.transpose(self.order).reshape(self.shape)


def arrange(
    shape: tuple[int, ...],
    vectors: Mapping[str, Vector],
    options: ReadOptions,
    where: str,
    step: float | None = None,
    stacked: bool = False,
) -> Arrangement:
    """Tell the axes of a field of this shape; `step` is a time step that the file gives, `stacked` one of several.

    Without a vector of times, the one axis that no other vector fits is time; without any vector, the rule of bare
    arrays holds (`biasbound.data.shapes`).
    """
    times = {n: v for n, v in vectors.items() if n.lower() in TIMES and len(v) in shape and even(v)}
    others = {n: v for n, v in vectors.items() if n not in times and len(v) in shape and len(v) > 1}
    told = next(iter(times.values()), None)
    dt = options.dt or step or (None if told is None else time_step(told, where))
    if dt is None:
        raise ValueError(f"{where}: found no vector of times (t, time, tt) for shape {shape}; give --dt")
    if not times and not others:
        return _bare(shape, options, where, dt, stacked)
    time, notes = _time(shape, told, others, where)
    rest = [i for i in range(len(shape)) if i != time]
    known = _located(shape, rest, others)
    space = _space(shape, rest, known, options, where)
    lead = [i for i in rest if i not in space]
    several = len(options.channels or ()) > 1 and not stacked
    if len(lead) > (1 if stacked else 2):
        raise ValueError(
            f"{where}: found shape {shape}, of which {len(space)} space axes leave too many; correct --dims"
        )
    rows, counts = (lead[:1], lead[1:]) if len(lead) == 2 or not several else ([], lead)
    full = tuple(int(np.prod([shape[i] for i in group])) for group in (rows, [time], counts))
    names = tuple(known[i][0] if i in known else f"x{j}" for j, i in enumerate(space))
    return Arrangement(
        (*rows, time, *counts, *space),
        (*full, *(shape[i] for i in space)),
        dt,
        names if len({*names}) == len(names) and {*known} >= {*space} else (),
        tuple(known[i][1] if i in known else None for i in space),
        notes,
    )


def _time(
    shape: tuple[int, ...], told: Vector | None, others: Mapping[str, Vector], where: str
) -> tuple[int, tuple[str, ...]]:
    """The axis as long as the vector of times, or else the only one that no other vector fits; and notes."""
    if told is None:
        alone = [i for i, n in enumerate(shape) if n not in {len(v) for v in others.values()}]
        if len(alone) != 1:
            raise ValueError(f"{where}: no vector tells which axis of {shape} is time; add a vector called t")
        return alone[0], ()
    fit = [i for i, n in enumerate(shape) if n == len(told)]
    doubt = f"{Path(where).name}: several axes of {shape} are as long as its times; the last was taken as time."
    return fit[-1], (doubt,) if len(fit) > 1 else ()


def _located(shape: tuple[int, ...], rest: list[int], vectors: Mapping[str, Vector]) -> dict[int, tuple[str, Vector]]:
    """The vector along each axis, where one fits; each serves once, in the order of their names."""
    left, found = dict(sorted(vectors.items())), {}
    for i in rest:
        fits = next((n for n, v in left.items() if len(v) == shape[i]), None)
        if fits is not None:
            found[i] = fits, left.pop(fits)
    return found


def _space(
    shape: tuple[int, ...], rest: list[int], known: Mapping[int, tuple[str, Vector]], options: ReadOptions, where: str
) -> list[int]:
    count = options.space_axes(where)
    if count is None and (len(rest) == 1 or len(known) == len(rest)):
        count = len(rest)
    if count is None:
        found = f"found shape {shape}, in which {len(rest)} axes are not time"
        raise ValueError(f"{where}: {found}; give --dims, the number of those that are space")
    if not 0 < count <= len(rest):
        raise ValueError(f"{where}: found shape {shape}, which cannot have {count} space axes; correct --dims")
    return sorted(known) if len(known) == count else rest[-count:]


def _bare(shape: tuple[int, ...], options: ReadOptions, where: str, dt: float, stacked: bool) -> Arrangement:
    """By the rule of bare arrays."""
    full = arranged(shape, where, options.space_axes(where), () if stacked else options.channels or ())
    grid = full[3:]
    return Arrangement(tuple(range(len(shape))), full, dt, (), (None,) * len(grid))
