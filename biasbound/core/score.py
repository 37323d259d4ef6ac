"""What ladders are compared by, per pair: the error of a sample, or the score of several samples as an ensemble.

Where the answer is one field, the least error is what counts. Where it is a distribution, the estimate of least error is the
mean of it, which no member looks like: a ladder of one call wins. The continuous ranked probability score is least for
members that are drawn from the true distribution.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from biasbound.core.bias import error_norm

__all__ = ["Score", "crps", "pair_scores"]

Score = Literal["error", "crps"]


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


def pair_scores(errors: Float[Tensor, "M B ..."], score: Score = "error") -> Float64[Tensor, " B"]:
    """Per pair: ‖e‖, the mean over the draws, or the fair CRPS of the draws, the mean over channels and grid points."""
    if score == "crps":
        return crps(errors.double()).flatten(1).mean(1)
    return torch.stack([error_norm(one) for one in errors]).mean(0)
