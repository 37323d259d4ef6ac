"""From a rollout to rows: every registered metric, with intervals over trajectories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from biasbound.metrics import METRICS
from biasbound.metrics.arrays import Array, Mask, at_points
from biasbound.metrics.errors import Scale, mse_frames
from biasbound.metrics.intervals import bootstrap
from biasbound.metrics.rows import About, Row
from biasbound.metrics.scene import Result, Scene
from biasbound.registry import find, known

__all__ = ["score", "score_steps"]


def score(scene: Scene, about: About, names: Sequence[str] | None = None) -> list[Row]:
    """The results of METRICS on a scene, of all or of those named, in their order, as rows.

    `low` and `high` are 95 % bootstrap intervals over trajectories, where a metric has one. A
    number that is not finite is None, and `broken` counts the trajectories that are behind it.
    """
    rows: dict[tuple[str, int | None], Row] = {}
    for name in known(METRICS) if names is None else names:
        for result in _results(name, scene):
            key = result.name, result.step
            if key in rows:
                place = "" if result.step is None else f" at step {result.step}"
                raise ValueError(
                    f"metric {name!r} yields {result.name}{place}, which is there already; "
                    "choose another name for the result"
                )
            rows[key] = about.row(result.name, result.value, result.step)
    return list(rows.values())


def _results(name: str, scene: Scene) -> Iterator[Result]:
    """What one metric says; what it refuses is told under its name."""
    try:
        for result in find(METRICS, name)(scene):
            if not isinstance(result, Result):
                raise ValueError(f"it must yield Results, not {type(result).__name__}")
            yield result
    except ValueError as error:
        raise ValueError(f"metric {name!r}: {error}") from error


def score_steps(
    prediction: Array, truth: Array, about: About, spread: Scale | None = None, mask: Mask | None = None
) -> list[Row]:
    """`one_step_mse` of single steps (S, P, C, *N), from P states of each trajectory.

    With `spread`, the training data's standard deviation of each channel, `one_step_mse_norm` as
    well. A rollout has one first step per trajectory; this is the same error over all times of
    the test data. The interval is over trajectories. Under a mask only valid points count.
    """
    prediction, truth = at_points(prediction, mask), at_points(truth, mask)
    scales = {"one_step_mse": None} | ({} if spread is None else {"one_step_mse_norm": spread})
    return [
        about.row(name, bootstrap(mse_frames(prediction, truth, scale).mean(1)), 1) for name, scale in scales.items()
    ]
