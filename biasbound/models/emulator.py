"""Emulators: trained models in physical units, and the one loop that repeats them.

An emulator is a folder that can be shared (see `artifact`). Loading one runs no code of its author's.

Where its model has a mask of valid points, states are NaN at all others: in what it returns, and if one likes in what it
is given.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from biasbound._io import plain
from biasbound.core.mask import Mask, cleared
from biasbound.core.noise import Condition, State, Streams
from biasbound.core.schedule import Schedule
from biasbound.models.artifact import Facts, read_model, write_model
from biasbound.models.assimilation import Assimilation, Gain, Observations
from biasbound.models.correction import Correction, Moment, all_of
from biasbound.models.hub import fetched, hub_name, push
from biasbound.models.model import Model
from biasbound.models.normalise import Conditions, Normalisation

__all__ = ["Broken", "Emulator", "Rollout", "broken_by", "collected", "load"]

Start = Float[Tensor, "B *start"]  # the present state (B, C, *N), or the last H frames (B, H, C, *N)


class Broken(UserWarning):
    """Some trajectories of a rollout became non-finite."""


@dataclass(frozen=True)
class Rollout:
    """States x̂¹ … x̂^K of each member, and the step at which a trajectory became non-finite (0: never).

    >>> made = Rollout(torch.zeros(3, 2, 5, 1, 16), torch.zeros(3, 2, dtype=torch.int64))
    >>> made.mean().shape  # over the members
    torch.Size([2, 5, 1, 16])
    """

    states: Float[Tensor, "M B K C *N"]
    broken: Int[Tensor, "M B"]

    def mean(self) -> Float[Tensor, "B K C *N"]:
        """The ensemble mean; refused where a member broke, because it would no longer be one."""
        if bool(self.broken.any()):
            count, first = int((self.broken > 0).sum()), int(self.broken[self.broken > 0].min())
            raise ValueError(f"{count} trajectories broke, the first at step {first}; select the others first")
        return self.states.mean(0)


@dataclass(frozen=True)
class Emulator:
    """A trained model with all that is needed to use it: x^{k+1} = step(x^k).

    >>> from biasbound.models.model import Frame, make
    >>> still = Emulator(make("persistence", None, Frame(1), {}), Normalisation((0.0,), (1.0,)), ("u",), 0.1)
    >>> still.nfe, still.step(x := torch.ones(2, 1, 16)).equal(x)  # network calls per step, and a step
    (0, True)
    """

    model: Model
    normalisation: Normalisation
    channels: tuple[str, ...]
    dt: float
    conditions: tuple[str, ...] = ()  # names of what only informs
    meta: Mapping[str, Any] = field(default_factory=dict)  # how it was trained, JSON values

    def __post_init__(self) -> None:
        if len(self.channels) != len(self.normalisation.mean):
            raise ValueError(f"{len(self.channels)} channels need as many means: {self.normalisation.mean}")

    @property
    def schedule(self) -> Schedule | None:
        """The levels of its chain, where its model has one."""
        found: Schedule | None = getattr(self.model, "schedule", None)
        return found

    @property
    def mask(self) -> Mask | None:
        """The valid points of its grid, where not all of them are."""
        return self.model.mask

    @property
    def nfe(self) -> int:
        """Network calls per step."""
        return self.model.calls

    def condition(self, x0: Start, conditions: Conditions = None) -> Condition:
        """x in the network's units, from physical states."""
        if (
            self.mask is not None and x0.device.type == "cpu"
        ):  # a look at a device would stop it; there, NaN breaks a rollout
            _require_valid(x0, self.mask)
        return self.encoded(x0, conditions)

    def encoded(self, x0: Start, conditions: Conditions = None) -> Condition:
        """The same without a look at the values."""
        task = self.model.frame.task
        frames = self.normalisation.encode(x0[:, None] if task.past == 1 else x0, 2)
        return task.given(cleared(frames, self.mask), self.normalisation.planes(conditions, frames))

    def decoded(self, y: State) -> State:
        """An answer of the model in physical units, NaN at masked points."""
        made = self.normalisation.decode(y)
        return made if self.mask is None else made.masked_fill(~self.mask, torch.nan)

    @torch.no_grad()
    def step(self, x: Start, conditions: Conditions = None, generator: torch.Generator | None = None) -> State:
        """x^{k+1} from x^k; non-finite values are returned, not hidden."""
        return next(self.unroll(x, conditions, generator))

    def unroll(
        self,
        x0: Start,
        conditions: Conditions = None,
        generator: torch.Generator | None = None,
        correct: Correction | None = None,
    ) -> Iterator[State]:
        """x̂¹, x̂², … without end: the one rollout loop. Conditions stay as they are.

        `correct` is applied, in physical units, to every estimate on the way to a state and to the state itself.
        """
        x = self.condition(x0, conditions)
        for k in count(1):
            with torch.no_grad():
                y = self._answer(x, generator, correct, k)
                x = self.model.frame.task.follow(x, y)
                made = self.decoded(y)
            yield made

    def _answer(self, x: Condition, generator: torch.Generator | None, correct: Correction | None, step: int) -> State:
        """One step in the network's units, with what is known in physical ones; what is left alone keeps every bit."""
        if correct is None:
            return self.model.advance(x, generator)
        units, lowest = self.normalisation, 0.0 if self.schedule is None else self.schedule.level(0)

        def corrected(y_est: State, sigma: float) -> State:
            state = units.decode(y_est)
            found = correct(state, Moment(step, sigma, sigma <= lowest, generator))
            return y_est if found is state else cleared(units.encode(found), self.mask)

        return self.model.corrected(x, generator, corrected)

    def stream(
        self,
        x0: Start,
        steps: int,
        members: int = 1,
        generator: torch.Generator | None = None,
        *,
        conditions: Conditions = None,
        batch: int = 64,
        correct: Correction | None = None,
    ) -> Iterator[Float[Tensor, "M B C *N"]]:
        """x̂¹ … x̂^K of `members` rollouts from each x0, frame by frame: memory does not grow with K = `steps`.

        `batch` trajectories are computed at a time. Every trajectory has its own stream of noise: the result does not
        depend on `batch`, or on what else is rolled out with it.
        """
        if steps < 1 or members < 1 or batch < 1:
            raise ValueError(f"steps, members and batch must be at least 1: {steps}, {members}, {batch}")
        count = members * len(x0)
        device = "cpu" if generator is None else generator.device
        seed = int(torch.randint(2**62, (), generator=generator, device=device))
        groups = []
        for start in range(0, count, batch):
            rows = range(start, min(start + batch, count))
            own = torch.arange(rows.start, rows.stop, device=x0.device) % len(x0)
            told = None if conditions is None else conditions[own.to(conditions.device)]
            groups.append(self.unroll(x0[own], told, Streams(seed, rows), correct))

        def frames() -> Iterator[Float[Tensor, "M B C *N"]]:
            for _ in range(steps):  # all groups go on together, each with its own batch and noise
                answers = [next(group) for group in groups]  # a device has all of its work before it is asked for any
                made = torch.cat([answer.to("cpu", x0.dtype) for answer in answers])
                yield made.reshape(members, len(x0), *made.shape[1:])

        return frames()

    def rollout(
        self,
        x0: Start,
        steps: int,
        members: int = 1,
        generator: torch.Generator | None = None,
        *,
        conditions: Conditions = None,
        batch: int = 64,
        correct: Correction | None = None,
    ) -> Rollout:
        """The frames of `stream` in memory, and which trajectories broke.

        >>> from biasbound.models.model import Frame, make
        >>> still = make("persistence", None, Frame(1), {})  # a model without a network
        >>> emulator = Emulator(still, Normalisation((0.0,), (1.0,)), ("u",), 0.1)
        >>> emulator.rollout(torch.zeros(2, 1, 16), steps=5, members=3).states.shape
        torch.Size([3, 2, 5, 1, 16])
        """
        frames = self.stream(x0, steps, members, generator, conditions=conditions, batch=batch, correct=correct)
        states, broken = collected(frames, steps, self.mask)
        if bool(broken.any()):
            warnings.warn(
                f"{int((broken > 0).sum())} of {broken.numel()} trajectories became non-finite, the first at step "
                f"{int(broken[broken > 0].min())}",
                Broken,
                stacklevel=2,
            )
        return Rollout(states, broken)

    def assimilate(
        self,
        x0: Float[Tensor, "M B *start"],
        observations: Observations,
        generator: torch.Generator | None = None,
        *,
        gain: Gain | None = None,
        steps: int | None = None,
        conditions: Conditions = None,
        constrain: Correction | None = None,
    ) -> Rollout:
        """A rollout of M members from their own starts, which observations pull towards the truth as it goes on.

        Without observations it is the rollout. It goes on to the last observed frame, or to frame `steps`; `constrain`
        is applied after the observations. All rows are computed together, because members correct each other.
        """
        members, rows = len(x0), x0.flatten(0, 1)
        told = None if conditions is None else conditions.repeat(members, *[1] * (conditions.ndim - 1))
        correct = all_of(Assimilation(observations, members, gain or Gain(), self.normalisation.std), constrain)
        length = observations.steps if steps is None else steps
        made = self.rollout(rows, length, 1, generator, conditions=told, batch=len(rows), correct=correct)
        shape = members, x0.shape[1]
        return Rollout(made.states.reshape(*shape, *made.states.shape[2:]), made.broken.reshape(shape))

    def scored(self, rows: Iterable[Any]) -> Emulator:
        """With its scores, for its card: those of the rows that are about its method and seed."""
        own = {name: self.meta[name] for name in ("method", "seed") if name in self.meta}
        told = [plain(row) for row in rows]
        kept = [row for row in told if all(row[name] == value for name, value in own.items())]
        if told and not kept:
            raise ValueError(f"none of the {len(told)} rows is about this emulator: {own}")
        return replace(self, meta={**self.meta, "rows": kept})

    def save(self, folder: str | os.PathLike[str], name: str = "this folder") -> None:
        """Write the emulator as a new folder, which `load` reads; its card says to load it by `name`."""
        facts = Facts(self.channels, self.dt, self.normalisation, self.conditions, dict(self.meta))
        write_model(folder, self.model, facts, name)

    def push_to_hub(self, name: str, *, private: bool = False, token: str | None = None) -> str:
        """Write the emulator to the Hugging Face hub as `user/name`; returns the address of the commit."""
        return push(self, name, private=private, token=token)

    def export(self, path: str | os.PathLike[str], kind: str = "torch", grid: Sequence[int] | None = None) -> None:
        """Write one step, with its noise as an input, as a program of torch.export (`torch`) or as ONNX (`onnx`)."""
        from biasbound.models.export import export_step

        export_step(self, path, kind, grid)


def _require_valid(x0: Start, mask: Mask) -> None:
    """Refuse a start of another grid, or with NaN at a valid point."""
    if x0.shape[-mask.ndim :] != mask.shape:
        raise ValueError(f"the start has the shape {tuple(x0.shape)}, but the emulator's grid is {tuple(mask.shape)}")
    lost = int((x0.isnan() & mask).sum())
    if lost:
        raise ValueError(f"the start is NaN at {lost} valid points: only points under the emulator's mask may be NaN")


def broken_by(
    broken: Int[Tensor, "M B"], k: int, frame: Float[Tensor, "M B ..."], mask: Mask | None = None
) -> Int[Tensor, "M B"]:
    """The step of each trajectory's first non-finite value at a valid point, after frame k; 0 for none so far."""
    fine = frame.isfinite() if mask is None else frame.isfinite() | ~mask.cpu()
    return torch.where((broken == 0) & ~fine.flatten(2).all(2), k, broken)


def collected(
    frames: Iterable[Float[Tensor, "M B C *N"]], steps: int, mask: Mask | None = None
) -> tuple[Float[Tensor, "M B K C *N"], Int[Tensor, "M B"]]:
    """K = `steps` frames as one array, and the step at which each trajectory broke (0: never)."""
    for k, frame in enumerate(frames):
        if k == 0:  # the answer's grid may be finer than what was given
            states = frame.new_empty(*frame.shape[:2], steps, *frame.shape[2:])
            broken = torch.zeros(frame.shape[:2], dtype=torch.int64)
        states[:, :, k] = frame
        broken = broken_by(broken, k + 1, frame, mask)
    return states, broken


def load(folder: str | os.PathLike[str], net: Any = None, *, revision: str | None = None) -> Emulator:
    """Read an emulator; `net` is its network where its author brought one: a module, a class or a function.

    A text `user/name` that no folder here goes by is fetched from the Hugging Face hub, at a `revision` if one is given.

    >>> from biasbound.models.model import Frame, make
    >>> from biasbound.nets import NetSpec
    >>> net = NetSpec("unet", 1, 1, (16,), ("periodic",), {"width": 4, "multipliers": [1]}).resolved().build(False)
    >>> emulator = Emulator(make("direct", net, Frame(1), {}), Normalisation((0.0,), (1.0,)), ("u",), 0.1)
    >>> emulator.save("waves-emulator")
    >>> load("waves-emulator").step(x := torch.ones(2, 1, 16)).equal(emulator.step(x))
    True
    """
    name = hub_name(folder)
    model, facts = read_model(folder if name is None else fetched(name, revision), net)
    try:
        return Emulator(model, facts.normalisation, facts.channels, facts.dt, facts.conditions, dict(facts.meta or {}))
    except ValueError as error:
        raise ValueError(f"{folder} is not a whole emulator: {error}") from error
