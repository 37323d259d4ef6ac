"""The grid that a search looks at, and the ladder that it finds on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch

from biasbound.core.bias import Estimate, Measure, TwoStepTable
from biasbound.core.denoise import Denoiser
from biasbound.core.noise import Condition, State
from biasbound.core.options import SearchOptions
from biasbound.core.sample import Transition
from biasbound.core.schedule import Schedule, log_uniform
from biasbound.core.search import greedy_schedule, start_level

__all__ = ["StartRule", "grid", "grid_below", "ladder", "measure_of"]

StartRule = Literal["sigma", "error"]


def grid(options: SearchOptions) -> Schedule:
    """The exploration grid."""
    return log_uniform(options.levels, options.sigma_min, options.sigma_max, options.over)


def grid_below(error: float, options: SearchOptions, above: float = 32.0, factor: float = 1.6) -> list[float]:
    """Levels with σ/√ᾱ = above·error, above·error/factor, …, from the highest down.

    Noise far above the error of the estimate from x alone tells nothing new, and noise below it cannot be told from it.
    """
    ratios = (above * error / factor**i for i in range(options.levels - 1))
    return [k / math.sqrt(1 + k * k) for k in ratios]


def measure_of(options: SearchOptions, transition: Transition, shift: int = 0, batch_size: int = 256) -> Measure:
    """How a search measures; `shift` gives each round its own noise."""
    generator = torch.Generator().manual_seed(options.seed + shift)
    return Measure(options.draws, options.power, transition=transition, generator=generator, batch_size=batch_size)


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

    def bias(to: float, start: float) -> Estimate | float:
        return table(to, start) if options.statistic == "mean" else table(to, start).value(options.statistic)

    return greedy_schedule(table.levels, bias, options.tau, start=first, meta={"start": rule}), table
