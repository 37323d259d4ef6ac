"""The task's first guess as the answer: the present state, or an interpolation. There is nothing to train."""

from __future__ import annotations

from typing import ClassVar

import torch

from biasbound.core.losses import Scalar
from biasbound.core.mask import cleared, valid
from biasbound.core.noise import Condition, State
from biasbound.models.model import Examples, Model

__all__ = ["Interpolation", "Persistence"]


class Persistence(Model):
    """ŷ = guess(x), without a network: what every forecast must beat."""

    noisy: ClassVar[bool] = False
    trained: ClassVar[bool] = False
    accepts: ClassVar[frozenset[str]] = frozenset()

    @property
    def calls(self) -> int:
        return 0

    def advance(self, x: Condition, generator: torch.Generator | None = None) -> State:
        return cleared(self.frame.task.guess(x, self.frame.channels), self.mask)

    def loss(self, batch: Examples, generator: torch.Generator) -> Scalar:
        """‖ŷ − y‖² of the first target: there is no gradient."""
        x, (y, *_) = self.windows(batch)
        return valid(self.advance(x) - y, self.mask).square().mean()


class Interpolation(Persistence):
    """The same for a task whose first guess interpolates what was observed: another name for another meaning."""
