"""A ladder as a scheduler of diffusers, with the three transitions of `core.sample` (needs the extra `interop`).

It is the step of our own chain behind their interface, so that both sample the same. Its config keeps every float64, so
that `save_pretrained` and `from_pretrained` lose nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.schedulers.scheduling_ddim import DDIMSchedulerOutput
from diffusers.schedulers.scheduling_utils import SchedulerMixin
from torch import Tensor

from biasbound.core.denoise import PREDICTIONS
from biasbound.core.interop.diffusers import RULES
from biasbound.core.noise import State, coefficients, draw, renoise
from biasbound.core.sample import Transition, descend
from biasbound.core.schedule import Schedule

__all__ = ["LadderScheduler"]

PredictionType = Literal["epsilon", "sample", "v_prediction"]


class LadderScheduler(SchedulerMixin, ConfigMixin):  # type: ignore[misc, unused-ignore]
    """The chain over `sigmas` (increasing); `told` says which timestep the network is told at each level, 0 … T if None."""

    order = 1
    init_noise_sigma = 1.0

    @register_to_config  # type: ignore[untyped-decorator, unused-ignore]
    def __init__(
        self,
        sigmas: Any = (0.1, 0.9),
        transition: Transition = "renoise",
        prediction_type: PredictionType = "epsilon",
        told: Any = None,
    ) -> None:
        self.schedule, self.transition = Schedule(sigmas), transition
        self.rule = PREDICTIONS[RULES[prediction_type]]
        every = range(len(self.schedule)) if told is None else told
        if len(every) != len(self.schedule):
            raise ValueError(f"{len(self.schedule)} levels need as many timesteps to be told, got {len(every)}")
        self._told = torch.as_tensor(list(every)).flip(0)
        self.set_timesteps()

    def set_timesteps(self, num_inference_steps: int | None = None, device: Any = None) -> None:
        """Begin a chain; a ladder has one number of steps."""
        if num_inference_steps not in (None, len(self.schedule)):
            raise ValueError(
                f"this ladder has {len(self.schedule)} steps, not {num_inference_steps}: leave num_inference_steps out"
            )
        self.num_inference_steps = len(self.schedule)
        self.timesteps, self._done = self._told.to(device), 0

    def scale_model_input(self, sample: Tensor, timestep: Any = None) -> Tensor:
        """The sample: our fields are of unit variance."""
        return sample

    def step(
        self,
        model_output: State,
        timestep: Any,
        sample: State,
        generator: torch.Generator | None = None,
        return_dict: bool = True,
    ) -> Any:
        """The sample one level lower; after the last level the estimate itself."""
        t = self._level(timestep)
        sigma = self.schedule.level(t)
        y_est = self.rule.estimate(model_output, sample, *coefficients(sigma, sample))
        below = y_est
        if t > 0:
            noise = partial(draw, sample, generator)
            below = descend(sample, y_est, sigma, self.schedule.level(t - 1), noise, self.transition)
        return DDIMSchedulerOutput(below, y_est) if return_dict else (below, y_est)

    def add_noise(self, original_samples: State, noise: State, timesteps: Tensor) -> State:
        """√ᾱ y + σ ε at the levels of these timesteps, one per sample."""
        order = [self.schedule.top - self._place(t) for t in timesteps]
        sigma = torch.tensor([self.schedule.level(t) for t in order], dtype=torch.float64)
        return renoise(original_samples, sigma.to(noise.device), noise)

    def __len__(self) -> int:
        return len(self.schedule)

    def _level(self, timestep: Any) -> int:
        """Index of the level that the chain is at. Where two levels are told alike, the order of the steps decides."""
        if self._done >= len(self.schedule) or bool(self.timesteps[self._done] != timestep):
            self._done = self._place(timestep)
        self._done += 1
        return self.schedule.top - (self._done - 1)

    def _place(self, timestep: Any) -> int:
        found = (self.timesteps == timestep).nonzero()
        if not len(found):
            raise ValueError(f"{timestep} is none of the timesteps of this ladder: {self.timesteps.tolist()}")
        return int(found[0])
