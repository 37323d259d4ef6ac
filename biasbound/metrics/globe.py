"""The globe under a grid of latitudes and longitudes: the area of its cells, and the climate there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Float64

from biasbound.data.dimensions import LATITUDE
from biasbound.data.trajectories import Trajectories
from biasbound.metrics.arrays import Mask, at_points

__all__ = ["Globe", "latitude_axis", "latitude_weights"]

Climate = Float64[np.ndarray, "C *N"]


def latitude_weights(degrees: Float[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    """w_j = cos φ_j/⟨cos φ⟩: the area of a cell at latitude φ_j, with mean 1."""
    if np.abs(degrees).max() > 90.001:
        raise ValueError(f"latitudes must be degrees from -90 to 90, but they reach {np.abs(degrees).max():g}")
    area = np.cos(np.deg2rad(np.clip(degrees.astype(np.float64), -90, 90))).clip(0)
    if area.max() < 1e-9:
        raise ValueError("latitudes need a point other than the poles, whose cells have no area")
    found: np.ndarray = area / area.mean()
    return found


def latitude_axis(data: Trajectories) -> int | None:
    """Which space axis is a latitude, by its name or unit; None where none is."""
    units = data.labels.units
    named = (name.lower() in LATITUDE or units.get(name) == "degrees_north" for name in data.labels.axes)
    return next((axis for axis, found in enumerate(named) if found), None)


@dataclass(frozen=True, eq=False)
class Globe:
    """`weights` (*N) have mean 1; `climate` (C, *N) is the mean state, in the order of `channels`."""

    channels: tuple[str, ...]
    weights: Float64[np.ndarray, " *N"]
    climate: Climate

    @classmethod
    def of(cls, truth: Trajectories, train: Trajectories | None = None) -> Globe | None:
        """The globe that data with a latitude lie on; None for all others.

        The climate is the mean of `train`, without it of the truth: at most some hundred frames, spread evenly.
        """
        axis = latitude_axis(truth)
        if axis is None:
            return None
        shape = [-1 if i == axis else 1 for i in range(len(truth.layout.grid))]
        weights = latitude_weights(truth.coordinates[axis]).reshape(shape)
        climate = (train or truth).samples(reads=512).mean(0, dtype=np.float64)
        return cls(truth.channels, np.broadcast_to(weights, truth.layout.grid).copy(), climate)

    def at(self, mask: Mask | None) -> Globe:
        """The same at valid points alone, whose weights again have mean 1."""
        if mask is None:
            return self
        kept = np.asarray(at_points(self.weights, mask))
        return replace(self, weights=kept / kept.mean(), climate=np.asarray(at_points(self.climate, mask)))
