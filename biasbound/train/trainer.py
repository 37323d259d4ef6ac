"""The training loop."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Int64
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from biasbound._io import damaged, lock
from biasbound.core.noise import ShardGenerator
from biasbound.data.batches import Order
from biasbound.models.weights import load_newest, save_numbered
from biasbound.registry import find
from biasbound.train.average import MovingAverage
from biasbound.train.keep import Best
from biasbound.train.optimisers import OPTIMISERS
from biasbound.train.options import FitOptions, learning_rate
from biasbound.train.state import Progress, pack, unpack

__all__ = ["Diverged", "Observer", "Report", "Trainer", "distributed"]

Batch = Any  # whatever `data` returns and `loss` understands
Data = Callable[[Int64[np.ndarray, " b"]], Batch]


class Diverged(FloatingPointError):
    """The loss turned NaN or exploded; the last good checkpoint is kept."""


class Report(NamedTuple):
    """What an observer hears: updates done, of how many, and the mean loss since the last report."""

    update: int
    total: int
    loss: float
    lr: float
    metrics: Mapping[str, float]


@runtime_checkable
class Observer(Protocol):
    """Something that follows a training: a progress bar, a log."""

    def start(self, update: int, total: int) -> None:
        """A run begins or resumes after `update` updates; forget what was heard beyond."""

    def report(self, report: Report) -> None: ...

    def stop(self) -> None: ...


class Rank(NamedTuple):
    """This process among the `world` processes of a training."""

    rank: int
    world: int


def distributed(device: torch.device | str = "cpu") -> Rank:
    """Join the other processes when started by torchrun; alone otherwise."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Rank(0, 1)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if torch.device(device).type == "cuda" else "gloo")
    return Rank(dist.get_rank(), dist.get_world_size())


class _Objective(nn.Module):
    """The loss as a module's forward, so that DDP sees one call per update whatever the loss does inside."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = model

    def forward(self, batch: Batch, generator: torch.Generator) -> Tensor:
        loss: Tensor = self.model.loss(batch, generator)
        return loss


class Trainer:
    """A training that can stop anywhere and go on exactly.

    `data(indices)` gives the batch of these items, of which there are `items`; `model.loss(batch, generator)` is a
    scalar. With a `folder` it keeps checkpoints there, goes on from the newest, and refuses a second process.
    `evaluate(averaged_model, update)` is called every `evaluate_every` updates and its numbers are reported.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        items: int,
        options: FitOptions,
        *,
        folder: Path | None = None,
        observers: Iterable[Observer] = (),
        evaluate: Callable[[nn.Module, int], Mapping[str, float]] | None = None,
        evaluate_every: int | None = None,
    ) -> None:
        self.options, self.folder, self.data = options, folder, data
        self.model: Any = model.eval()
        self._learning = False
        self.evaluate, self.evaluate_every = evaluate, evaluate_every
        self.total = options.total(items)
        self.device = next(model.parameters()).device
        self.rank = distributed(self.device)
        if options.batch % self.rank.world:
            raise ValueError(f"a batch of {options.batch} cannot be divided among {self.rank.world} processes")
        if options.precision == "bf16" and self.device.type == "cpu":
            raise ValueError("precision bf16 is for GPUs: on a CPU it is slower than float32")
        self.observers = list(observers) if self.rank.rank == 0 else []
        if options.compile:
            getattr(model, "net", model).compile()  # losses ask the wrapper's network, not the wrapper
        self.parameters = list(model.parameters())
        make = find(OPTIMISERS, options.optimiser)
        self.optimiser = make(self.parameters, options.lr, options.weight_decay)
        self.average = None if options.ema is None else MovingAverage(model, options.ema)
        self.order = Order(items, options.batch, options.seed)
        self.progress, self.best = Progress(), Best()
        self.choosing = options.keep == "best"  # whether evaluations compete
        if folder is not None and (found := load_newest(folder)) is not None:
            with damaged(f"the checkpoint in {folder}", "remove that folder to begin again"):
                self._restore(*found)
        self.objective: nn.Module = _Objective(model)
        if self.rank.world > 1:
            self.objective = DistributedDataParallel(self.objective)

    @property
    def averaged(self) -> Any:
        """The model to use: with averaged weights where there are any, and with dropout and the like at rest."""
        if self.average is not None:
            return self.average.module
        self._learns(False)
        return self.model

    @property
    def kept(self) -> Any:
        """The model that becomes the emulator: the averaged one, or it with the best weights (`options.keep`)."""
        return self.best.model(self.averaged)

    def run(self, until: int | None = None, *, save: bool = True) -> Trainer:
        """Train up to update `until`, by default to the end of the budget; checkpoint there, or let the caller."""
        stop = self.total if until is None else min(until, self.total)
        with ExitStack() as held:
            if self.folder is not None and self.rank.rank == 0:
                self.folder.mkdir(parents=True, exist_ok=True)
                held.enter_context(lock(self.folder / ".lock"))
            for observer in self.observers:
                observer.start(self.progress.update, self.total)
                held.callback(observer.stop)
            self._train(stop, save)
        return self

    def _train(self, stop: int, save: bool) -> None:
        losses: list[Tensor] = []
        while self.progress.update < stop:
            losses.append(self.update())
            done = self.progress.update
            due = done == stop or done % self.options.checkpoint_every == 0
            measured = self.evaluate_every is not None and done % self.evaluate_every == 0
            measured |= self.choosing and done == self.total
            if due or measured or done % self.options.log_every == 0:
                self._report(losses, measured)
                losses.clear()
            if due and (save or done < stop):
                self.save()

    def update(self) -> Tensor:
        """One update of weights and average, without reports or checkpoints; its loss."""
        update, options = self.progress.update, self.options
        self._learns(True)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(options, update, self.total)
        generator = ShardGenerator(*self.rank, seed=_mix(options.seed, update))
        share = options.batch // self.rank.world
        indices = next(self.order)[self.rank.rank * share : (self.rank.rank + 1) * share]
        precise, before = options.precision == "float32", self._rows()
        with nullcontext() if precise else torch.autocast(self.device.type, torch.bfloat16):
            loss: Tensor = self.objective(self.data(indices), generator)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if options.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, options.clip, foreach=True)
        self.optimiser.step()
        if self.average is not None:
            self.average.update()
        self.progress.update += 1
        self.progress.ledger += (self._rows() - before) * self.rank.world
        return loss.detach()

    def _learns(self, now: bool) -> None:
        """Layers that act otherwise while they learn are in networks of the user's own alone."""
        if now != self._learning:
            self.model.train(now)
            self._learning = now

    def _rows(self) -> int:
        return int(getattr(self.model, "rows", 0))

    def _report(self, losses: list[Tensor], measured: bool) -> None:
        mean = torch.stack(losses).double().mean()
        if self.rank.world > 1:
            dist.all_reduce(mean, dist.ReduceOp.SUM)
            mean /= self.rank.world
        loss, lowest = mean.item(), self.progress.lowest
        if not math.isfinite(loss) or loss > self.options.explode * lowest:
            kept = "" if self.folder is None else f"; the last good checkpoint is kept in {self.folder}"
            raise Diverged(
                f"the loss is {loss:.4g} at update {self.progress.update} (its lowest was {lowest:.4g}): lower "
                f"the learning rate or clip the gradient{kept}"
            )
        self.progress.lowest = min(loss, lowest)
        metrics = self.evaluate(self.averaged, self.progress.update) if measured and self.evaluate else {}
        if self.choosing:
            self.best.offer(self.averaged, metrics, self.progress.update)
        rate = learning_rate(self.options, self.progress.update - 1, self.total)
        for observer in self.observers:
            observer.report(Report(self.progress.update, self.total, loss, rate, metrics))

    def save(self) -> None:
        """Write a checkpoint now, if there is a folder; only the first process does."""
        if self.folder is None or self.rank.rank != 0:
            return
        self.progress.order, self.progress.best = self.order.state(), self.best.to_json()
        meta = {"options": asdict(self.options), "progress": self.progress.to_json()}
        tensors = pack(self.model, self.average, self.optimiser) | self.best.pack()
        save_numbered(self.folder, self.progress.update, tensors, meta)

    def _restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        mine, theirs = asdict(self.options), meta["options"]
        changed = [k for k in mine if mine[k] != theirs.get(k) and k not in ("checkpoint_every", "compile")]
        if changed:
            raise ValueError(
                f"{self.folder} holds a training with {changed[0]} = {theirs.get(changed[0])}, not "
                f"{mine[changed[0]]}; use another folder or the same options"
            )
        self.best.restore(tensors, meta["progress"].get("best", {}))
        try:
            unpack(tensors, self.model, self.average, self.optimiser)
        except RuntimeError as error:
            raise ValueError(f"the checkpoint in {self.folder} is of another network; use another folder") from error
        self.progress = Progress.from_json(meta["progress"])
        self.order = Order(**self.progress.order)


def _mix(seed: int, update: int) -> int:
    """A seed for each update; neighbouring (seed, update) give unrelated streams."""
    value = (seed * 0x9E3779B97F4A7C15 + update * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) % 2**64
    value = (value ^ (value >> 31)) * 0x94D049BB133111EB % 2**64
    return (value ^ (value >> 29)) % 2**63
