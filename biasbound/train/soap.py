r"""SOAP: Adam in the eigenbasis of Shampoo's two averages of each matrix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from biasbound.train.ranks import shared
from biasbound.train.stacks import Stack, Stacked, adam, as_matrix

__all__ = ["Soap"]

FLOOR = 1e-4  # of L and R, as a share of their trace


class Soap(Stacked):
    r"""SOAP (Vyas et al. 2024).

        L ← β₂L + (1−β₂)GGᵀ,   R ← β₂R + (1−β₂)GᵀG,   direction = Q_L Adam(Q_LᵀGQ_R) Q_Rᵀ

    Q_L and Q_R approach the eigenvectors of L and R: they start as the identity, and every
    `every` updates one power iteration with QR refreshes them. Adam's averages live in the basis:
    the mean turns with it. The squares stay: mixing them by the squared entries of the turn lets
    large ones into small ones and trains worse.

    A matrix with a side longer than `block` is cut into equal blocks, each a matrix of its own (the last ones are
    filled up with zeros): what an update costs then grows with the number of weights and no faster. Short blocks
    are cheaper and train worse by some percent, so that the default cuts nothing that a basis can be afforded for.

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
        block: int = 512,
    ) -> None:
        super().__init__(parameters, lr=lr, weight_decay=weight_decay, betas=betas, every=every, block=block)

    def _fresh(self, gradient: Tensor) -> dict[str, Tensor]:
        if gradient.ndim == 1:
            return {"exp_avg": torch.zeros_like(gradient), "exp_avg_sq": torch.zeros_like(gradient)}
        blocks = _cut(gradient[None], self.defaults["block"])
        blocks = blocks if len(blocks) > 1 else blocks[0]
        made = {"exp_avg": torch.zeros_like(blocks), "exp_avg_sq": torch.zeros_like(blocks)}
        for side, size in zip("lr", blocks.shape[-2:], strict=True):
            if size > 1:
                made[f"cov_{side}"] = gradient.new_zeros(*blocks.shape[:-2], size, size)
                made[f"basis_{side}"] = torch.eye(size).to(gradient).expand_as(made[f"cov_{side}"]).clone()
        return made

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put a state back; one whose matrices were cut otherwise is refused."""
        super().load_state_dict(state_dict)
        for p, kept in self.state.items():
            fresh = self._fresh(as_matrix(p.detach()))
            if any(name not in kept or kept[name].shape != x.shape for name, x in fresh.items()):
                raise ValueError(
                    "its SOAP cut long matrices otherwise, as earlier versions did; remove the folder to begin again"
                )

    def _stack(self, parameters: list[Tensor]) -> Stack:
        """With the blocks of all parameters one after the other."""
        stack = super()._stack(parameters)
        if not stack.matrices:
            return stack
        return stack._replace(slots={name: x.flatten(0, -3) if x.ndim > 2 else x for name, x in stack.slots.items()})

    def _directions(self, group: dict[str, Any], stacks: list[Stack], gradients: list[Tensor]) -> list[Tensor]:
        block = group["block"]
        cut = [_cut(g, block) if s.matrices else g for s, g in zip(stacks, gradients, strict=True)]
        turned = [_turn(s, g) for s, g in zip(stacks, cut, strict=True)]
        directions = adam(stacks, turned, group["betas"])
        found = [_turn(s, d, back=True) for s, d in zip(stacks, directions, strict=True)]
        _refresh([side for s, g in zip(stacks, cut, strict=True) if s.matrices for side in _follow(s, g, group)])
        return [_joined(d, g) if s.matrices else d for s, d, g in zip(stacks, found, gradients, strict=True)]


def _cut(x: Tensor, block: int) -> Tensor:
    """(n, out, rest) → (n·blocks, ≤ block, ≤ block), the blocks of a matrix row by row."""
    n, *sides = x.shape
    counts = [-(-size // block) for size in sides]
    if counts == [1, 1]:
        return x
    sizes = [-(-size // many) for size, many in zip(sides, counts, strict=True)]
    missing = [many * size - side for many, size, side in zip(counts, sizes, sides, strict=True)]
    x = F.pad(x, (0, missing[1], 0, missing[0])) if any(missing) else x
    return x.reshape(n, counts[0], sizes[0], counts[1], sizes[1]).transpose(2, 3).reshape(-1, *sizes)


def _joined(blocks: Tensor, like: Tensor) -> Tensor:
    """The matrices in the shape of `like` that `_cut` made these blocks of."""
    n, out, rest = like.shape
    if blocks.shape == like.shape:
        return blocks
    rows, columns = (-(-side // size) for side, size in zip((out, rest), blocks.shape[1:], strict=True))
    whole = blocks.reshape(n, rows, columns, *blocks.shape[1:]).transpose(2, 3)
    return whole.reshape(n, rows * blocks.shape[1], -1)[:, :out, :rest].contiguous()


def _turn(stack: Stack, x: Tensor, back: bool = False) -> Tensor:
    """Q_Lᵀ x Q_R, or Q_L x Q_Rᵀ."""
    left, right = (stack.slots.get(f"basis_{side}") for side in "lr")
    if left is not None:
        x = (left if back else left.mT) @ x
    if right is not None:
        x = x @ (right.mT if back else right)
    return x


def _follow(stack: Stack, gradient: Tensor, group: dict[str, Any]) -> list[tuple[Stack, str]]:
    """Take the gradient into L and R; the sides whose basis is to be refreshed now."""
    share, due = 1 - group["betas"][1], stack.update % group["every"] == 0
    sides = [side for side in "lr" if f"cov_{side}" in stack.slots]
    for side in sides:
        rows = gradient if side == "l" else gradient.mT
        stack.slots[f"cov_{side}"].baddbmm_(rows, rows.mT, beta=1 - share, alpha=share)
    return [(stack, side) for side in sides] if due else []


def _refresh(due: list[tuple[Stack, str]]) -> None:
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
