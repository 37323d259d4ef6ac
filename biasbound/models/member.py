r"""A direct model with noise as an input, which the fair CRPS teaches to spread (after U-Cast, 2026).

    ŷ_m = net(x, ξ_m),    ξ_m ~ N(0, I) with the shape of y, as more channels of x

It is trained on squared errors, which teach it to ignore ξ, and then on the fair CRPS of M = 2 members,

    CRPS = (1/M) Σ_m |ŷ_m − y| − 1/(2M(M − 1)) Σ_{m,n} |ŷ_m − ŷ_n|,

with M passes of the network per sample. An answer is one call per member. Equal members have the mean absolute error.
Fine-tuned by `ucrps` the score is that of M rollouts, averaged over their frames.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from biasbound.core.losses import Scalar, crps_loss
from biasbound.core.mask import cleared, valid
from biasbound.core.noise import Condition, State, draw
from biasbound.models.model import Examples, Model, Recipe

__all__ = ["Member"]


class Member(Model):
    """ŷ = net(x, ξ), or guess(x) + r·net(x, ξ) with the residual target."""

    noisy: ClassVar[bool] = False
    accepts: ClassVar[frozenset[str]] = frozenset({"residual", "finetune"})
    finetunes: ClassVar[tuple[str, ...]] = ("crps", "ucrps")

    @classmethod
    def extra(cls, channels: int) -> int:
        return channels

    @classmethod
    def passes(cls, recipe: Recipe, levels: int) -> float:
        return float(recipe.members * (1 + recipe.unroll))

    def advance(self, x: Condition, generator: torch.Generator | None = None) -> State:
        return self.answer(x, draw(self.frame.task.guess(x, self.frame.channels), generator))

    def answer(self, x: Condition, noise: State) -> State:
        """The member of this noise."""
        return cleared(self.frame.target.decode(self.ask(torch.cat([x, noise], 1)), x), self.mask)

    def loss(self, batch: Examples, generator: torch.Generator) -> Scalar:
        """In units of the target: ‖ŷ − y‖² of one member, or the fair CRPS of several answers or rollouts."""
        x, targets = self.windows(batch)
        recipe, unit = self.recipe, self.frame.target.unit(targets[0])

        def answer(x: Condition, y: State) -> State:  # apart, as a batch that is divided among processes needs it
            return self.answer(x, draw(y, generator))

        def error(made: State, y: State) -> Tensor:
            return valid((made - y) / unit, self.mask)

        if recipe.members == 1:
            return error(answer(x, targets[0]), targets[0]).square().mean()
        follow = self.frame.task.follow
        return crps_loss(answer, error, x, targets, follow, members=recipe.members, detach=recipe.detach)
