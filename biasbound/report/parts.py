"""The parts of a study: a search with its landscape, a trained model with its rollout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from biasbound.core.schedule import Schedule

__all__ = ["Landscape", "Model", "Rollout", "Rows", "Search"]

Rows = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Landscape:
    """What Algorithm 2 saw: solved levels from low to high, their clean-input errors, every two-step bias."""

    tau: float
    start: str
    start_sigma: float
    levels: tuple[float, ...]
    clean: Mapping[float, tuple[float, float]]  # σ → (mean, standard error)
    biases: Mapping[tuple[float, float], tuple[float, float]]  # (σ_to, σ_from) → the same

    def bias(self, to: float, start: float) -> float:
        """𝓑^(2S)(σ_to, σ_from)."""
        return self.biases[to, start][0]


@dataclass(frozen=True)
class Search:
    """One schedule search: 02-search/<label>/seed-<s>."""

    label: str
    seed: int
    schedule: Schedule | None = None
    landscape: Landscape | None = None
    levels: tuple[float, ...] = ()  # the exploration grid
    tau: float | None = None  # of the exploration
    solved: tuple[float, ...] = ()
    points: Rows = ()  # one a round and open level
    log: Rows = ()
    dataset: str = ""  # told where a study holds several runs


@dataclass(frozen=True)
class Rollout:
    """Predictions (M, S, K, C, *N): members, test trajectories, frames 1 … K."""

    prediction: Float[np.ndarray, "M S K C *N"]
    dt: float
    broken: tuple[tuple[int, ...], ...] = ()  # (M, S): frame at which it became non-finite, 0 never


@dataclass(frozen=True)
class Model:
    """One trained method: what its training, rollout and evaluation left behind."""

    label: str
    seed: int
    log: Rows = ()
    chain: Rows = ()  # {"update", "rows"}: biases during training
    bias: Rows = ()  # one a level, low → high, on test pairs
    gradients: Rows = ()
    rollout: Rollout | None = None
    dataset: str = ""  # told where a study holds several runs
