"""What a metric sees, a `Scene`, and what it says, `Result`s.

A metric is a function of one scene that yields any number of results:

    def energy_error(scene: Scene) -> Iterator[Result]:
        made, true = ((x[:, -1] ** 2).mean() for x in (scene.first, scene.truth))
        yield Result("energy_error", made - true, step=scene.frames)

A metric that does not apply (a vorticity of a scalar, a spread of one member) returns without
yielding: there is then no row. An error, on the other hand, is never taken for "does not apply".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import SupportsFloat

from biasbound.data.layout import Layout
from biasbound.metrics.arrays import Array, Mask, at_points, check_step, double, filled
from biasbound.metrics.derivatives import each_axis
from biasbound.metrics.errors import Scale
from biasbound.metrics.globe import Globe
from biasbound.metrics.intervals import Interval

__all__ = ["STEPS", "Metric", "Result", "Scene"]

STEPS = (1, 10)  # scored unless told otherwise, and the last


@dataclass(frozen=True, eq=False)
class Scene:
    """A rollout beside the truth, with the time step and the grid of both.

    `prediction` is (M, S, K, C, *N): members, trajectories, predicted frames, channels, grid.
    `truth` is (S, K, C, *N). NumPy or torch, memory-mapped or not. An empty `spacing` means 1
    along every axis, an empty `periodic` means every axis, and empty `steps` mean frames 1, 10
    and the last; metrics find all three filled in.

    Under a `mask` arrays may hold anything at masked points, NaN too. A metric then takes `points`,
    a scene of the valid points alone, or `grids`, whose masked points hold the same values in the
    prediction and in the truth. Both are the scene itself where there is no mask.
    """

    prediction: Array
    truth: Array
    dt: float  # time between frames
    spacing: tuple[float, ...] = ()  # distance of grid points along each axis
    periodic: tuple[bool, ...] = ()  # whether each axis is
    spread: Scale | None = None  # standard deviation of each channel over the training data
    steps: tuple[int, ...] = ()  # the frames to score, counted from 1
    correlate: str = "field"  # what a correlation time compares: field or vorticity
    mask: Mask | None = None  # *N, True where a point is valid; None: all are
    globe: Globe | None = None  # where one axis is a latitude

    def __post_init__(self) -> None:
        made, true = tuple(self.prediction.shape), tuple(self.truth.shape)
        if len(true) < 4 or made[1:] != true:
            raise ValueError(
                f"a prediction must be (M, S, K, C, *N), members first, beside a truth "
                f"(S, K, C, *N), but they are {made} and {true}"
            )
        if 0 in made:
            raise ValueError(f"there is nothing to score: the prediction's shape is {made}")
        axes = len(true) - 3
        object.__setattr__(self, "mask", _checked(self.mask, true[3:]))
        if self.correlate not in ("field", "vorticity"):
            raise ValueError(f"correlate is field or vorticity, not {self.correlate!r}")
        if self.correlate == "vorticity" and (self.mask is not None or axes != 2):
            raise ValueError(
                "a vorticity is compared in the plane, without a mask, at whose edge it is not known; correlate the field"
            )
        steps = self.steps or (*(s for s in STEPS if s <= self.frames), self.frames)
        filled = {
            "spacing": each_axis(self.spacing or 1.0, axes, "spacing"),
            "periodic": each_axis(self.periodic or True, axes, "periodic"),
            "steps": tuple(sorted({check_step(s, self.frames) + 1 for s in steps})),
        }
        for name, value in filled.items():
            object.__setattr__(self, name, value)

    @classmethod
    def on(
        cls,
        layout: Layout,
        prediction: Array,
        truth: Array,
        *,
        spread: Scale | None = None,
        steps: Iterable[int] = (),
        correlate: str | None = None,
        mask: Mask | None = None,
        globe: Globe | None = None,
    ) -> Scene:
        """A scene with the time step and the grid of `layout`.

        Unless told, a velocity in the plane is correlated by its vorticity, all else as it is:
        what is masked too, because a derivative across the edge of a mask is none.
        """
        return cls(
            prediction,
            truth,
            dt=layout.dt,
            spacing=layout.spacing,
            periodic=layout.periodic,
            spread=spread,
            steps=tuple(steps),
            correlate=correlate or (layout.correlate if mask is None else "field"),
            mask=mask,
            globe=globe,
        )

    @property
    def first(self) -> Array:
        """Member 0, (S, K, C, *N): the one that scores of single trajectories are of."""
        found: Array = self.prediction[0]
        return found

    @property
    def frames(self) -> int:
        """K, the number of predicted frames."""
        return int(self.truth.shape[1])

    @cached_property
    def points(self) -> Scene:
        """The valid points alone, as a scene in one dimension."""
        if self.mask is None:
            return self
        made, true = at_points(self.prediction, self.mask), at_points(self.truth, self.mask)
        globe = None if self.globe is None else self.globe.at(self.mask)
        return replace(self, prediction=made, truth=true, mask=None, spacing=(), periodic=(), globe=globe)

    @cached_property
    def grids(self) -> Scene:
        """Whole grids: under the mask both hold the truth's mean over valid points, per channel."""
        if self.mask is None:
            return self
        channels = double(self.points.truth).transpose(0, 2).flatten(1)
        means = channels.mean(1).tolist()
        made, true = filled(self.prediction, self.mask, means), filled(self.truth, self.mask, means)
        return replace(self, prediction=made, truth=true, mask=None)


def _checked(mask: Mask | None, grid: tuple[int, ...]) -> Mask | None:
    """The mask of this grid; one that leaves out nothing is none."""
    if mask is None:
        return None
    if tuple(mask.shape) != grid:
        raise ValueError(f"a mask must have the shape of the grid, {grid}, but this one is {tuple(mask.shape)}")
    if not bool(mask.any()):
        raise ValueError("the mask leaves no valid point to score")
    return None if bool(mask.all()) else mask


@dataclass(frozen=True)
class Result:
    """One number of a metric under the name of its row; what is not finite becomes None there.

    `step` is the predicted frame, counted from 1, or None for a number about whole trajectories.
    """

    name: str
    value: SupportsFloat | Interval
    step: int | None = None


Metric = Callable[[Scene], Iterable[Result]]
