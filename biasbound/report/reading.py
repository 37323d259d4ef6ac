"""Read JSON of a run folder; what is damaged is named in one sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["checked", "json_lines", "json_value", "number", "numbers"]

T = TypeVar("T")


def json_value(path: Path) -> Any:
    """The content of a JSON file, or None where there is no such file."""
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}); run the stage that writes it again") from None


def json_lines(path: Path) -> tuple[dict[str, Any], ...]:
    """The objects of a JSON-lines file, () where there is none; an unfinished last line is dropped."""
    if not path.exists():
        return ()
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    rows = []
    for i, line in enumerate(lines):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if isinstance(row, dict):
            rows.append(row)
        elif i + 1 < len(lines):
            raise ValueError(f"{path}: line {i + 1} is not a JSON object; run the stage that writes it again")
    return tuple(rows)


def checked(path: Path, make: Callable[[], T]) -> T:
    """What `make` reads from a file's content; a missing or wrong entry names the file."""
    try:
        return make()
    except KeyError as error:
        raise ValueError(f"{path} has no entry {error}; run the stage that writes it again") from None
    except (TypeError, AttributeError, IndexError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error}); run the stage that writes it again") from None


def number(value: Any) -> float:
    """A float; null is how JSON holds an infinite one."""
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise ValueError(f"{value!r} is not a number")
    return math.inf if value is None else float(value)


def numbers(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """One entry of each row; NaN where a row does not have it."""
    return [math.nan if row.get(name) is None else float(row[name]) for row in rows]
