"""What is known beside an emulator, and where in a rollout it enters.

A correction takes a state in physical units and gives the one to go on with. It is asked for every clean estimate of a
chain, before noise is added to it again, and for the answer. Where it has nothing to say, it returns the very state
that it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from biasbound.core.constraints import Projection
from biasbound.core.noise import State

__all__ = ["Correction", "Moment", "all_of", "always"]


@dataclass(frozen=True)
class Moment:
    """Where a rollout stands: the frame k ≥ 1 that is being made, and the noise level of the estimate of it.

    `last` tells the answer itself from an estimate on the way to it; an answer without a chain has σ = 0. Random numbers
    that a correction needs come from `generator`.
    """

    step: int
    sigma: float
    last: bool
    generator: torch.Generator | None = None


Correction = Callable[[State, Moment], State]


def always(project: Projection) -> Correction:
    """A constraint as a correction: at every step and every level."""
    return lambda state, moment: project(state)


def all_of(*corrections: Correction | None) -> Correction:
    """One after the other; None has nothing to say."""

    def correct(state: State, moment: Moment) -> State:
        for correction in corrections:
            if correction is not None:
                state = correction(state, moment)
        return state

    return correct
