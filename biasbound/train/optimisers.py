"""The optimisers by name, each a factory (parameters, lr, weight_decay) → optimiser."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from biasbound.registry import home
from biasbound.train.soap import Soap
from biasbound.train.stacks import Stack, Stacked, adam

__all__ = ["OPTIMISERS", "Muon", "Soap"]

Factory = Callable[[Iterable[nn.Parameter], float, float], torch.optim.Optimizer]


class Muon(Stacked):
    """Muon (Jordan 2024): orthogonalised momentum for matrices, AdamW for vectors.

    U Vᵀ of an out × rest matrix is scaled by 0.2 √max(out, rest): its entries are then as large as
    Adam's, and one learning rate serves matrices and vectors (Liu et al. 2025). In float32, since
    bfloat16 is slower on a CPU; torch's own takes neither kernels nor vectors.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float = 3e-3,
        weight_decay: float = 0.0,
        *,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        super().__init__(parameters, lr=lr, weight_decay=weight_decay, momentum=momentum, betas=betas)

    def _fresh(self, gradient: Tensor) -> dict[str, Tensor]:
        names = ["momentum"] if gradient.ndim == 2 else ["exp_avg", "exp_avg_sq"]
        return {name: torch.zeros_like(gradient) for name in names}

    def _directions(self, group: dict[str, Any], stacks: list[Stack], gradients: list[Tensor]) -> list[Tensor]:
        found = []
        for stack, gradient in zip(stacks, gradients, strict=True):
            if stack.matrices:
                mean = stack.slots["momentum"].lerp_(gradient, 1 - group["momentum"])
                made = _orthogonal(gradient.lerp(mean, group["momentum"]))
                found.append(0.2 * math.sqrt(max(made.shape[1:])) * made)
            else:
                found += adam([stack], [gradient], group["betas"])
        return found


def _orthogonal(x: Tensor) -> Tensor:
    """About U Vᵀ of each U S Vᵀ: five times y ← a y + (b yyᵀ + c (yyᵀ)²) y (Newton–Schulz)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    wide = x if x.shape[-2] <= x.shape[-1] else x.mT
    y: Tensor = wide / wide.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    for _ in range(5):
        gram = y @ y.mT
        y = torch.baddbmm(y, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), y, beta=a)
    return y if wide is x else y.mT


def _adamw(parameters: Iterable[nn.Parameter], lr: float, weight_decay: float) -> torch.optim.AdamW:
    """Adam with a weight decay of its own."""
    every = list(parameters)
    return torch.optim.AdamW(every, lr=lr, weight_decay=weight_decay, fused=_fusible(every))


def _adam_l2(parameters: Iterable[nn.Parameter], lr: float, weight_decay: float) -> torch.optim.Adam:
    """Adam, the paper's; its weight decay is a part of the gradient."""
    every = list(parameters)
    return torch.optim.Adam(every, lr=lr, weight_decay=weight_decay, fused=_fusible(every))


def _fusible(parameters: list[nn.Parameter]) -> bool:
    """Whether torch's fastest kernel takes them: not if one is complex, as in a Fourier neural operator, or has no values."""
    return not any(p.is_complex() or p.is_meta for p in parameters)


OPTIMISERS: dict[str, Factory] = home("optimisers", {"soap": Soap, "muon": Muon, "adamw": _adamw, "adam": _adam_l2})
