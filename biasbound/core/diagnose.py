r"""The diagnosis of one denoiser that is there already: where its chain leaves its training distribution.

Exploration trains; a diagnosis only measures. On a grid of levels it takes the own-prediction bias and the clean-input
error of the network as it is; the levels within τ and the top are then joined by the greedy rule to the ladder that
suits this network on these data. With a schedule, every bias along its chain is measured too.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from biasbound.core.appendix import Appendices
from biasbound.core.bias import BiasRow, Stability, TwoStepTable, bias_curve, stability
from biasbound.core.denoise import Denoiser
from biasbound.core.ladder import StartRule, grid, ladder, measure_of
from biasbound.core.noise import Condition, State
from biasbound.core.options import SearchOptions
from biasbound.core.sample import Transition
from biasbound.core.schedule import Schedule
from biasbound.core.search import ForcedTransition, NothingSolved

__all__ = ["Diagnosis", "diagnose"]


@dataclass(frozen=True)
class Diagnosis:
    """Stability at every level of the grid; the recommended ladder, if any level is stable; biases along both chains."""

    options: SearchOptions  # what was bounded
    levels: Mapping[float, Stability]
    ladder: Schedule | None
    table: TwoStepTable | None
    along_ladder: tuple[BiasRow, ...]
    schedule: Schedule | None  # the one in use
    along_schedule: tuple[BiasRow, ...]
    appendices: Appendices | None = None

    @property
    def tau(self) -> float:
        return self.options.tau

    @property
    def stable(self) -> tuple[float, ...]:
        """Levels whose own-prediction bias, by the statistic that is bounded, is within τ."""
        bound = self.options.statistic
        return tuple(s for s, found in self.levels.items() if found.own.value(bound) <= self.options.tau_own)

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "tau": self.tau,
            "power": self.options.power,
            "statistic": self.options.statistic,
            "levels": [{"sigma": s, **found.as_dict()} for s, found in self.levels.items()],
            "ladder": None if self.ladder is None else list(self.ladder.sigma),
            "forced": [] if self.ladder is None else self.ladder.meta["forced"],
            "along_ladder": [row.as_dict() for row in self.along_ladder],
            "schedule": None if self.schedule is None else list(self.schedule.sigma),
            "along_schedule": [row.as_dict() for row in self.along_schedule],
            "appendices": None if self.appendices is None else self.appendices.as_dict(),
        }


def diagnose(
    denoiser: Denoiser,
    x: Condition,
    y: State,
    options: SearchOptions,
    schedule: Schedule | None = None,
    *,
    transition: Transition = "renoise",
    start: StartRule = "sigma",
    batch_size: int = 128,
) -> Diagnosis:
    """Measure a denoiser on pairs in its own units; `schedule` and `transition` are those that its chain uses now.

    >>> import torch
    >>> from biasbound.core.oracle import AffineOracle
    >>> deaf = AffineOracle(0.1, 0.0)  # an error of 0.1, whatever the error of its input
    >>> x, y = deaf.pairs((8, 1, 16), torch.Generator().manual_seed(0))
    >>> found = diagnose(deaf, x, y, SearchOptions(levels=4))
    >>> len(found.levels), len(found.stable), len(found.ladder)
    (4, 4, 2)
    """
    how = measure_of(options, transition, batch_size=batch_size)
    levels = {s: stability(denoiser, x, y, s, how) for s in grid(options).sigma}

    def along(chain: Schedule | None) -> tuple[BiasRow, ...]:
        fresh = measure_of(options, transition, batch_size=batch_size)
        return () if chain is None else tuple(bias_curve(denoiser, x, y, chain, fresh))

    stable = [s for s, found in levels.items() if found.own.value(options.statistic) <= options.tau_own]
    found, table = None, None
    if stable:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ForcedTransition)  # in the ladder's record
            every = dict.fromkeys({*stable, max(levels)}, denoiser)
            found, table = ladder(every, x, y, options, start=start, transition=transition)
    return Diagnosis(options, levels, found, table, along(found), schedule, along(schedule))


def require_stable(found: Diagnosis) -> Schedule:
    """The recommended ladder, or a sentence that says what to change."""
    if found.ladder is None:
        least = min(f.own.value(found.options.statistic) for f in found.levels.values())
        raise NothingSolved(
            f"no level of the grid is stable: the lowest own-prediction bias is {least:.4g}, above τ = {found.options.tau_own}; train "
            "the network longer, raise τ, or extend the grid upwards"
        )
    return found.ladder
