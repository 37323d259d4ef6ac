"""The grid that a search looks at, and the ladder that it finds on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch

from biasbound.core.bias import Measure, TwoStepTable
from biasbound.core.denoise import Denoiser
from biasbound.core.noise import Condition, State
from biasbound.core.options import SearchOptions
from biasbound.core.sample import Transition
from biasbound.core.schedule import Schedule, log_uniform
from biasbound.core.search import greedy_schedule, start_level

__all__ = ["StartRule", "grid", "ladder", "measure_of"]

StartRule = Literal["sigma", "error"]


def grid(options: SearchOptions) -> Schedule:
    """The exploration grid."""
    return log_uniform(options.levels, options.sigma_min, options.sigma_max, options.over)


def measure_of(options: SearchOptions, transition: Transition, shift: int = 0, batch_size: int = 256) -> Measure:
    """How a search measures; `shift` gives each round its own noise."""
    generator = torch.Generator().manual_seed(options.seed + shift)
    return Measure(options.draws, transition=transition, generator=generator, batch_size=batch_size)


def ladder(
    denoisers: Mapping[float, Denoiser],
    x: Condition,
    y: State,
    options: SearchOptions,
    *,
    start: StartRule = "sigma",
    transition: Transition = "renoise",
) -> tuple[Schedule, TwoStepTable]:
    """Algorithm 2 on the networks of the stable levels, and the biases that it measured.

    `start` is the rule for σ_0 that suits the prediction; `options.start` overrules it.
    """
    table = TwoStepTable(denoisers, x, y, measure_of(options, transition))
    rule = start if options.start == "auto" else options.start
    first = start_level(table.levels, table.clean_error, rule)
    return greedy_schedule(table.levels, table, options.tau, start=first, meta={"start": rule}), table
