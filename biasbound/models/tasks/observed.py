"""What tasks share whose x is an observation of y itself: nothing advances in time, and every frame stands alone."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from biasbound.core.noise import Condition, State, beside
from biasbound.models.task import Window

__all__ = ["Observed", "along"]


class Observed:
    """One frame is seen in part, and the whole of it is wanted: x holds the interpolation, a mark, what only informs.

    The interpolation (C channels) is made once, in `given`, and is the first guess. The mark is one channel that says
    where on the grid something was observed.
    """

    advances: ClassVar[bool] = False
    baseline: ClassVar[str] = "interpolation"

    @property
    def past(self) -> int:
        return 1

    def window(self, unroll: int = 0) -> int:
        if unroll:
            raise ValueError(
                "a task that answers every frame from its own observation has nothing to unroll: leave out methods with "
                "-ut, -pf, -proxy and -full"
            )
        return 0

    def wanted(self, frames: Window) -> list[State]:
        return [frames[:, 0]]

    def guess(self, x: Condition, channels: int) -> State:
        return x[:, :channels]

    def follow(self, x: Condition, y: State) -> Condition:
        """The same observation again: an answer adds nothing to it."""
        return x

    def inputs(self, channels: int) -> int:
        return channels + 1


def along(field: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """The field with `matrix` (m, n) applied to its axis of n points."""
    return (field.movedim(axis, -1) @ beside(matrix, field).T).movedim(-1, axis)
