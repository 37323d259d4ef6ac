"""A training whose weights, gradients, averages and optimiser state are divided among the processes (FSDP).

Each process holds its part of every tensor, and whole ones only while a block computes. A checkpoint holds whole tensors:
it is the same whether the training is divided or not, and either goes on from the other's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from biasbound.train.average import MovingAverage

__all__ = ["Shards"]


class Shards:
    """Divides the weights of `objective` among the processes, and keeps one whole model for whoever asks it.

    What asks (evaluations, searches, the emulator) gets the averaged weights, gathered into a plain copy; only the
    training is divided. So a process holds one copy of the weights and its part of all the rest.
    """

    def __init__(self, objective: nn.Module, model: nn.Module, average: MovingAverage | None) -> None:
        self.plain = deepcopy(model).eval() if average is None else average.module
        self.model, self.average, self._of = model, average, -1
        _divide(objective)
        weights: list[Any] = list(model.parameters())
        self.sources: list[Any] = weights
        if average is not None:
            means = zip(average.module.parameters(), weights, strict=True)
            self.sources = [_part(mean, like) for mean, like in means]
            average.follow([p.to_local() for p in weights], [mean.to_local() for mean in self.sources])

    @torch.no_grad()
    def asked(self, update: int) -> nn.Module:
        """The whole model after that many updates; all processes ask for it together."""
        if update != self._of:
            for own, part in zip(self.plain.parameters(), self.sources, strict=True):
                own.copy_(part.full_tensor())
            for held, now in zip(self.plain.buffers(), self.model.buffers(), strict=True):
                held.copy_(now)
            self._of = update
        return self.plain

    @torch.no_grad()
    def whole(self, tensors: Mapping[str, Any]) -> dict[str, Tensor]:
        """The tensors of a checkpoint, whole and on the CPU where they are divided; all processes come here together."""
        return {k: v.full_tensor().cpu() if isinstance(v, DTensor) else v for k, v in tensors.items()}

    def divided(self, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """The tensors of a checkpoint, those of weights and of slots in their shape divided as the weights are."""
        like: dict[str, Any] = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        weights = {str(i): p for i, p in enumerate(self.model.parameters())}

        def divide(name: str, tensor: Tensor) -> Any:
            part, number, *_ = name.split(".")
            own = weights.get(number) if part == "optimiser" else like.get(name)
            return _part(tensor, own) if isinstance(own, DTensor) and own.shape == tensor.shape else tensor

        return {name: divide(name, tensor) for name, tensor in tensors.items()}

    @torch.no_grad()
    def restored(self) -> None:
        """After a checkpoint was read into the whole average: take its part of it."""
        if self.average is not None:
            for part, own in zip(self.sources, self.average.module.parameters(), strict=True):
                part.to_local().copy_(_part(own, part).to_local())
        self._of = -1


def _divide(objective: nn.Module) -> None:
    """Members of the outermost lists of blocks each become whole when they compute; the rest does at once."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(next(objective.parameters()).device.type, (dist.get_world_size(),))

    def outermost(module: nn.Module) -> Iterable[nn.Module]:
        for child in module.children():
            if isinstance(child, nn.ModuleList):
                yield from child
            else:
                yield from outermost(child)

    for block in outermost(objective):
        if next(block.parameters(), None) is not None and type(block).forward is not nn.Module.forward:
            fully_shard(block, mesh=mesh)
    fully_shard(objective, mesh=mesh)


def _part(tensor: Tensor, like: Any) -> Any:
    """A whole tensor, divided as `like` is."""
    return distribute_tensor(tensor.detach().to(like.device), like.device_mesh, like.placements, src_data_rank=None)
