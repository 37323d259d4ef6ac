"""Optimisers that treat parameters of one shape together.

A kernel counts as the matrix out × rest, a complex number as two real ones. Matrices of one shape are stacked: small networks
have many of them, and calling costs more than computing. Vectors get Adam's update.
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

__all__ = ["Stack", "Stacked", "adam", "as_matrix"]


class Stack(NamedTuple):
    """Parameters of one shape and age; each slot has a first axis that counts them."""

    parameters: list[Tensor]
    slots: dict[str, Tensor]
    update: int  # of these parameters, from 1

    @property
    def matrices(self) -> bool:
        return _real(self.parameters[0]).ndim > 1

    def gradient(self) -> Tensor:
        """(n, size) of vectors, (n, out, rest) of matrices."""
        return torch.stack([as_matrix(p.grad) for p in self.parameters if p.grad is not None])


def _real(x: Tensor) -> Tensor:
    """The same memory as real numbers."""
    return torch.view_as_real(x) if x.is_complex() else x


def as_matrix(x: Tensor) -> Tensor:
    """A parameter, or its gradient, as the vector or matrix of real numbers that it counts as."""
    own = _real(x)
    return own.reshape(*own.shape[: min(1, own.ndim - 1)], -1)


class Stacked(torch.optim.Optimizer):
    """Keeps state in stacks; a parameter's own state is views of them, so that it can be saved."""

    def __init__(self, parameters: Iterable[nn.Parameter], **defaults: Any) -> None:
        self._stacks: dict[tuple[int, ...], list[Stack]] = {}
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
    def _directions(self, group: dict[str, Any], stacks: list[Stack], gradients: list[Tensor]) -> list[Tensor]:
        """Where each stack goes, in the shape of its gradient."""

    @abstractmethod
    def _fresh(self, gradient: Tensor) -> dict[str, Tensor]:
        """The state of a parameter that has none: `gradient` is a vector or a matrix."""

    def _aged(self, live: list[Tensor]) -> list[Stack]:
        """The stacks of these parameters, one update older; built anew where others take part."""
        key = tuple(map(id, live))
        if key not in self._stacks:
            alike: dict[tuple[Any, ...], list[Tensor]] = {}
            for p in live:
                if not self.state[p]:
                    assert p.grad is not None
                    self.state[p] = {"step": torch.zeros((), dtype=torch.int64), **self._fresh(as_matrix(p.grad))}
                age = int(self.state[p]["step"])
                alike.setdefault((p.shape, p.dtype, p.device, age), []).append(p)
            self._stacks = {key: [self._stack(many) for many in alike.values()]}
        aged = [s._replace(update=s.update + 1) for s in self._stacks[key]]
        self._stacks[key] = aged
        for stack in aged:
            stack.slots["step"].fill_(stack.update)
        return aged

    def _stack(self, parameters: list[Tensor]) -> Stack:
        states = [self.state[p] for p in parameters]
        slots = {name: torch.stack([s[name] for s in states]) for name in states[0]}
        for i, state in enumerate(states):
            state.update({name: many[i] for name, many in slots.items()})
        return Stack(parameters, slots, int(states[0]["step"]))


def adam(stacks: list[Stack], gradients: list[Tensor], betas: tuple[float, float], eps: float = 1e-8) -> list[Tensor]:
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
