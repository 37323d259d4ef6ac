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
from biasbound.core.crps import crps

__all__ = ["Score", "pair_scores"]

Score = Literal["error", "crps"]


def pair_scores(errors: Float[Tensor, "M B ..."], score: Score = "error") -> Float64[Tensor, " B"]:
    """Per pair: ‖e‖, the mean over the draws, or the fair CRPS of the draws, the mean over channels and grid points."""
    if score == "crps":
        return crps(errors.double()).flatten(1).mean(1)
    return torch.stack([error_norm(one) for one in errors]).mean(0)
