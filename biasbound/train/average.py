"""The moving average of a model's weights."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

__all__ = ["MovingAverage"]


class MovingAverage(nn.Module):
    """θ̄ ← d θ̄ + (1 − d) θ with d = min(decay, (1 + n)/(10 + n)) after n updates; buffers are copied.

    The smaller d of the first updates lets the average forget where it started: with d = 0.999 throughout, a tenth
    of the first weights would still be in it after 2,000 updates.

    The state has the names of torch's `AveragedModel`.
    """

    n_averaged: Tensor

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__()
        self.module, self.decay = deepcopy(model).eval(), decay
        self.register_buffer("n_averaged", torch.tensor(0))
        # Kept, because collecting them costs more than averaging them.
        self._means: list[Tensor] = list(self.module.parameters())
        self._weights: list[Tensor] = list(model.parameters())
        self._copies, self._sources = list(self.module.buffers()), list(model.buffers())

    def follow(self, weights: list[Tensor], means: list[Tensor]) -> None:
        """Average these weights into these means from now on: parts of the model's, where it is divided."""
        self._weights, self._means = weights, means

    @torch.no_grad()
    def update(self) -> None:
        """Take in the model's present weights; the first time, they are the average."""
        n = int(self.n_averaged)
        if n == 0:
            torch._foreach_copy_(self._means, self._weights)
        else:
            share = 1 - min(self.decay, (1 + n) / (10 + n))
            torch._foreach_lerp_(self._means, self._weights, share)
        if self._copies:
            torch._foreach_copy_(self._copies, self._sources)
        self.n_averaged += 1
