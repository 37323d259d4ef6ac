"""The direct model: one network call maps the condition to the answer."""

from __future__ import annotations

from typing import ClassVar

import torch

from biasbound.core.losses import Scalar
from biasbound.core.mask import cleared, mean_square
from biasbound.core.noise import Condition, State
from biasbound.models.model import Examples, Model

__all__ = ["Direct"]


class Direct(Model):
    """ŷ = net(x), or guess(x) + r·net(x) with the residual target."""

    noisy: ClassVar[bool] = False
    accepts: ClassVar[frozenset[str]] = frozenset({"residual", "unroll", "pushforward", "finetune"})
    finetunes: ClassVar[tuple[str, ...]] = ("full",)

    def advance(self, x: Condition, generator: torch.Generator | None = None) -> State:
        return cleared(self.frame.target.decode(self.ask(x), x), self.mask)

    def loss(self, batch: Examples, generator: torch.Generator) -> Scalar:
        """Mean over the targets of ‖ŷ − y‖², in units of the target; each answer is fed back.

        With `detach` the gradient is cut between targets, so that each error trains only the step that made it.
        """
        x, targets = self.windows(batch)
        follow, unit, errors = self.frame.task.follow, self.frame.target.unit(targets[0]), []
        for y in targets:
            answer = self.advance(x)
            errors.append(mean_square((answer - y) / unit, self.mask).mean())
            x = follow(x, answer.detach() if self.recipe.detach else answer)
        return torch.stack(errors).mean()
