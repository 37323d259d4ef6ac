r"""Betas: β_t = 1 − ᾱ_t/ᾱ_{t−1}, with ᾱ_{−1} = 1."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch

from biasbound.core.noise import alpha_bar

__all__ = ["betas_of", "levels_of"]


def betas_of(sigma: Iterable[float]) -> list[float]:
    """β_t = (σ_t² − σ_{t−1}²)/ᾱ_{t−1}: the same, without cancellation at small σ."""
    return [(high - low) * (high + low) / alpha_bar(low) for low, high in pairwise([0.0, *sigma])]


def levels_of(betas: Iterable[Any]) -> list[float]:
    """σ_t = √(1 − ᾱ_t) with ᾱ_t = Π (1 − β_s), without cancellation at small σ."""
    given = torch.as_tensor([float(b) for b in betas], dtype=torch.float64)
    found: list[float] = torch.sqrt(-torch.expm1(torch.log1p(-given).cumsum(0))).tolist()
    return found
