"""Squared errors.

The error of a broken frame is +∞, and so is every mean over it: it is never left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from biasbound.metrics.arrays import Array, check_step, per_frame

__all__ = ["VRMSE_EPS", "Scale", "mse", "mse_at", "mse_frames", "nrmse_frames", "vrmse_frames"]

VRMSE_EPS = 1e-7
Scale = Sequence[float] | Float[np.ndarray, " C"] | Float[Tensor, " C"]  # one per channel


def mse_frames(pred: Array, truth: Array, scale: Scale | None = None) -> Float64[Tensor, "S K"]:
    """⟨((x̂_c − x_c)/scale_c)²⟩ over channels and grid, for each trajectory and frame.

    `scale` holds one standard deviation per channel, for errors in normalised units; without it
    they are in the data's. From a trajectory's first non-finite frame on, and where squares
    overflow float64, the error is +∞.
    """
    size = None if scale is None else torch.tensor([float(x) for x in scale], dtype=torch.float64)
    if size is not None and (size.shape != pred.shape[2:3] or not bool((size > 0).all())):
        raise ValueError(f"scale needs one positive number for each of {pred.shape[2]} channels, got {size.tolist()}")

    def error(a: Tensor, b: Tensor) -> Tensor:
        gap = a - b
        if size is not None:
            gap = gap / size.reshape(-1, *[1] * (gap.ndim - 2))
        return gap.square().flatten(1).mean(1)

    return per_frame(pred, truth, error, float("inf"))


def mse_at(pred: Array, truth: Array, step: int, scale: Scale | None = None) -> float:
    """Mean squared error at predicted frame `step`, counted from 1; +∞ if any is broken by then.

    The "10-step MSE" is that of the 10th frame.
    """
    k = check_step(step, pred.shape[1])
    return float(mse_frames(pred[:, : k + 1], truth[:, : k + 1], scale)[:, k].mean())


def mse(pred: Array, truth: Array, scale: Scale | None = None) -> float:
    """Mean squared error over all frames and trajectories; +∞ if any trajectory breaks."""
    return float(mse_frames(pred, truth, scale).mean())


def vrmse_frames(pred: Array, truth: Array, eps: float = VRMSE_EPS) -> Float64[Tensor, "S K"]:
    """√(⟨(x̂ − x)²⟩/(⟨(x − ⟨x⟩)²⟩ + ε)), ⟨·⟩ over the grid, averaged over channels.

    A constant guess of the true mean scores 1. `eps` is in squared units of the field. It matters
    only where the truth is nearly constant in space (a channel that holds the Mach number); there
    the score is the error over √ε. Broken frames: +∞.
    """
    if eps <= 0:
        raise ValueError(f"eps must be positive, got {eps}")

    def error(a: Tensor, b: Tensor) -> Tensor:
        gap, field = (a - b).flatten(2), b.flatten(2)
        variance = field.var(2, correction=0)
        return (gap.square().mean(2) / (variance + eps)).sqrt().mean(1)

    return per_frame(pred, truth, error, float("inf"))


def nrmse_frames(pred: Array, truth: Array) -> Float64[Tensor, "S K"]:
    """‖x̂ − x‖/‖x‖ over the grid, averaged over channels: APEBench's nRMSE, which sums over channels instead.

    A prediction of 0 scores 1. Broken frames: +∞.
    """

    def error(a: Tensor, b: Tensor) -> Tensor:
        gap, field = (a - b).flatten(2), b.flatten(2)
        return (gap.square().sum(2) / field.square().sum(2)).sqrt().mean(1)

    return per_frame(pred, truth, error, float("inf"))
