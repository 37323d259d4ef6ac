"""A rollout beside the truth in a few lines: how good it is, and how good doing nothing would be.

print(score(emulator.rollout(test.first(), steps=25, members=8), test))
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from biasbound.metrics.arrays import Array
from biasbound.metrics.frechet import FewSamples
from biasbound.metrics.globe import Globe
from biasbound.metrics.rows import About, Row, select
from biasbound.metrics.scene import Scene
from biasbound.metrics.score import score as rows_of

__all__ = ["BASELINES", "Scores", "persistence", "score"]


def persistence(start: Array, steps: int, members: int = 1) -> Array:
    """x̂^k = x⁰ at every step: (S, C, *N) as (M, S, K, C, *N), without a copy."""
    shape = (members, len(start), steps, *start.shape[1:])
    view = start[None, :, None]
    return np.broadcast_to(view, shape) if isinstance(view, np.ndarray) else view.expand(shape)


BASELINES: dict[str, Callable[[Array, int, int], Array]] = {"persistence": persistence}


@dataclass(frozen=True)
class Scores:
    """`rows` holds every score of every method; printed, it is a table of the most important ones.

    RMSE is in standard deviations of the data, the correlation time in their unit of time, and CRPS
    in their units. Spread over skill is 1 for members that are as far from one another as from the
    truth.
    """

    rows: tuple[Row, ...]

    def __str__(self) -> str:
        table = {label: dict(self._cells(label)) for label in dict.fromkeys(row.method for row in self.rows)}
        columns = list(dict.fromkeys(name for cells in table.values() for name in cells))
        lines = [["", *columns], *([label, *(own.get(n, "–") for n in columns)] for label, own in table.items())]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        sides = [str.ljust, *[str.rjust] * len(columns)]
        return "\n".join("  ".join(map(_placed, line, widths, sides)) for line in lines)

    def value(self, method: str, metric: str, step: int | None = None) -> float:
        """One score; +∞ where it is not finite."""
        found = select(self.rows, method=method, metric=metric, step=step)
        if not found:
            place = "" if step is None else f" at step {step}"
            raise ValueError(f"{method} has no score {metric}{place}")
        return math.inf if found[0].value is None else found[0].value

    def _cells(self, label: str) -> Iterator[tuple[str, str]]:
        """(column, cell) of one method."""
        own = select(self.rows, method=label)
        steps = sorted({row.step for row in own if row.step is not None})
        far = 10 if 10 in steps else steps[-1]
        shown: list[tuple[str, int | None, str]]
        shown = [("mse_norm", s, f"{s}-step RMSE") for s in dict.fromkeys((1, far))]
        shown += [("correlation_time", None, "correlation time")]
        shown += [("crps", s, f"{s}-step CRPS") for s in dict.fromkeys((1, far))]
        shown += [("spread_skill", far, f"{far}-step spread/skill")]
        for metric, step, title in shown:
            if found := select(own, metric=metric, step=step):
                value = found[0].value
                root = value is not None and metric == "mse_norm"
                yield title, "∞" if value is None else f"{math.sqrt(value) if root else value:.4g}"


def _placed(text: str, width: int, side: Callable[[str, int], str]) -> str:
    return side(text, width)


def score(
    rollout: Any,
    truth: Any,
    baselines: Sequence[str] = ("persistence",),
    *,
    train: Any = None,
    past: int = 1,
    name: str = "emulator",
) -> Scores:
    """Every registered metric of a rollout, and of baselines from the same start.

    `rollout` has `states`, or is the array itself: (M, S, K, C, *N), or (S, K, C, *N) of one member.
    Rollout s started from the first `past` frames of trajectory s of `truth`, which may have more
    trajectories and frames. Errors are in standard deviations of `train`, by default of the truth.

    >>> from biasbound.data import Trajectories
    >>> walks = np.random.default_rng(0).standard_normal((20, 4, 1, 16)).cumsum(1)
    >>> found = score(walks[:, 1:], Trajectories.from_array(walks, dt=0.1))  # a perfect rollout
    >>> found.value("emulator", "mse", step=3), found.value("persistence", "mse", step=3) > 2
    (0.0, True)
    """
    states: Array = getattr(rollout, "states", rollout)
    states = states if states.ndim == len(truth.shape) + 1 else states[None]
    known, frames = tuple(truth.shape[:2]), tuple(states.shape[1:3])
    if states.ndim != len(truth.shape) + 1 or not (frames[0] <= known[0] and past + frames[1] <= known[1]):
        raise ValueError(
            f"a rollout of shape {tuple(states.shape)} does not fit {truth.name}, {tuple(truth.shape)}: it needs "
            f"(M, S, K, C, *N) with at most {known[0]} trajectories and {known[1] - past} frames after the first {past}"
        )
    count, steps = frames
    start = truth.read(0, count, slice(past - 1, past))[:, 0]
    facts = {"spread": (train or truth).statistics.std, "mask": getattr(truth, "mask", None)}
    facts["globe"] = Globe.of(truth, train)
    following = truth.read(0, count, slice(past, past + steps))
    made: dict[str, Array] = {name: states}
    for baseline in baselines:
        if baseline not in BASELINES:
            raise ValueError(f"there is no baseline {baseline!r}; there are {', '.join(BASELINES)}")
        made[baseline] = BASELINES[baseline](start, steps, min(len(states), 2))
    rows: list[Row] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewSamples)  # all are of the same trajectories
        for label, prediction in made.items():
            scene = Scene.on(truth.layout, prediction, following, **facts)
            rows += rows_of(scene, About(truth.layout.name, label))
    return Scores(tuple(rows))
