"""What every score asks of its arrays, and which of their frames count.

Predictions and truth are (S, K, C, *N): trajectories, predicted frames, channels, grid. Both NumPy
and torch arrays of any float type will do, memory-mapped or not: trajectories are taken one at a
time and become float64.

A trajectory is *broken* from its first non-finite frame on, whatever its later frames hold. The
truth must be finite.

Where a mask says that some points are not valid (land, a body, missing values), scores are those
of the valid points alone (`at_points`), or of whole grids that hold the same values under the mask
(`filled`). What stands under the mask, NaN included, then has no part in any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

__all__ = [
    "Array",
    "Mask",
    "at_points",
    "broken",
    "broken_frames",
    "check_step",
    "escaped",
    "filled",
    "pairs",
    "per_frame",
    "trajectories",
]

Array = Float[Tensor, "..."] | Float[np.ndarray, "..."]
Mask = Bool[np.ndarray, "..."] | Bool[Tensor, "..."]  # *N, True where a point is valid


def at_points(fields: Array, mask: Mask | None) -> Array:
    """The valid points of fields (…, *N), as (…, n): an array in its own right."""
    if mask is None:
        return fields
    return fields[..., torch.as_tensor(mask, device=fields.device) if isinstance(fields, Tensor) else np.asarray(mask)]


def filled(fields: Array, mask: Mask | None, values: Sequence[float]) -> Array:
    """Fields (…, C, *N) whose masked points hold `values`, one per channel."""
    if mask is None:
        return fields
    column = (-1, *[1] * mask.ndim)
    if isinstance(fields, Tensor):
        return torch.where(
            torch.as_tensor(mask, device=fields.device), fields, fields.new_tensor(list(values)).reshape(column)
        )
    return np.where(np.asarray(mask), fields, np.asarray(values, dtype=fields.dtype).reshape(column))


def double(array: Array) -> Float64[Tensor, " *N"]:
    """A float64 tensor on the CPU; a copy where the array cannot be shared."""
    if isinstance(array, Tensor):
        return array.detach().to("cpu", torch.float64)
    return torch.from_numpy(np.array(array, dtype=np.float64))


def check(pred: Array, truth: Array) -> None:
    """Refuse arrays that are not two (S, K, C, *N) of the same shape."""
    if pred.ndim < 4:
        raise ValueError(
            f"a prediction must have the shape (S, K, C, *N), trajectories first, but this one is {tuple(pred.shape)}"
        )
    if tuple(pred.shape) != tuple(truth.shape):
        raise ValueError(
            f"prediction {tuple(pred.shape)} and truth {tuple(truth.shape)} must have the same shape (S, K, C, *N)"
        )
    if 0 in tuple(pred.shape):
        raise ValueError(f"there is nothing to score: the shape is {tuple(pred.shape)}")


def check_step(step: int | None, frames: int) -> int:
    """The index of predicted frame `step`, which counts from 1; None is the last."""
    step = frames if step is None else step
    if not 1 <= step <= frames:
        raise ValueError(f"step {step} is not one of the predicted frames 1 … {frames}")
    return step - 1


def require_finite(truth: Float64[Tensor, "K ..."], s: int) -> None:
    """Refuse a truth that is not finite: no score against it means anything."""
    if not bool(truth.isfinite().all()):
        k = int((~truth.flatten(1).isfinite().all(1)).int().argmax()) + 1
        raise ValueError(f"the truth of trajectory {s} is not finite at step {k}; leave that trajectory out")


def trajectories(fields: Array) -> Iterator[Float64[Tensor, "K C *N"]]:
    """The trajectories one at a time, in float64."""
    for s in range(fields.shape[0]):
        yield double(fields[s])


def pairs(pred: Array, truth: Array) -> Iterator[tuple[Float64[Tensor, "K C *N"], Float64[Tensor, "K C *N"]]]:
    """Prediction and truth of one trajectory after the other, checked."""
    check(pred, truth)
    for s, (a, b) in enumerate(zip(trajectories(pred), trajectories(truth), strict=True)):
        require_finite(b, s)
        yield a, b


def broken_frames(fields: Float64[Tensor, "K ..."]) -> Bool[Tensor, " K"]:
    """Frames of one trajectory from its first non-finite one on."""
    bad = ~fields.flatten(1).isfinite().all(1)
    return bad.int().cummax(0).values.bool()


def per_frame(
    pred: Array, truth: Array, score: Callable[[Tensor, Tensor], Tensor], otherwise: float
) -> Float64[Tensor, "S K"]:
    """`score` of the frames (K, C, *N) of each trajectory.

    It is `otherwise` where the trajectory is broken or the score overflows.
    """
    table = []
    for a, b in pairs(pred, truth):
        lost = broken_frames(a)
        values = score(torch.where(lost.reshape(-1, *[1] * (a.ndim - 1)), 0.0, a), b)
        table.append(torch.where(lost | ~values.isfinite(), otherwise, values))
    return torch.stack(table)


def first(bad: Sequence[Bool[Tensor, " K"]]) -> Int64[Tensor, " S"]:
    """The step, counted from 1, of each trajectory's first bad frame; 0 where there is none."""
    table = torch.stack(list(bad))
    return torch.where(table.any(1), table.int().argmax(1) + 1, 0)


def broken(pred: Array) -> Int64[Tensor, " S"]:
    """The step, counted from 1, of each trajectory's first non-finite frame; 0 if there is none.

    Only NaN and ±∞ count. States that are finite but absurd are scored as they are, never clipped:
    their errors are large and their correlation is low. `escaped` counts them.
    """
    return first([broken_frames(a) for a in trajectories(pred)])


def escaped(pred: Array, truth: Array, factor: float = 10.0) -> Int64[Tensor, " S"]:
    """The step of each trajectory's first frame beyond `factor` × the truth's largest value.

    Steps count from 1; 0 means never. The largest magnitude is taken for each channel over all of
    the truth. Non-finite frames count as well.
    """
    if factor <= 0:
        raise ValueError(f"the factor of an escape must be positive, got {factor}")
    check(pred, truth)
    axes = (0, *range(2, truth.ndim - 1))
    largest = torch.stack([b.abs().amax(axes) for b in trajectories(truth)]).amax(0)
    limit = factor * largest.reshape(-1, *[1] * (truth.ndim - 3))
    return first([~(a.abs() <= limit).flatten(1).all(1) for a, _ in pairs(pred, truth)])
