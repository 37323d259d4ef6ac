"""The page's data of a ladder that grew inside its training."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from biasbound.report.figures_growth import joined_at, level_errors
from biasbound.report.parts import Level
from biasbound.report.searches import Growth, Search


def growth_of(search: Search) -> dict[str, Any] | None:
    """`rungs` holds [σ, update at which it joined, whether it is in the final ladder]; `cells` every level tried."""
    found = search.growth
    if found is None:
        return None
    used = search.schedule.sigma if search.schedule is not None else ()
    return {
        **{key: getattr(found, key) for key in ("tau", "tau_own", "statistic", "c", "warm", "fixed", "updates")},
        "top_error": found.rounds[0].top_error,
        "rungs": [[sigma, update, sigma in used] for sigma, update in joined_at(found).items()],
        "cells": [_cell(found, number, level) for number in range(len(found.rounds)) for level in found.tried(number)],
        "errors": [
            {
                "sigma": sigma,
                "update": [update for update, _, _ in points],
                "error": [error for _, error, _ in points],
                "low": [error - stderr for _, error, stderr in points],
                "high": [error + stderr for _, error, stderr in points],
            }
            for sigma, points in level_errors(found).items()
        ],
    }


def _cell(found: Growth, number: int, level: Level) -> dict[str, Any]:
    """One level in one round."""
    one = found.rounds[number]
    return {
        "update": one.update,
        "sigma": level.sigma,
        "clean": level.clean,
        "clean_stderr": level.clean_stderr,
        "own": _bias(level, "own"),
        "two_step": _bias(level, "two_step"),
        "feasible": found.feasible(number, level),
        "joined": level.sigma in one.ladder,
    }


def _bias(level: Level, kind: str) -> dict[str, float]:
    return {name: level.bias(kind, name) for name in ("mean", "pooled", "q95")}


def front_of(search: Search) -> dict[str, Any] | None:
    """Every point of the front; the study's ladder and the greedy one, whose errors are null where they are not known."""
    if search.front is None:
        return None
    marked = {"chosen": search.chosen, "greedy": search.greedy}
    return {
        "points": [asdict(point) for point in search.front.front],
        **{name: None if point is None else asdict(point) for name, point in marked.items()},
    }
