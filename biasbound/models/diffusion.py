"""The diffusion model: a denoiser, the levels of its chain and the transition between them, as one thing.

Search, training, measurements, rollouts and the saved emulator all read the schedule and the transition here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from biasbound.core.denoise import NetDenoiser, Scaled
from biasbound.core.losses import Scalar, aside, crps_loss, diffusion_loss, full_unrolled_loss, proxy_unrolled_loss
from biasbound.core.mask import error_of
from biasbound.core.noise import Condition, State
from biasbound.core.sample import Correct, Transition, sample
from biasbound.core.schedule import Schedule
from biasbound.models.model import Examples, Frame, Model, Recipe, Settings

__all__ = ["Diffusion", "chain_of"]


class Diffusion(NetDenoiser, Model):
    """y by the reverse chain over `schedule`; called as a denoiser it is y_est = model(y_t, x, σ).

    `schedule` is also what the loss draws its levels from; an exploration changes it while it goes on.
    """

    accepts: ClassVar[frozenset[str]] = frozenset(
        {"schedule", "prediction", "residual", "focus", "transition", "finetune", "sampler"}
    )
    samplers: ClassVar[tuple[str, ...]] = ("ode",)
    finetunes: ClassVar[tuple[str, ...]] = ("proxy", "full", "crps", "ucrps")

    def __init__(
        self,
        net: Any,
        frame: Frame,
        *,
        schedule: Schedule | None = None,
        prediction: str = "eps",
        transition: Transition = "renoise",
        c: float | None = None,
    ) -> None:
        super().__init__(net, prediction, frame.target, frame.mask)
        if c is not None:
            self.rescale(c)
        if schedule is None:
            raise ValueError("a diffusion model needs a noise schedule")
        if transition not in get_args(Transition):
            raise ValueError(f"unknown transition {transition!r}; choose from {', '.join(get_args(Transition))}")
        self.frame, self.schedule, self.transition = frame, schedule, transition

    @classmethod
    def options(cls, method: Any, settings: Settings) -> dict[str, Any]:
        return {"schedule": settings.schedule, "prediction": method.prediction, "transition": settings.transition}

    def spec(self) -> dict[str, Any]:
        found = {"c": self.rule.c} if isinstance(self.rule, Scaled) and self.prediction == "scaled" else {}
        return {"prediction": self.prediction, "transition": self.transition, **found}

    def resample(self, sampler: str = "", calls: int = 0) -> None:
        """`ode`: down the same levels without fresh noise, by the transition ddim."""
        super().resample(sampler, calls)
        if sampler:
            self.transition = "ddim"

    @property
    def calls(self) -> int:
        return len(self.schedule)

    def call(self, z_t: State, x: Condition, log_snr: Float[Tensor, " B"]) -> State:
        return self.ask(z_t, x, log_snr)

    @classmethod
    def passes(cls, recipe: Recipe, levels: int) -> float:
        """A proxy with n = 0 shares its pass at σ_0 with the loss; each member is a whole chain."""
        if recipe.members > 1:
            return float(recipe.members * levels * (1 + recipe.unroll))
        proxy = aside(recipe.lowest(levels)) if recipe.n == 0 else recipe.n + 1
        return 1.0 + recipe.unroll * (1 + {"own": 0, "proxy": proxy, "full": levels}[recipe.between])

    def loss(self, batch: Examples, generator: torch.Generator) -> Scalar:
        x, targets = self.windows(batch)
        recipe, follow = self.recipe, self.frame.task.follow
        if recipe.members > 1:
            return self._score(x, targets, generator)
        if recipe.unroll == 0:
            return diffusion_loss(self, x, targets[0], self.schedule, generator=generator, share=recipe.share)
        proxy = recipe.between == "proxy"
        unrolled = partial(proxy_unrolled_loss, n=recipe.n) if proxy else full_unrolled_loss
        return unrolled(
            self,
            x,
            targets,
            self.schedule,
            follow,
            detach=recipe.detach,
            generator=generator,
            transition=self.transition,
            share=recipe.share,
        )

    def _score(self, x: Condition, targets: Sequence[State], generator: torch.Generator) -> Scalar:
        """The fair CRPS of a few answers or rollouts in units of the target, with gradients through their chains."""
        unit, recipe = self.frame.target.unit(targets[0]), self.recipe
        how: dict[str, Any] = {"transition": self.transition, "generator": generator, "allow_nonfinite": True}
        return crps_loss(
            lambda x, y: sample(self, x, self.schedule, like=y, **how),
            lambda made, y: error_of(self, made / unit, y / unit),
            x,
            targets,
            self.frame.task.follow,
            members=recipe.members,
            detach=recipe.detach,
        )

    def advance(self, x: Condition, generator: torch.Generator | None = None) -> State:
        return self.corrected(x, generator, None)

    def corrected(self, x: Condition, generator: torch.Generator | None, correct: Correct | None) -> State:
        return sample(
            self,
            x,
            self.schedule,
            transition=self.transition,
            generator=generator,
            like=self.frame.task.guess(x, self.frame.channels),
            correct=correct,
            allow_nonfinite=True,
        )


def chain_of(model: Model) -> Diffusion | None:
    """The model where it has a chain of noise levels to measure; None for any other kind."""
    return model if isinstance(model, Diffusion) else None
