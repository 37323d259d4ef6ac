"""Mean and spread of fields and of their one-step increments, in one streaming pass in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64

Place = tuple[Sequence[int] | Int64[np.ndarray, "_"], Sequence[int]]  # stored numbers of trajectories and frames


def require_finite(fields: Float[np.ndarray, "n k C *N"], channels: Sequence[str], place: Place, name: str) -> None:
    """Refuse NaN and infinity, saying where they stand."""
    if not np.isfinite(fields).all():
        s, k, c, *point = np.argwhere(~np.isfinite(fields))[0].tolist()
        where = f"trajectory {place[0][s]}, frame {place[1][k]}, channel {channels[c]}"
        raise ValueError(f"{name}: found {fields[s, k, c, *point]} in {where}; expected finite values")


@dataclass(frozen=True)
class Statistics:
    """Per channel: mean and standard deviation of x^k, and of the increment x^{k+1} − x^k.

    Standard deviations divide by the number of values (not by one less). Increments are NaN where trajectories have
    one frame. `condition_*` hold the same for scalars given as extra channels.
    """

    mean: Float64[np.ndarray, " C"]
    std: Float64[np.ndarray, " C"]
    increment_mean: Float64[np.ndarray, " C"]
    increment_std: Float64[np.ndarray, " C"]
    condition_mean: Float64[np.ndarray, " P"] = field(default_factory=lambda: np.zeros(0))
    condition_std: Float64[np.ndarray, " P"] = field(default_factory=lambda: np.zeros(0))


class _Running:
    """Count, mean and sum of squared deviations M₂ per channel, merged piece by piece (Chan et al.).

    δ = m_b − m_a,   m = m_a + δ n_b/n,   M₂ = M₂a + M₂b + δ² n_a n_b/n
    """

    def __init__(self, channels: int) -> None:
        self.count, self.mean, self.square = 0, np.zeros(channels), np.zeros(channels)

    def add(self, values: Float[np.ndarray, "n k C *N"]) -> None:
        axes, new = (0, 1, *range(3, values.ndim)), values.size // values.shape[2]
        if new == 0:
            return
        with np.errstate(over="ignore", invalid="ignore"):  # told in `moments`
            mean = values.mean(axis=axes, dtype=np.float64)
            shaped = mean.reshape(1, 1, -1, *[1] * (values.ndim - 3))
            square = np.square(values - shaped).sum(axis=axes)
            delta, total = mean - self.mean, self.count + new
            self.mean += delta * (new / total)
            self.square += square + np.square(delta) * (self.count * new / total)
        self.count = total

    def moments(self) -> tuple[Float64[np.ndarray, " C"], Float64[np.ndarray, " C"]]:
        """Mean and standard deviation; NaN of nothing."""
        if not self.count:
            return np.full_like(self.mean, np.nan), np.full_like(self.mean, np.nan)
        if not np.isfinite(self.square).all():
            channel = int(np.argmin(np.isfinite(self.square)))
            raise ValueError(f"channel {channel} has values whose squares float64 cannot hold; rescale the data")
        return self.mean.copy(), np.sqrt(self.square / self.count)


class Moments:
    """Statistics of pieces (n, k, C, *N) that come in order of trajectory, then of frame; only valid points count."""

    def __init__(self, channels: int, mask: Bool[np.ndarray, " *N"] | None = None) -> None:
        self._fields, self._increments, self._mask = _Running(channels), _Running(channels), mask
        self._last: tuple[int, int, np.ndarray] | None = None

    def add(self, fields: Float[np.ndarray, "n k C *N"], start: int = 0, frame: int = 0) -> None:
        """Take in frames [frame, frame + k) of the trajectories from `start`."""
        if self._mask is not None:
            fields = fields[:, :, :, self._mask]
        self._fields.add(fields)
        wide = fields.astype(np.float64, copy=False)
        with np.errstate(over="ignore"):
            self._increments.add(np.diff(wide, axis=1))
            if self._last is not None and self._last[:2] == (start, frame):
                self._increments.add(wide[:, :1] - self._last[2])  # across two pieces of one trajectory
        self._last = (start, frame + fields.shape[1], wide[-1:, -1:]) if len(fields) == 1 else None

    def statistics(self) -> Statistics:
        return Statistics(*self._fields.moments(), *self._increments.moments())
