"""How much memory an update and an emulated step take, without computing them.

Both run on the `meta` device, whose tensors have sizes but no values, and every tensor is followed from its first use to
its end: the peak is that of weights, gradients, optimiser, average and activations together, in the order in which they
really live. What a kernel needs for itself while it runs is not seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from biasbound.core.streams import Streams
from biasbound.train.options import FitOptions
from biasbound.train.trainer import Trainer

__all__ = ["Footprint", "of_step", "of_update"]


class Footprint(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all tensors that are alive; `peak` is the most that there were at once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now: int = 0
        self.peak: int = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        self.count(made)
        return made

    def count(self, made: Any) -> None:
        """Take in tensors, each memory once; it is counted until the last tensor on it is gone."""
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                key, size = storage._cdata, storage.nbytes()
                if key not in self._known:
                    self._known.add(key)
                    self.now += size
                    weakref.finalize(storage, self._gone, key, size)
        self.peak = max(self.peak, self.now)

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def of_update(model: nn.Module, data: Callable[[Any], Any], options: FitOptions) -> int:
    """Bytes that a training holds at its highest; `model` is on the meta device, and so is what `data` gives."""
    alone = replace(options, compile=False)  # the compiler's own plan is not known before it compiles
    with Footprint() as footprint:
        footprint.count(list(model.state_dict().values()))
        run = Trainer(model, data, options.batch, alone)
        footprint.count([] if run.average is None else list(run.average.state_dict().values()))
        for _ in range(2):  # the first makes the optimiser's state, the second has it from the beginning
            run.update()
    return int(footprint.peak)


def of_step(model: Any, x: Tensor, rows: int) -> int:
    """Bytes that a rollout of `rows` trajectories holds at its highest, where a batch of them is as x.

    Every trajectory has its present condition, and the frame that was made of it on the device and on the host.
    """
    with Footprint() as footprint, torch.no_grad():
        footprint.count([list(model.state_dict().values()), x])
        y = model.advance(x, Streams(0, range(len(x))))
        follows = model.frame.task.follow(x, y)
    each = follows[0].nbytes + 2 * y[0].nbytes
    return int(footprint.peak + max(0, rows - len(x)) * each + rows * y[0].nbytes)
