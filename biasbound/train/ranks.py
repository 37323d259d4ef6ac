"""The processes of one training: who is who, what they agree on, and work that each does a share of.

torchrun starts them and tells each its rank by the environment, on one machine or on many; after a failure it starts all
of them again, and they go on from the newest checkpoint.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from biasbound.models.weights import load_newest
from biasbound.train.average import MovingAverage
from biasbound.train.options import TrainOptions

__all__ = ["Rank", "agreed", "distributed", "divided", "leave", "newest", "shared"]

T = TypeVar("T")
PATIENCE = timedelta(days=14)  # others wait while the first process generates data or scores
SEEN = 90.0  # seconds until a file of one machine must be seen by the others


_waiting: list[Any] = []  # the group in which processes wait for the first one; in others they give up in minutes


class Rank(NamedTuple):
    """This process among the `world` processes of a training."""

    rank: int
    world: int


def distributed(device: torch.device | str = "cpu") -> Rank:
    """Join the other processes when started by torchrun; alone otherwise. On GPUs each process takes its own."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Rank(0, 1)
    if not dist.is_initialized():
        cuda = torch.device(device).type == "cuda"
        if cuda:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
        _waiting.append(dist.new_group(backend="gloo", timeout=PATIENCE))
        atexit.register(leave)
    return Rank(dist.get_rank(), dist.get_world_size())


def leave() -> None:
    """Part from the other processes; done at the exit, because a thread of a group that outlives Python aborts it."""
    _waiting.clear()
    if dist.is_initialized():
        dist.destroy_process_group()


def agreed(value: T) -> T:
    """The first process's value, in all of them; each comes here before any goes on."""
    if not dist.is_initialized():
        return value
    held: list[Any] = [value]
    dist.broadcast_object_list(held, src=0, group=_waiting[-1] if _waiting else None)
    made: T = held[0]
    return made


def newest(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The checkpoint that the first process goes on from; others wait until they see it, as a file server may be slow."""
    found = load_newest(folder)
    wanted, begun = agreed(_update(found)), time.monotonic()
    while _update(found) != wanted:
        if time.monotonic() - begun > SEEN:
            raise ValueError(
                f"the first process goes on from update {wanted}, which {folder} does not hold here: put the run on a "
                "file system that all machines see"
            )
        time.sleep(0.2)
        found = load_newest(folder)
    return found


def _update(found: tuple[dict[str, Tensor], dict[str, Any]] | None) -> int:
    return -1 if found is None else int(found[1]["progress"]["update"])


def divided(objective: Any, average: MovingAverage | None, options: TrainOptions) -> Any:
    """The weights of `objective.model` divided among the processes (`shards.Shards`), where the options ask for it."""
    if not options.shard:
        return None
    if options.optimiser in ("soap", "muon"):
        raise ValueError(
            f"train.shard divides every weight among the processes, and {options.optimiser} needs whole matrices: use "
            "adam or adamw"
        )
    from biasbound.train.shards import Shards  # imports more of torch than others need

    return Shards(objective, objective.model, average)


def shared(compute: Callable[[Tensor], Tensor], stacks: Sequence[Tensor]) -> list[Tensor]:
    """compute(stack) for every stack (n, m, m) of matrices, where each process computes a share of the matrices.

    `compute` treats matrices one by one and keeps their shape. Shares have about equal m³; every process ends with the
    same bits, those of the owner.
    """
    if not dist.is_initialized():
        return [compute(stack) for stack in stacks]
    rank, world = dist.get_rank(), dist.get_world_size()
    owners = _owners(stacks, world)
    found = [torch.empty_like(stack) for stack in stacks]
    for out, stack, owner in zip(found, stacks, owners, strict=True):
        if mine := [i for i, who in enumerate(owner) if who == rank]:
            out[mine] = compute(stack[mine])
    for who in range(world):
        own = [out[i] for out, owner in zip(found, owners, strict=True) for i in range(len(out)) if owner[i] == who]
        if own:
            flat = torch.cat([one.reshape(-1) for one in own])
            dist.broadcast(flat, src=who)
            for one, part in zip(own, torch.split(flat, [one.numel() for one in own]), strict=True):
                one.copy_(part.view_as(one))
    return found


def _owners(stacks: Sequence[Tensor], world: int) -> list[list[int]]:
    """For every matrix the process with the least work so far, the largest matrices first."""
    work, owners = [0] * world, [[0] * len(stack) for stack in stacks]
    for s in sorted(range(len(stacks)), key=lambda s: -stacks[s].shape[-1]):
        for i in range(len(stacks[s])):
            owners[s][i] = who = work.index(min(work))
            work[who] += stacks[s].shape[-1] ** 3
    return owners
