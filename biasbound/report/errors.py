"""Which error a table, chart or figure shows for a dataset, and in which units.

Errors are in the units of the data, as the paper gives them for its first two flows, and
normalised by the spread of the training data for transonic flow, again as in the paper.
"""

from collections.abc import Iterable, Sequence

from biasbound.metrics.rows import Row, select

NORMALISED = frozenset({"transonic"})


def error_of(dataset: str) -> str:
    """The metric behind the "10-step MSE" of a dataset; that of its "1-step MSE" begins with one_step_."""
    return "mse_norm" if dataset in NORMALISED else "mse"


def one_step(rows: Sequence[Row]) -> list[Row]:
    """The 1-step MSE of one method on one dataset, one row per seed.

    Where it was not measured over all times, the first step of the rollouts stands in for it.
    """
    metric = f"one_step_{error_of(rows[0].dataset)}" if rows else ""
    return select(rows, metric=metric) or at_step(rows, 1)


def at_step(rows: Sequence[Row], step: int) -> list[Row]:
    """The MSE of one method on one dataset at a step of the rollouts, one row per seed."""
    return select(rows, metric=error_of(rows[0].dataset), step=step) if rows else []


def error_name(datasets: Iterable[str]) -> str:
    """The name of these datasets' errors for an axis, with their units where they differ."""
    kinds = {dataset in NORMALISED for dataset in datasets}
    if kinds == {True}:
        return "MSE (normalised)"
    return "MSE" if kinds <= {False} else "MSE (units as in the table)"
