"""Results as rows: one number with what it is of and what it cost, kept as JSON lines.

A value that is not finite is None (`null` in the file), and stands only beside a `broken` row of the same dataset, method and seed,
which says how many trajectories became non-finite.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

from biasbound._io import write_text

__all__ = ["Row", "Summary", "over_seeds", "read_rows", "select", "write_rows"]

KINDS = {"str": str, "int": int, "float": float}


@dataclass(frozen=True)
class Row:
    """One number: `metric` at `step` of a method on a dataset, with its interval and its cost."""

    dataset: str
    method: str
    seed: int
    metric: str
    step: int | None  # predicted frame, from 1; or a level's index; None where there is neither
    value: float | None  # None: not finite
    low: float | None  # ends of the interval over trajectories, where there is one
    high: float | None
    nfe: int  # network calls for one time step
    updates: int  # of the training, those of a search included
    seconds: float

    def __post_init__(self) -> None:
        for name in ("value", "low", "high", "seconds"):
            number = getattr(self, name)
            if number is not None and not math.isfinite(number):
                raise ValueError(
                    f"{name} of {self.metric} is {number}; write None, beside a row that counts what is broken"
                )

    @property
    def unit(self) -> tuple[str, str, int]:
        """What was trained and scored as one."""
        return self.dataset, self.method, self.seed


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation over seeds (0 for a single one), and how many of the seeds have no finite value.

    The mean is None as soon as one seed has none: a mean over those that held would flatter.
    """

    mean: float | None
    spread: float
    seeds: int
    lost: int


def _typed(found: Any, kind: str) -> Any:
    """A JSON value as the field's type, or a ValueError."""
    for name in kind.split(" | "):
        if name == "None" and found is None:
            return None
        if name == "float" and isinstance(found, int | float) and not isinstance(found, bool):
            return float(found)
        if name in KINDS and isinstance(found, KINDS[name]) and not isinstance(found, bool):
            return found
    raise ValueError(f"{found!r} where {kind} is expected")


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name}, which JSON does not have")


def _row(line: str) -> Row:
    found = json.loads(line, parse_constant=_constant)
    if not isinstance(found, dict):
        raise ValueError(f"a JSON {type(found).__name__}")
    expected = {f.name: str(f.type) for f in fields(Row)}
    if missing := sorted(expected.keys() - found.keys()):
        raise ValueError(f"no {', '.join(missing)}")
    if unknown := sorted(found.keys() - expected.keys()):
        raise ValueError(f"the unknown {', '.join(unknown)}")
    values = {}
    for name, kind in expected.items():
        try:
            values[name] = _typed(found[name], kind)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{name}: {error}") from None
    return Row(**values)


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """All rows of a file of JSON lines; a line that is none is named."""
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # text may hold other line ends
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ValueError(f"cannot read the rows of {path}: {reason}") from None
    rows = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                rows.append(_row(line))
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}, line {number}: expected a row, found {error}") from None
    return rows


def write_rows(path: str | os.PathLike[str], rows: Iterable[Row]) -> None:
    """Write all rows, whole or not at all. A value of None without its `broken` row is refused."""
    rows = list(rows)
    counted = {row.unit for row in rows if row.metric == "broken"}
    for row in rows:
        if row.value is None and row.unit not in counted:
            raise ValueError(
                f"{row.metric} of {row.method} on {row.dataset} (seed {row.seed}) has no value and no broken row says why; "
                "add one"
            )
    write_text(path, "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows))


def select(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows whose fields have these values: `select(rows, dataset="ks", metric="mse", step=10)`."""
    names = {f.name for f in fields(Row)}
    if unknown := sorted(wanted.keys() - names):
        raise ValueError(f"a row has no {unknown[0]}; it has {', '.join(sorted(names))}")
    return [row for row in rows if all(getattr(row, n) == v for n, v in wanted.items())]


def over_seeds(rows: Sequence[Row]) -> Summary | None:
    """Mean and spread of rows that differ in nothing but their seed; None if there is no row."""
    if not rows:
        return None
    kinds = {(r.dataset, r.method, r.metric, r.step) for r in rows}
    if len(kinds) > 1 or len({r.seed for r in rows}) < len(rows):
        first = rows[0]
        raise ValueError(
            f"rows to average must be one for each seed, but {len(rows)} were given for {first.metric} of {first.method} on "
            f"{first.dataset}; keep one run of each"
        )
    values = [r.value for r in rows if r.value is not None]
    lost = len(rows) - len(values)
    if lost:
        return Summary(None, 0.0, len(rows), lost)
    mean = math.fsum(values) / len(values)
    squares = math.fsum((v - mean) ** 2 for v in values)
    return Summary(mean, math.sqrt(squares / max(len(values) - 1, 1)), len(rows), 0)
