"""Activations that are computed again for the gradient instead of being kept (activation checkpointing).

What is computed again is a block: a module with parts of its own, of a class that the network has at least twice. Only the
input of a block is then kept, and the activations of one block at a time live during the backward pass. Values and
gradients do not change. The outermost block counts; one that takes an iterator, which can be gone through only once, is
looked into instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

__all__ = ["blocks", "recomputing"]


def blocks(net: nn.Module) -> list[nn.Module]:
    """The modules of a network that may be computed again, without the network itself."""
    parts = [m for m in net.modules() if m is not net and any(True for _ in m.children()) and _learns(m)]
    often = Counter(map(type, parts))
    return [m for m in parts if often[type(m)] > 1]


def _learns(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())


@contextmanager
def recomputing(net: nn.Module) -> Iterator[None]:
    """Inside, the blocks of the network keep their inputs alone; nothing of this is left behind."""
    inside = [False]  # a block: those within it are part of it
    changed = blocks(net)
    for module in changed:
        module.__dict__["forward"] = _again(module.forward, inside)
    try:
        yield
    finally:
        for module in changed:
            del module.__dict__["forward"]


def _again(forward: Callable[..., Any], inside: list[bool]) -> Callable[..., Any]:
    def alone(*inputs: Any) -> Any:
        inside[0] = True
        try:
            return forward(*inputs)
        finally:
            inside[0] = False

    def called(*inputs: Any) -> Any:
        if inside[0] or not torch.is_grad_enabled() or any(isinstance(x, Iterator) for x in inputs):
            return forward(*inputs)
        return checkpoint(alone, *inputs, use_reentrant=False)

    return called
