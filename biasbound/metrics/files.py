"""Rollouts that anyone's code left on disk, as scenes to be scored."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from biasbound.data.formats.numpy import open_array
from biasbound.data.trajectories import Trajectories
from biasbound.metrics.arrays import Mask, at_points
from biasbound.metrics.globe import Globe
from biasbound.metrics.scene import Scene

__all__ = ["open_scene"]


def open_scene(
    path: str | os.PathLike[str], truth: Trajectories, *, train: Trajectories | None = None, initial: bool = False
) -> Scene:
    """A rollout in a plain .npy array, (S, K, C, *N) or (M, S, K, C, *N), beside the truth.

    Prediction s starts from frame 0 of the truth's trajectory s, and its frames are those that
    follow. `initial` says that the array holds frame 0 itself as well, which is then left out.
    It may have fewer trajectories and frames than the truth. `train` are the trajectories whose
    standard deviations normalise `mse_norm`. The file is memory-mapped and never unpickled.
    """
    path = Path(path)
    found = _matched(path, _open(path, len(truth.shape)), truth, initial)
    return Scene.on(
        truth.layout,
        found,
        truth.read(0, found.shape[1], slice(1, found.shape[2] + 1)),
        spread=None if train is None else train.statistics.std,
        mask=mask_of(truth),
        globe=Globe.of(truth, train),
    )


def mask_of(truth: Trajectories) -> Mask | None:
    """The valid points of trajectories, where not all of them are."""
    found: Mask | None = getattr(truth, "mask", None)
    return found


def _open(path: Path, rank: int) -> np.ndarray:
    """The array, with members first; `rank` is the number of axes of the truth."""
    try:
        found = open_array(path)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{path} cannot be read as a .npy array of floats ({error}); write it with np.save") from None
    if found.dtype.kind != "f":
        raise ValueError(f"{path} holds {found.dtype}; write one array of floats with np.save")
    if found.ndim not in (rank, rank + 1):
        raise ValueError(
            f"{path} has the shape {found.shape}; give it (S, K, C, *N) or (M, S, K, C, *N), "
            f"with {rank - 3} axes *N like the truth"
        )
    return found if found.ndim == rank + 1 else found[None]


def _matched(path: Path, found: np.ndarray, truth: Trajectories, initial: bool) -> np.ndarray:
    """The predicted frames, whose shape must fit the truth's first trajectories and frames."""
    s, k, *state = truth.shape
    if list(found.shape[3:]) != state:
        raise ValueError(
            f"{path} has states {tuple(found.shape[3:])}, but those of {truth.name} are "
            f"{tuple(state)}; give the truth the prediction's channels and stride"
        )
    if not 1 <= found.shape[1] <= s or len(found) < 1:
        raise ValueError(
            f"{path} has {found.shape[1]} trajectories and {len(found)} members; it needs "
            f"1 … {s} trajectories and at least 1 member"
        )
    least, most = (2, k) if initial else (1, k - 1)
    if not least <= found.shape[2] <= most:
        raise ValueError(
            f"{path} has {found.shape[2]} frames; it needs {least} … {most} "
            f"{'with' if initial else 'without'} the initial one"
        )
    _check_start(path, found, truth, initial)
    return found[:, :, 1:] if initial else found


def _check_start(path: Path, found: np.ndarray, truth: Trajectories, initial: bool) -> None:
    """Compare the first frame with what `initial` says.

    Frames that are off by one make any emulator look bad.
    """
    mask = mask_of(truth)
    start = at_points(truth.read(0, found.shape[1], slice(0, 1))[:, 0], mask)
    first, last = (at_points(found[0, :, k], mask) for k in (0, -1))
    near = 1e-4 * float(np.abs(start).max())
    if initial and not np.allclose(first, start, rtol=0, atol=near):
        raise ValueError(
            f"the first frame of {path} is not the initial state of {truth.name}; "
            "align the frames, or leave out initial=True (--initial)"
        )
    # An equal first frame alone proves nothing: a forecast of persistence repeats it for ever.
    if not initial and np.array_equal(first, start) and not np.array_equal(first, last):
        raise ValueError(
            f"the first frame of {path} is the initial state of {truth.name}; say so by initial=True (--initial)"
        )
