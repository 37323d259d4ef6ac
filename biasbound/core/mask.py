"""A static mask of valid points: land, a solid body and missing values are not part of the problem.

In the network's units a field is 0 at masked points (`cleared`), and only valid points count in losses and errors
(`valid`). The mask belongs to the denoiser, so that whoever measures one need not be told. Without a mask every field
stays what it is.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["Mask", "cleared", "error_of", "mask_of", "mean_square", "valid"]

Mask = Bool[Tensor, " *N"]  # True: valid


def cleared(field: Float[Tensor, ...], mask: Mask | None) -> Float[Tensor, ...]:
    """The field (…, *N) with 0 at masked points, whatever it holds there."""
    return field if mask is None else torch.where(mask, field, 0.0)


def valid(field: Float[Tensor, ...], mask: Mask | None) -> Float[Tensor, ...]:
    """The valid points alone: (…, *N) becomes (…, n)."""
    return field if mask is None else field[..., mask]


def mean_square(error: Float[Tensor, "B ..."], mask: Mask | None) -> Float[Tensor, " B"]:
    """Of each sample over the valid points: Σ m e² / Σ m. Unlike `valid` it need not know how many there are."""
    mean = cleared(error, mask).square().flatten(1).mean(1)
    return mean if mask is None else mean * (mask.numel() / mask.sum())


def mask_of(denoiser: Any) -> Mask | None:
    """The denoiser's own mask, if it has one."""
    found: Mask | None = getattr(denoiser, "mask", None)
    return found


def error_of(denoiser: Any, estimate: Float[Tensor, ...], y: Float[Tensor, ...]) -> Float[Tensor, ...]:
    """estimate − y where the denoiser's points are valid."""
    return valid(estimate - y, mask_of(denoiser))
