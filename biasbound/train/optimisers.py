r"""The optimisers by name, each a factory (parameters, lr, weight_decay) → optimiser.

A kernel counts as the matrix out × rest, a complex number as two real ones. Matrices of one shape are stacked and treated together:
small networks have many of them, and calling costs more than computing. Vectors get Adam's update.
An update depends on gradients and state alone, so processes with equal gradients keep equal
weights. The state is tensors per parameter, which `state.pack` saves exactly.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from biasbound.registry import home
from biasbound.train.ranks import shared

__all__ = ["OPTIMISERS", "Muon", "Soap"]

FLOOR = 1e-4  # of L and R, as a share of their trace
Factory = Callable[[Iterable[nn.Parameter], float, float], torch.optim.Optimizer]


class _Stack(NamedTuple):
    """Parameters of one shape and age; each slot has a first axis that counts them."""

    parameters: list[Tensor]
    slots: dict[str, Tensor]
    update: int  # of these parameters, from 1

    @property
    def matrices(self) -> bool:
        return _real(self.parameters[0]).ndim > 1

    def gradient(self) -> Tensor:
        """(n, size) of vectors, (n, out, rest) of matrices."""
        kept = 1 if self.matrices else 0
        return torch.stack([_rows(_real(p.grad), kept) for p in self.parameters if p.grad is not None])


def _real(x: Tensor) -> Tensor:
    """The same memory as real numbers."""
    return torch.view_as_real(x) if x.is_complex() else x


def _rows(x: Tensor, kept: int) -> Tensor:
    return x.reshape(*x.shape[:kept], -1)


class _Stacked(torch.optim.Optimizer):
    """Keeps state in stacks; a parameter's own state is views of them, so that it can be saved."""

    def __init__(self, parameters: Iterable[nn.Parameter], **defaults: Any) -> None:
        self._stacks: dict[tuple[int, ...], list[_Stack]] = {}
        super().__init__(parameters, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """After a load or a copy the stacks are made anew from the state of the parameters."""
        super().__setstate__(state)
        self._stacks = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """θ ← (1 − lr·decay) θ − lr·direction."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            live = [p for p in group["params"] if p.grad is not None]
            if not live:
                continue
            stacks = self._aged(live)
            directions = self._directions(group, stacks, [s.gradient() for s in stacks])
            each = [_real(p) for s in stacks for p in s.parameters]
            moves = [d for many in directions for d in many.unbind()]
            if group["weight_decay"]:
                torch._foreach_mul_(each, 1 - group["lr"] * group["weight_decay"])
            shaped = [d.view(p.shape) for d, p in zip(moves, each, strict=True)]
            torch._foreach_add_(each, shaped, alpha=-group["lr"])
        return loss

    @abstractmethod
    def _directions(self, group: dict[str, Any], stacks: list[_Stack], gradients: list[Tensor]) -> list[Tensor]:
        """Where each stack goes, in the shape of its gradient."""

    @abstractmethod
    def _fresh(self, gradient: Tensor) -> dict[str, Tensor]:
        """The state of a parameter that has none: `gradient` is a vector or a matrix."""

    def _aged(self, live: list[Tensor]) -> list[_Stack]:
        """The stacks of these parameters, one update older; built anew where others take part."""
        key = tuple(map(id, live))
        if key not in self._stacks:
            alike: dict[tuple[Any, ...], list[Tensor]] = {}
            for p in live:
                if not self.state[p]:
                    assert p.grad is not None
                    own = _real(p.grad)
                    made = self._fresh(_rows(own, min(1, own.ndim - 1)))
                    self.state[p] = {"step": torch.zeros((), dtype=torch.int64), **made}
                age = int(self.state[p]["step"])
                alike.setdefault((p.shape, p.dtype, p.device, age), []).append(p)
            self._stacks = {key: [self._stack(many) for many in alike.values()]}
        aged = [s._replace(update=s.update + 1) for s in self._stacks[key]]
        self._stacks[key] = aged
        for stack in aged:
            stack.slots["step"].fill_(stack.update)
        return aged

    def _stack(self, parameters: list[Tensor]) -> _Stack:
        states = [self.state[p] for p in parameters]
        slots = {name: torch.stack([s[name] for s in states]) for name in states[0]}
        for i, state in enumerate(states):
            state.update({name: many[i] for name, many in slots.items()})
        return _Stack(parameters, slots, int(states[0]["step"]))


def _adam(
    stacks: list[_Stack], gradients: list[Tensor], betas: tuple[float, float], eps: float = 1e-8
) -> list[Tensor]:
    """m̂/(√v̂ + eps), with m̂ and v̂ the bias-corrected averages of g and g²."""
    means, squares = ([s.slots[k] for s in stacks] for k in ("exp_avg", "exp_avg_sq"))
    torch._foreach_lerp_(means, gradients, 1 - betas[0])
    torch._foreach_mul_(squares, betas[1])
    torch._foreach_addcmul_(squares, gradients, gradients, 1 - betas[1])
    below, ages = torch._foreach_sqrt(squares), [s.update for s in stacks]
    torch._foreach_div_(below, [math.sqrt(1 - betas[1] ** n) for n in ages])
    torch._foreach_add_(below, eps)
    torch._foreach_mul_(below, [1 - betas[0] ** n for n in ages])
    return list(torch._foreach_div(means, below))


class Soap(_Stacked):
    r"""SOAP (Vyas et al. 2024): Adam in the eigenbasis of Shampoo's two averages of each matrix.

        L ← β₂L + (1−β₂)GGᵀ,   R ← β₂R + (1−β₂)GᵀG,   direction = Q_L Adam(Q_LᵀGQ_R) Q_Rᵀ

    Q_L and Q_R approach the eigenvectors of L and R: they start as the identity, and every
    `every` updates one power iteration with QR refreshes them. Adam's averages live in the basis:
    the mean turns with it. The squares stay: mixing them by the squared entries of the turn lets
    large ones into small ones and trains worse. A side longer than `limit` is not rotated.

    Two choices differ from the authors' code, which starts from the eigenvectors of the first
    gradient and sorts them at each refresh. Where L has no rank, or equal eigenvalues, both follow
    rounding errors, and a training divided among processes drifts away by percents. Here
    L + FLOOR tr(L) stands in for L and nothing is sorted: as good, and continuous in gradients.
    The first updates are then Adam's, and none is lost.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float = 3e-3,
        weight_decay: float = 0.0,
        *,
        betas: tuple[float, float] = (0.95, 0.95),
        every: int = 10,
        limit: int = 512,
    ) -> None:
        super().__init__(parameters, lr=lr, weight_decay=weight_decay, betas=betas, every=every, limit=limit)

    def _fresh(self, gradient: Tensor) -> dict[str, Tensor]:
        made = {"exp_avg": torch.zeros_like(gradient), "exp_avg_sq": torch.zeros_like(gradient)}
        if gradient.ndim == 2:
            for side, size in zip("lr", gradient.shape, strict=True):
                if 1 < size <= self.defaults["limit"]:
                    made[f"cov_{side}"] = gradient.new_zeros(size, size)
                    made[f"basis_{side}"] = torch.eye(size).to(gradient)
        return made

    def _directions(self, group: dict[str, Any], stacks: list[_Stack], gradients: list[Tensor]) -> list[Tensor]:
        turned = [_turn(s, g) for s, g in zip(stacks, gradients, strict=True)]
        adam = _adam(stacks, turned, group["betas"])
        found = [_turn(s, d, back=True) for s, d in zip(stacks, adam, strict=True)]
        due = [side for s, g in zip(stacks, gradients, strict=True) if s.matrices for side in _follow(s, g, group)]
        _refresh(due)
        return found


def _turn(stack: _Stack, x: Tensor, back: bool = False) -> Tensor:
    """Q_Lᵀ x Q_R, or Q_L x Q_Rᵀ."""
    left, right = (stack.slots.get(f"basis_{side}") for side in "lr")
    if left is not None:
        x = (left if back else left.mT) @ x
    if right is not None:
        x = x @ (right.mT if back else right)
    return x


def _follow(stack: _Stack, gradient: Tensor, group: dict[str, Any]) -> list[tuple[_Stack, str]]:
    """Take the gradient into L and R; the sides whose basis is to be refreshed now."""
    share, due = 1 - group["betas"][1], stack.update % group["every"] == 0
    sides = [side for side in "lr" if f"cov_{side}" in stack.slots]
    for side in sides:
        rows = gradient if side == "l" else gradient.mT
        stack.slots[f"cov_{side}"].baddbmm_(rows, rows.mT, beta=1 - share, alpha=share)
    return [(stack, side) for side in sides] if due else []


def _refresh(due: list[tuple[_Stack, str]]) -> None:
    """One power iteration with QR for every basis; the processes of a training share the matrices."""
    powers = []
    for stack, side in due:
        basis, cov = stack.slots[f"basis_{side}"], stack.slots[f"cov_{side}"]
        floor = FLOOR * cov.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None]
        powers.append(torch.baddbmm(floor * basis, cov, basis))
    for (stack, side), new in zip(due, shared(lambda power: torch.linalg.qr(power).Q, powers), strict=True):
        basis = stack.slots[f"basis_{side}"]
        mean = stack.slots["exp_avg"] if side == "l" else stack.slots["exp_avg"].mT
        mean.copy_(_turned(new, basis, mean))
        basis.copy_(new)


def _turned(new: Tensor, old: Tensor, mean: Tensor) -> Tensor:
    """newᵀ old mean, by the cheaper order: Q is often larger than what it turns."""
    return new.mT @ (old @ mean) if mean.shape[-1] <= old.shape[-1] else (new.mT @ old) @ mean


class Muon(_Stacked):
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

    def _directions(self, group: dict[str, Any], stacks: list[_Stack], gradients: list[Tensor]) -> list[Tensor]:
        found = []
        for stack, gradient in zip(stacks, gradients, strict=True):
            if stack.matrices:
                mean = stack.slots["momentum"].lerp_(gradient, 1 - group["momentum"])
                made = _orthogonal(gradient.lerp(mean, group["momentum"]))
                found.append(0.2 * math.sqrt(max(made.shape[1:])) * made)
            else:
                found += _adam([stack], [gradient], group["betas"])
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
