"""Schedules and models of diffusers (the extra `interop`).

diffusers keeps its tables in float32, where σ = 1e-4 is already 0: what is made here has a table in float64, and levels
are read from betas and ratios, never from float32 values of ᾱ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from biasbound.core.denoise import PREDICTIONS, Denoiser
from biasbound.core.interop import betas, edm
from biasbound.core.noise import Condition, Sigma, State, alpha_bar, coefficients, log_snr
from biasbound.core.sample import Transition
from biasbound.registry import extra

__all__ = ["denoiser_of", "levels_of", "scheduler_of", "timesteps_of"]

RULES = {"epsilon": "eps", "sample": "x0", "v_prediction": "v"}  # their names for ours


def scheduler_of(
    sigma: Sequence[float], transition: Transition = "renoise", like: Any = None, prediction: str = "epsilon"
) -> Any:
    """A scheduler of diffusers that visits these levels.

    `like` is the scheduler that a network was trained with: the new one tells the network the timesteps that it knows
    for these levels, and takes over its prediction type. Without it timesteps are 0 … T; then `ddim` is diffusers' own
    `DDIMScheduler`, and all else a `LadderScheduler`.
    """
    library = extra("diffusers", "a scheduler of diffusers", "interop")
    from biasbound.core.interop.scheduler import LadderScheduler

    if like is not None:
        told = timesteps_of(torch.tensor(sigma, dtype=torch.float64), like).tolist()
        return LadderScheduler(list(sigma), transition, like.config.prediction_type, told)
    if transition != "ddim":
        return LadderScheduler(list(sigma), transition, prediction)
    made = library.DDIMScheduler(
        num_train_timesteps=len(sigma),
        trained_betas=betas.betas_of(sigma),
        clip_sample=False,
        set_alpha_to_one=True,
        prediction_type=prediction,
    )
    made.alphas_cumprod = torch.tensor([alpha_bar(s) for s in sigma], dtype=torch.float64)
    made.set_timesteps(len(sigma))
    return made


def levels_of(scheduler: Any) -> list[float]:
    """The levels that a scheduler's chain visits as it is set now (`set_timesteps`), increasing."""
    if (own := getattr(scheduler, "schedule", None)) is not None:
        return list(own.sigma)
    if getattr(scheduler, "sigmas", None) is not None:
        if "Flow" in type(scheduler).__name__:
            raise ValueError(
                f"{type(scheduler).__name__} mixes signal and noise linearly: give Schedule.from_edm its ratios σ/(1 − σ)"
            )
        return edm.levels_of({float(r) for r in scheduler.sigmas})
    table = _table(scheduler)
    return [table[int(t)] for t in sorted({int(t) for t in scheduler.timesteps})]


def timesteps_of(sigma: Float[Tensor, " B"], scheduler: Any) -> Float[Tensor, " B"]:
    """The timestep of a scheduler's training at each level: linear in log-SNR between its own, constant beyond."""
    table = torch.tensor([s for s in _table(scheduler) if s < 1], dtype=torch.float64)
    found = np.interp(-log_snr(sigma.detach().cpu()).numpy(), -log_snr(table).numpy(), np.arange(len(table)))
    return torch.from_numpy(found)


def denoiser_of(model: Callable[[Tensor, Tensor], Any], scheduler: Any) -> Denoiser:
    """A denoiser from a model of diffusers and the scheduler that it was trained with.

    The model is called as `model(field, timestep)` with y_t and x along the channels of the field, and returns a tensor
    or an object with `.sample`; a model that takes them otherwise needs a function around it.
    """
    rule = PREDICTIONS[RULES[scheduler.config.prediction_type]]

    def denoiser(y_t: State, x: Condition, sigma: Sigma) -> State:
        level = torch.as_tensor(sigma, dtype=torch.float64).expand(len(y_t))
        answer: Any = model(torch.cat([y_t, x], 1), timesteps_of(level, scheduler).to(y_t))
        return rule.estimate(getattr(answer, "sample", answer), y_t, *coefficients(sigma, y_t))

    return denoiser


def _table(scheduler: Any) -> list[float]:
    """σ of every timestep of the training, in float64."""
    found = scheduler.config.get("trained_betas")
    if found is None:
        found = getattr(scheduler, "betas", None)
    if found is None:
        raise ValueError(f"{type(scheduler).__name__} has no betas that say what its timesteps mean")
    return betas.levels_of(found)
