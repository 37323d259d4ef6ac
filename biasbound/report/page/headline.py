"""The few numbers that a reader wants first: one row a method, means over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..study import Study

__all__ = ["headline"]

# Metric, step ("last" for the last that all methods have), column title, whether low is good.
COLUMNS: tuple[tuple[str, int | str | None, str, bool], ...] = (
    ("mse", 1, "MSE, frame 1", True),
    ("mse", 10, "MSE, frame 10", True),
    ("correlation_time", None, "correlation time", False),
    ("fsd", "last", "FSD, last frame", True),
    ("vrmse", None, "VRMSE", True),
    ("crps", None, "CRPS", True),
    ("broken", None, "broken", True),
)


def headline(study: Study) -> dict[str, Any]:
    """{columns, rows}: a cell is {value, spread (over seeds), low, high, best} or None."""
    rows: list[dict[str, Any]] = [
        {"method": label, **_cost(study.rows, label), "cells": []} for label in study.labels
    ]
    columns = []
    for metric, step, title, low_is_good in COLUMNS:
        of = [r for r in study.rows if r["metric"] == metric and r["value"] is not None]
        if step == "last":
            step = max((int(r["step"]) for r in of if r["step"] is not None), default=0)
            title = f"FSD, frame {step}"
        cells = [_cell([r for r in of if r["method"] == row["method"] and r["step"] == step]) for row in rows]
        if any(cells):
            columns.append(title)
            _mark_best(cells, min if low_is_good else max)
            for row, cell in zip(rows, cells, strict=True):
                row["cells"].append(cell)
    return {"columns": columns, "rows": rows if columns else []}


def _cell(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    if not rows:
        return None
    values = [float(r["value"]) for r in rows]
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / max(1, len(values) - 1))

    def bound(name: str, of: Callable[[list[float]], float]) -> float | None:
        known = [float(r[name]) for r in rows if r.get(name) is not None]
        return of(known) if known else None

    return {
        "value": mean,
        "spread": spread if len(values) > 1 else None,
        "low": bound("low", min),
        "high": bound("high", max),
        "best": False,
    }


def _mark_best(
    cells: Sequence[dict[str, Any] | None], choose: Callable[[list[float]], float]
) -> None:
    values = [cell["value"] for cell in cells if cell is not None]
    if len(set(values)) > 1:  # where all are equal none is best
        for cell in cells:
            if cell is not None:
                cell["best"] = cell["value"] == choose(values)


def _cost(rows: Sequence[Mapping[str, Any]], label: str) -> dict[str, Any]:
    own = [r for r in rows if r["method"] == label]
    return {name: own[0].get(name) if own else None for name in ("nfe", "updates", "seconds")}
