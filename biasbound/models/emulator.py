"""Emulators: trained models in physical units, and the one loop that repeats them.

An emulator is a folder that can be shared (see `artifact`). Loading one runs no code of its author's.

Where its model has a mask of valid points, states are NaN at all others: in what it returns, and if one likes in what it
is given.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from biasbound.core.mask import Mask, cleared
from biasbound.core.noise import Condition, RowGenerator, State
from biasbound.core.schedule import Schedule
from biasbound.models.artifact import Facts, read_model, write_model
from biasbound.models.model import Model
from biasbound.models.normalise import Conditions, Normalisation

__all__ = ["Broken", "Emulator", "Rollout", "broken_by", "collected", "load"]

Start = Float[Tensor, "B *start"]  # the present state (B, C, *N), or the last H frames (B, H, C, *N)


class Broken(UserWarning):
    """Some trajectories of a rollout became non-finite."""


@dataclass(frozen=True)
class Rollout:
    """States x̂¹ … x̂^K of each member, and the step at which a trajectory became non-finite (0: never)."""

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
    """A trained model with all that is needed to use it: x^{k+1} = step(x^k)."""

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
        task = self.model.frame.task
        if self.mask is not None:
            _require_valid(x0, self.mask)
        frames = self.normalisation.encode(x0[:, None] if task.past == 1 else x0, 2)
        return task.given(cleared(frames, self.mask), self.normalisation.planes(conditions, frames))

    @torch.no_grad()
    def step(self, x: Start, conditions: Conditions = None, generator: torch.Generator | None = None) -> State:
        """x^{k+1} from x^k; non-finite values are returned, not hidden."""
        return next(self.unroll(x, conditions, generator))

    def unroll(
        self, x0: Start, conditions: Conditions = None, generator: torch.Generator | None = None
    ) -> Iterator[State]:
        """x̂¹, x̂², … without end: the one rollout loop. Conditions stay as they are."""
        x = self.condition(x0, conditions)
        while True:
            with torch.no_grad():
                y = self.model.advance(x, generator)
                x = self.model.frame.task.follow(x, y)
                made = self.normalisation.decode(y)
            yield made if self.mask is None else made.masked_fill(~self.mask, torch.nan)

    def stream(
        self,
        x0: Start,
        steps: int,
        members: int = 1,
        generator: torch.Generator | None = None,
        *,
        conditions: Conditions = None,
        batch: int = 64,
    ) -> Iterator[Float[Tensor, "M B C *N"]]:
        """x̂¹ … x̂^K of `members` rollouts from each x0, frame by frame: memory does not grow with K = `steps`.

        `batch` trajectories are computed at a time. Every trajectory has its own stream of noise: the result does not
        depend on `batch`, or on what else is rolled out with it.
        """
        if steps < 1 or members < 1 or batch < 1:
            raise ValueError(f"steps, members and batch must be at least 1: {steps}, {members}, {batch}")
        count = members * len(x0)
        device = "cpu" if generator is None else generator.device
        seeds = torch.randint(2**62, (count,), generator=generator, device=device).tolist()
        groups = []
        for start in range(0, count, batch):
            rows = torch.arange(start, min(start + batch, count))
            own = rows % len(x0)
            told = None if conditions is None else conditions[own]
            groups.append(self.unroll(x0[own], told, RowGenerator([seeds[i] for i in rows.tolist()])))

        def frames() -> Iterator[Float[Tensor, "M B C *N"]]:
            for _ in range(steps):  # all groups go on together, each with its own batch and noise
                made = torch.cat([next(group).to("cpu", x0.dtype) for group in groups])
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
    ) -> Rollout:
        """The frames of `stream` in memory, and which trajectories broke."""
        frames = self.stream(x0, steps, members, generator, conditions=conditions, batch=batch)
        states, broken = collected(frames, steps, self.mask)
        if bool(broken.any()):
            warnings.warn(
                f"{int((broken > 0).sum())} of {broken.numel()} trajectories became non-finite, the first at step "
                f"{int(broken[broken > 0].min())}",
                Broken,
                stacklevel=2,
            )
        return Rollout(states, broken)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the emulator as a new folder, which `load` reads."""
        facts = Facts(self.channels, self.dt, self.normalisation, self.conditions, dict(self.meta))
        write_model(folder, self.model, facts)


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


def load(folder: str | os.PathLike[str], net: Any = None) -> Emulator:
    """Read an emulator; `net` is its network where its author brought one: a module, a class or a function."""
    model, facts = read_model(folder, net)
    try:
        return Emulator(model, facts.normalisation, facts.channels, facts.dt, facts.conditions, dict(facts.meta or {}))
    except ValueError as error:
        raise ValueError(f"{folder} is not a whole emulator: {error}") from error
