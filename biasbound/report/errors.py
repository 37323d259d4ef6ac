"""Which error a table, chart or figure shows for a dataset, and in which units.

Errors are in the units of the data, as the paper gives them for its first two flows, and
normalised by the spread of the training data for transonic flow, again as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from biasbound.metrics.rows import Row, select

NORMALISED = frozenset({"transonic"})


@dataclass(frozen=True)
class Errors:
    """The metrics behind the errors of a dataset."""

    one_step: str  # from states at all times of the test trajectories
    rollout: str  # at one step of the rollouts
    normalised: bool


def errors_of(dataset: str) -> Errors:
    """What "1-step MSE" and "10-step MSE" mean for this dataset."""
    if dataset in NORMALISED:
        return Errors("one_step_mse_norm", "mse_norm", True)
    return Errors("one_step_mse", "mse", False)


def one_step(rows: Sequence[Row]) -> list[Row]:
    """The 1-step MSE of one method on one dataset, one row per seed.

    Where it was not measured over all times, the first step of the rollouts stands in for it.
    """
    metric = errors_of(rows[0].dataset).one_step if rows else ""
    return select(rows, metric=metric) or at_step(rows, 1)


def at_step(rows: Sequence[Row], step: int) -> list[Row]:
    """The MSE of one method on one dataset at a step of the rollouts, one row per seed."""
    metric = errors_of(rows[0].dataset).rollout if rows else ""
    return select(rows, metric=metric, step=step)


def error_name(datasets: Iterable[str]) -> str:
    """The name of these datasets' errors for an axis, with their units where they differ."""
    kinds = {errors_of(dataset).normalised for dataset in datasets}
    if kinds == {True}:
        return "MSE (normalised)"
    return "MSE" if kinds <= {False} else "MSE (units as in the table)"
