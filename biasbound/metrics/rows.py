"""Results as rows: one number, what it is of and what it cost, kept as JSON lines.

A value that is not finite is None (`null` in the file). It may only stand beside a `broken` row of
the same dataset, method and seed, which says how many trajectories became non-finite.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, SupportsFloat

from pydantic import ConfigDict

from biasbound._io import read_lines, write_lines
from biasbound.metrics.intervals import Interval

__all__ = ["About", "Row", "Summary", "over_seeds", "read_rows", "select", "write_rows"]


@dataclass(frozen=True)
class Row:
    """One number: `metric` at `step` of a method on a dataset, with its interval and its cost."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    dataset: str
    method: str
    seed: int
    metric: str
    step: int | None  # predicted frame, from 1; or the index of a level; None if there is neither
    value: float | None  # None: not finite
    low: float | None  # ends of the interval over trajectories, if there is one
    high: float | None
    nfe: int  # network calls for one time step
    updates: int  # of the training, those of a search included
    seconds: float
    ledger: int = 0  # training samples passed through the network, search and fine-tuning included; 0: not known

    def __post_init__(self) -> None:
        for name in ("value", "low", "high", "seconds"):
            number = getattr(self, name)
            if number is not None and not math.isfinite(number):
                raise ValueError(
                    f"{name} of {self.metric} is {number}; write None, and a row `broken` that "
                    "counts the broken trajectories"
                )
        for name in ("seed", "step", "nfe", "updates", "ledger"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"{name} of {self.metric} is {getattr(self, name)}; it counts from 0")

    @property
    def unit(self) -> tuple[str, str, int]:
        """What was trained and scored as one."""
        return self.dataset, self.method, self.seed


@dataclass(frozen=True)
class About:
    """What all rows of one scored emulator share; its fields are fields of `Row`."""

    dataset: str
    method: str
    seed: int = 0
    nfe: int = 0  # network calls for one time step
    updates: int = 0  # of the training, those of a search included
    seconds: float = 0.0
    ledger: int = 0

    def row(self, metric: str, value: SupportsFloat | Interval, step: int | None = None) -> Row:
        """A row of these; numbers and ends of intervals that are not finite become None."""
        if not isinstance(value, Interval):
            value = Interval(float(value), math.nan, math.nan)
        mean, low, high = (x if math.isfinite(x) else None for x in (value.mean, value.low, value.high))
        return Row(metric=metric, step=step, value=mean, low=low, high=high, **vars(self))


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation over seeds, and how many seeds have no finite value.

    The standard deviation of a single seed is 0. The mean is None as soon as one seed has no
    value: a mean over the others would flatter.
    """

    mean: float | None
    spread: float
    seeds: int
    lost: int


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """All rows of a file of JSON lines; a line that is not a row is refused by its number."""
    return read_lines(Path(path), Row)


def write_rows(path: str | os.PathLike[str], rows: Iterable[Row]) -> None:
    """Write all rows or nothing. A value of None without its `broken` row is refused."""
    rows = list(rows)
    counted = {row.unit for row in rows if row.metric == "broken"}
    for row in rows:
        if row.value is None and row.unit not in counted:
            raise ValueError(
                f"{row.metric} of {row.method} on {row.dataset} (seed {row.seed}) has no value "
                "and no row `broken` says why; add one"
            )
    write_lines(Path(path), rows)


def select(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows with these values: `select(rows, dataset="ks", metric="mse", step=10)`.

    >>> rows = [About("ks", "direct", seed=s).row("mse", 0.1 + s, step=10) for s in (0, 1)]
    >>> [row.value for row in select(rows, metric="mse", seed=1)]
    [1.1]
    """
    names = {f.name for f in fields(Row)}
    if unknown := sorted(wanted.keys() - names):
        raise ValueError(f"a row has no {unknown[0]}; it has {', '.join(sorted(names))}")
    return [row for row in rows if all(getattr(row, n) == v for n, v in wanted.items())]


def over_seeds(rows: Sequence[Row]) -> Summary | None:
    """Mean and spread of rows that differ only in their seed; None if there is no row."""
    if not rows:
        return None
    kinds = {(r.dataset, r.method, r.metric, r.step) for r in rows}
    if len(kinds) > 1 or len({r.seed for r in rows}) < len(rows):
        first = rows[0]
        raise ValueError(
            f"rows to average must be one for each seed and of one metric, but {len(rows)} were "
            f"given for {first.metric} of {first.method} on {first.dataset}; select one of each"
        )
    values = [r.value for r in rows if r.value is not None]
    lost = len(rows) - len(values)
    if lost:
        return Summary(None, 0.0, len(rows), lost)
    mean = math.fsum(values) / len(values)
    squares = math.fsum((v - mean) ** 2 for v in values)
    return Summary(mean, math.sqrt(squares / max(len(values) - 1, 1)), len(rows), 0)
