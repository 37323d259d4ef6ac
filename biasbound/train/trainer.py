"""The training loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Int64
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from biasbound._io import damaged, lock
from biasbound.core.streams import Streams, mixed
from biasbound.data.batches import Ahead, Loader, Order
from biasbound.models.model import low_precision
from biasbound.models.weights import save_numbered
from biasbound.nets.compiled import compiled
from biasbound.registry import find
from biasbound.train.average import MovingAverage
from biasbound.train.keep import Best
from biasbound.train.optimisers import OPTIMISERS
from biasbound.train.options import FitOptions, learning_rate
from biasbound.train.ranks import Rank, distributed, divided, newest
from biasbound.train.recompute import recomputing
from biasbound.train.state import Progress, pack, unpack

__all__ = ["Diverged", "Observer", "Report", "Trainer"]

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
        self.parts = parts_of(options, self.rank)
        self.observers = list(observers) if self.rank.rank == 0 else []
        if options.compile:
            # Losses ask the wrapper's network, not the wrapper; an unrolled one asks about as many rows as levels say.
            compiled(
                getattr(model, "net", model),
                sizes_vary=getattr(getattr(model, "recipe", None), "between", "own") == "proxy",
            )
        self.average = None if options.ema is None else MovingAverage(model, options.ema)
        self.objective: Any = _Objective(model)
        self.shards = divided(self.objective, self.average, options) if self.rank.world > 1 else None
        self.parameters = list(model.parameters())
        make = find(OPTIMISERS, options.optimiser)
        self.optimiser = make(self.parameters, options.lr, options.weight_decay)
        self.order = Order(items, options.batch, options.seed)
        self.progress, self.best = Progress(), Best()
        self.choosing = options.keep == "best"  # whether evaluations compete
        if folder is not None:
            with damaged(f"the checkpoint in {folder}", "remove that folder to begin again"):
                if (found := newest(folder)) is not None:
                    self._restore(*found)
        if isinstance(data, Loader) and data.ahead:
            self.data = Ahead(data, self._asked())
        if self.rank.world > 1 and self.shards is None:
            self.objective = DistributedDataParallel(self.objective, gradient_as_bucket_view=True)

    def _asked(self) -> Iterator[Int64[np.ndarray, " b"]]:
        """The indices that all updates to come ask for, for reading ahead."""
        order = Order(**self.order.state())  # as it is now, before anything is asked
        return (indices[noise.rows.start : noise.rows.stop] for indices in order for noise in self.parts)

    @property
    def averaged(self) -> Any:
        """The model to use: with averaged weights where there are any, and with dropout and the like at rest."""
        if self.shards is not None:
            return self.shards.asked(self.progress.update)
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
        update, options, before = self.progress.update, self.options, self._rows()
        self._learns(True)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(options, update, self.total)
        self.optimiser.zero_grad(set_to_none=True)
        loss = self._gradient(next(self.order), update)
        if options.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, options.clip)
        self.optimiser.step()
        if self.average is not None:
            self.average.update()
        self.progress.update += 1
        self.progress.ledger += (self._rows() - before) * self.rank.world
        return loss

    def _gradient(self, indices: Int64[np.ndarray, " b"], update: int) -> Tensor:
        """∇L of this process's share of the batch, added up part by part; the mean loss of the parts."""
        losses: list[Tensor] = []
        for noise in self.parts:
            # The last part brings the processes together; divided weights are brought together every time.
            alone = self.rank.world == 1 or noise is self.parts[-1] or self.shards is not None
            with nullcontext() if alone else self.objective.no_sync():
                with self._manner():
                    part = self.data(indices[noise.rows.start : noise.rows.stop])
                    loss: Tensor = self.objective(part, noise.turn(update)) / len(self.parts)
                loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        return torch.stack(losses).sum()

    @contextmanager
    def _manner(self) -> Iterator[None]:
        """The network as the options want it in a loss: in bf16, or with activations that are computed again."""
        net, low = getattr(self.model, "net", self.model), self.options.precision == "bf16"
        whole = low and net is self.model  # a model of one's own that says nothing of its network
        with ExitStack() as held:
            if self.options.recompute and isinstance(net, nn.Module):
                held.enter_context(recomputing(net))
            held.enter_context(low_precision(self.device) if whole else nullcontext())
            self.model.low = low and not whole
            held.callback(setattr, self.model, "low", False)
            yield

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
        if self.folder is None or (self.rank.rank != 0 and self.shards is None):
            return
        self.progress.order, self.progress.best = self.order.state(), self.best.to_json()
        meta = {"options": asdict(self.options), "progress": self.progress.to_json()}
        if self.shards is not None:
            self.shards.asked(self.progress.update)  # the average is whole from here
        tensors = pack(self.model, self.average, self.optimiser) | self.best.pack()
        if self.shards is not None:
            tensors = self.shards.whole(tensors)
        if self.rank.rank == 0:
            save_numbered(self.folder, self.progress.update, tensors, meta)

    def _restore(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        mine, theirs = asdict(self.options), meta["options"]
        kept = [f.name for f in fields(self.options) if not f.metadata.get("manner")]
        changed = [k for k in kept if mine[k] != theirs.get(k)]
        if changed:
            raise ValueError(
                f"{self.folder} holds a training with {changed[0]} = {theirs.get(changed[0])}, not "
                f"{mine[changed[0]]}; use another folder or the same options"
            )
        self.best.restore(tensors, meta["progress"].get("best", {}))
        if self.shards is not None:
            tensors = self.shards.divided(tensors)
        try:
            unpack(tensors, self.model, self.average, self.optimiser)
        except RuntimeError as error:
            raise ValueError(f"the checkpoint in {self.folder} is of another network; use another folder") from error
        except ValueError as error:
            raise ValueError(f"the checkpoint in {self.folder} cannot go on: {error}") from error
        if self.shards is not None:
            self.shards.restored()
        self.progress = Progress.from_json(meta["progress"])
        self.order = Order(**self.progress.order)


def parts_of(options: FitOptions, rank: Rank) -> list[Streams]:
    """What this process computes of every batch, part by part: which rows, and their noise."""
    size, rest = divmod(options.batch, rank.world * options.accumulate)
    if rest:
        parts = f"{rank.world} processes" if options.accumulate == 1 else f"{rank.world} × {options.accumulate} parts"
        raise ValueError(f"a batch of {options.batch} cannot be divided among {parts}")
    first = rank.rank * size * options.accumulate
    starts = range(first, first + size * options.accumulate, size)
    return [Streams(mixed(options.seed, 0), range(start, start + size), options.batch) for start in starts]
