"""The continuous ranked probability score of an ensemble: what is trained on, searched by and reported."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["crps"]


def crps(errors: Float[Tensor, "M ..."], fair: bool = True) -> Float[Tensor, ...]:
    """The score of M members at every point, from their errors e_i = x_i − y.

        CRPS = (1/M) Σ_i |e_i| − (1/2Q) Σ_ij |e_i − e_j|,   Q = M(M − 1) if fair, else M²

    The fair score has the same expectation for any number of members, from two on. The plain score
    of a single member is its absolute error.
    """
    count = len(errors)
    if fair and count < 2:
        raise ValueError("the fair CRPS needs at least 2 members; use fair=False for one")
    weights = 2 * torch.arange(1, count + 1, dtype=errors.dtype, device=errors.device) - count - 1
    # Σ_ij |e_i − e_j| = 2 Σ_i (2i − M − 1) e_(i) for sorted members.
    gaps = 2 * (weights.reshape(-1, *[1] * (errors.ndim - 1)) * errors.sort(0).values).sum(0)
    return errors.abs().mean(0) - gaps / (2 * count * (count - 1 if fair else count))
