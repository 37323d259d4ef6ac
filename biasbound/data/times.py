"""The time step of frames whose times are known."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

__all__ = ["even", "time_step"]


def even(points: Float64[np.ndarray, ...], tolerance: float = 0.01) -> bool:
    """Whether points go on in equal steps, up to a share of the step."""
    steps = np.diff(points, axis=-1)
    return bool(steps.size and np.ptp(steps) <= tolerance * abs(float(steps.mean())))


def time_step(time: Float64[np.ndarray, "... K"], name: object) -> float:
    """dt from times that are often float32: the shortest decimal that agrees with them."""
    steps = np.diff(time, axis=-1)
    if steps.size == 0:
        return 1.0
    mean = float(steps.mean())
    if np.ptp(steps) > 0.01 * abs(mean):
        found = f"found time steps from {steps.min():g} to {steps.max():g}, expected equal ones"
        raise ValueError(f"{name}: {found}; give --dt where they may count as equal")
    short = float(f"{mean:.5g}")
    return short if abs(short - mean) < 1e-6 * abs(mean) else mean
