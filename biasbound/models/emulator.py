r"""Emulators: anything that maps a state to the next, in physical units, and the one loop that repeats it.

An emulator is a folder that can be shared: `config.json`, `model.safetensors`, `schedule.json` and a readable card.
Loading one runs no code of its author's: JSON, tensors, and networks that this package knows.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from biasbound.core.denoise import NetDenoiser
from biasbound.core.noise import RowGenerator, State
from biasbound.core.sample import Transition, sample
from biasbound.core.schedule import Schedule
from biasbound.models.artifact import Kind, Model, kind_of, read_model, write_model
from biasbound.models.losses import informed
from biasbound.models.predict import Refiner

__all__ = ["Broken", "Emulator", "Normalisation", "Rollout", "load"]

Conditions = Float[Tensor, "B P"] | Float[Tensor, "B P *N"] | None


class Broken(UserWarning):
    """Some trajectories of a rollout became non-finite."""


@dataclass(frozen=True)
class Normalisation:
    """Mean and spread of each channel, and of each channel that only informs: networks see (x − mean)/std."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    condition_mean: tuple[float, ...] = ()
    condition_std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("mean", "std", "condition_mean", "condition_std"):
            object.__setattr__(self, name, tuple(float(v) for v in getattr(self, name)))
        every = (*self.mean, *self.std, *self.condition_mean, *self.condition_std)
        if not all(map(math.isfinite, every)) or not all(s > 0 for s in self.std):
            raise ValueError("normalisation needs finite means and positive spreads")
        if len(self.mean) != len(self.std) or len(self.condition_mean) != len(self.condition_std):
            raise ValueError("normalisation needs a mean and a spread for each channel")

    def encode(self, state: Tensor, axis: int = 1) -> Tensor:
        """(x − mean)/std, with the channels along `axis` (1 for states, 2 for windows of frames)."""
        return (state - _along(self.mean, state, axis)) / _along(self.std, state, axis)

    def decode(self, state: Tensor, axis: int = 1) -> Tensor:
        """The inverse of `encode`."""
        return state * _along(self.std, state, axis) + _along(self.mean, state, axis)

    def conditions(self, values: Conditions, like: State) -> Tensor | None:
        """Conditions of shape (B, P) or (B, P, *N), normalised and spread over the grid; None for none.

        A condition that never varied in the training data has no spread and is only shifted.
        """
        given = 0 if values is None else values.shape[1]
        if given != len(self.condition_mean):
            raise ValueError(
                f"the emulator takes {len(self.condition_mean)} conditions, got {given}"
            )
        if values is None or given == 0:
            return None
        grid = like.shape[2:]
        planes = values if values.ndim > 2 else values.reshape(*values.shape, *[1] * len(grid))
        spread = tuple(s if s > 0 else 1.0 for s in self.condition_std)
        planes = planes.expand(*planes.shape[:2], *grid).to(like)
        return (planes - _along(self.condition_mean, planes, 1)) / _along(spread, planes, 1)


def _along(values: tuple[float, ...], field: Tensor, axis: int) -> Tensor:
    if field.shape[axis] != len(values):
        raise ValueError(
            f"the emulator has {len(values)} channels, the field has {field.shape[axis]}"
        )
    return field.new_tensor(values).reshape(-1, *[1] * (field.ndim - axis - 1))


@dataclass(frozen=True)
class Rollout:
    """States x̂¹ … x̂^K of each member, and the step at which a trajectory became non-finite (0: never)."""

    states: Float[Tensor, "M B K C *N"]
    broken: Int[Tensor, "M B"]

    def mean(self) -> Float[Tensor, "B K C *N"]:
        """The ensemble mean; refused where a member broke, because it would no longer be one."""
        if bool(self.broken.any()):
            count, first = int((self.broken > 0).sum()), int(self.broken[self.broken > 0].min())
            raise ValueError(
                f"{count} trajectories broke, the first at step {first}; select the others first"
            )
        return self.states.mean(0)


@dataclass(frozen=True)
class Emulator:
    """A trained model with all that is needed to use it: x^{k+1} = step(x^k)."""

    model: Model
    normalisation: Normalisation
    channels: tuple[str, ...]
    dt: float
    schedule: Schedule | None = None  # of a diffusion model
    transition: Transition = "renoise"
    conditions: tuple[str, ...] = ()  # names of what only informs
    meta: Mapping[str, Any] = field(default_factory=dict)  # how it was trained, JSON values

    def __post_init__(self) -> None:
        if isinstance(self.model, NetDenoiser) != (self.schedule is not None):
            raise ValueError("a diffusion emulator needs a noise schedule, and only it does")
        if self.transition not in get_args(Transition):
            raise ValueError(f"unknown transition {self.transition!r}")
        if len(self.channels) != len(self.normalisation.mean):
            raise ValueError(
                f"{len(self.channels)} channels need as many means: {self.normalisation.mean}"
            )

    @property
    def kind(self) -> Kind:
        return kind_of(self.model)

    @property
    def nfe(self) -> int:
        """Network calls a step."""
        if self.schedule is not None:
            return len(self.schedule)
        return len(self.model.levels) if isinstance(self.model, Refiner) else 1

    @torch.no_grad()
    def step(
        self, x: State, conditions: Conditions = None, generator: torch.Generator | None = None
    ) -> State:
        """x^{k+1} from x^k; non-finite values are returned, not hidden."""
        state = self.normalisation.encode(x)
        return self.normalisation.decode(
            self.advance(state, self.normalisation.conditions(conditions, state), generator)
        )

    @torch.no_grad()
    def advance(
        self,
        state: State,
        planes: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> State:
        """One step in the network's units; `planes` (B, P, *N) are the normalised conditions."""
        x = informed(state, planes)
        if isinstance(self.model, NetDenoiser):
            assert self.schedule is not None
            return sample(
                self.model,
                x,
                self.schedule,
                transition=self.transition,
                generator=generator,
                like=state,
                allow_nonfinite=True,
            )
        stepped: Tensor = (
            self.model(x, generator) if isinstance(self.model, Refiner) else self.model(x)
        )
        return stepped

    def unroll(
        self, x0: State, conditions: Conditions = None, generator: torch.Generator | None = None
    ) -> Iterator[State]:
        """x̂¹, x̂², … without end: the one rollout loop. Conditions stay as they are."""
        state = self.normalisation.encode(x0)
        planes = self.normalisation.conditions(conditions, state)
        while True:
            state = self.advance(state, planes, generator)
            yield self.normalisation.decode(state)

    def rollout(
        self,
        x0: State,
        steps: int,
        members: int = 1,
        generator: torch.Generator | None = None,
        *,
        conditions: Conditions = None,
        batch: int = 64,
    ) -> Rollout:
        """`members` rollouts from each x0, computed `batch` trajectories at a time.

        Every trajectory has its own stream of noise: the result does not hang on `batch`, or on what else is
        rolled out with it.
        """
        if steps < 1 or members < 1 or batch < 1:
            raise ValueError(
                f"steps, members and batch must be at least 1: {steps}, {members}, {batch}"
            )
        count = members * len(x0)
        device = "cpu" if generator is None else generator.device
        seeds = torch.randint(2**62, (count,), generator=generator, device=device).tolist()
        states = torch.empty(count, steps, *x0.shape[1:], dtype=x0.dtype)
        for start in range(0, count, batch):
            rows = torch.arange(start, min(start + batch, count))
            own = rows % len(x0)
            told = None if conditions is None else conditions[own]
            unrolled = self.unroll(x0[own], told, RowGenerator([seeds[i] for i in rows.tolist()]))
            for k, state in zip(range(steps), unrolled, strict=False):
                states[start : start + len(rows), k] = state.cpu()
        bad = ~states.flatten(2).isfinite().all(2)
        broken = torch.where(bad.any(1), bad.int().argmax(1) + 1, 0).reshape(members, len(x0))
        if bool(broken.any()):
            warnings.warn(
                f"{int((broken > 0).sum())} of {count} trajectories became non-finite, the first at step "
                f"{int(broken[broken > 0].min())}",
                Broken,
                stacklevel=2,
            )
        return Rollout(states.reshape(members, len(x0), *states.shape[1:]), broken)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the emulator as a new folder, which `load` reads."""
        facts = {
            "channels": self.channels,
            "conditions": self.conditions,
            "dt": self.dt,
            "transition": self.transition,
            "nfe": self.nfe,
            "normalisation": asdict(self.normalisation),
            "meta": dict(self.meta),
        }
        write_model(folder, self.model, self.schedule, facts)


def load(folder: str | os.PathLike[str], net: nn.Module | None = None) -> Emulator:
    """Read an emulator; `net` stands in for a network that this package cannot build."""
    model, schedule, facts = read_model(folder, net)
    try:
        return Emulator(
            model=model,
            normalisation=Normalisation(
                **{k: tuple(v) for k, v in facts["normalisation"].items()}
            ),
            channels=tuple(facts["channels"]),
            dt=float(facts["dt"]),
            schedule=schedule,
            transition=facts["transition"],
            conditions=tuple(facts["conditions"]),
            meta=facts["meta"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{folder} is not a whole emulator: {error!r} in the facts of config.json"
        ) from error
