"""A model: a network with a loss and a way to answer. Nothing outside this package asks which kind it is.

Each kind has one file. A kind is a class with

    loss(batch, generator)     a scalar to train on, from a batch of windows in the network's units
    advance(x, generator)      y from x
    calls                      network calls of one `advance`
    spec()                     JSON values from which `make` builds the same model again around a network

and class attributes: `noisy` tells whether its network is given a noisy target and its log-SNR beside x, `accepts` which
fields of a `Method` mean something to it, `focus` how large a share of the samples its lowest level can be given, and
`trained` whether it has a network at all.

A model of a masked problem carries the mask of valid points. Its loss is a mean over these alone, and its answers are 0
at all others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import nn

from biasbound.core.losses import Scalar
from biasbound.core.mask import Mask, cleared
from biasbound.core.noise import Condition, State
from biasbound.core.sample import Correct, Transition
from biasbound.core.schedule import Schedule
from biasbound.core.target import PLAIN, Target
from biasbound.models.task import Forecast, Task
from biasbound.registry import find, home

__all__ = ["MODELS", "Examples", "Frame", "Model", "Recipe", "Settings", "low_precision", "make", "target_of"]


@runtime_checkable
class Examples(Protocol):
    """A batch: windows of frames (B, W, C, *N), and the channels that only inform (B, P, *N)."""

    @property
    def frames(self) -> Any: ...

    @property
    def conditions(self) -> Any: ...


@dataclass(frozen=True)
class Frame:
    """What every kind of model is built on: how many channels y has, the task, the target's variables, the valid points."""

    channels: int
    task: Task = field(default_factory=Forecast)
    target: Target = PLAIN
    mask: Mask | None = field(default=None, compare=False)  # of valid points


@dataclass(frozen=True)
class Recipe:
    """How a loss is made of a window: which levels it asks, and what stands for the earlier targets in later conditions.

    An unrolled loss has `unroll` targets beyond the first. Between two of them stands the model's own answer (`own`), for
    a diffusion model the proxy estimate P⁽ⁿ⁾ (`proxy`) or a full sample (`full`).
    """

    unroll: int = 0
    between: Literal["own", "proxy", "full"] = "own"
    n: int = 0
    detach: bool = False  # no gradient through what stands between
    share: float | tuple[float, ...] | None = None  # of the samples, for σ_0 or for each level; None: all levels alike
    members: int = 1  # answers per window, where their CRPS is the loss

    def lowest(self, levels: int) -> float:
        """The share of the samples that train σ_0."""
        if self.share is None:
            return 1 / levels
        return self.share if isinstance(self.share, float) else self.share[0]


@dataclass(frozen=True)
class Settings:
    """What a study tells its methods beyond their labels; each kind takes what it knows."""

    schedule: Schedule | None = None  # the chain of a diffusion model
    transition: Transition = "renoise"
    refinements: int = 3  # K of the refiner
    sigma_min: float = 3e-3  # of the refiner


class Model(nn.Module, ABC):
    """The base of every kind: `net` is the network, `frame` what it works on, `recipe` how it is trained."""

    noisy: ClassVar[bool] = True
    accepts: ClassVar[frozenset[str]] = frozenset({"residual"})
    trained: ClassVar[bool] = True  # whether there is a network to train
    samplers: ClassVar[tuple[str, ...]] = ()  # other ways to sample a trained model than its own
    finetunes: ClassVar[tuple[str, ...]] = ()  # ways to train it further
    focus: ClassVar[float] = 0.6  # share of the lowest level, which makes the answer, where a method asks for it
    net: Any
    frame: Frame
    mask: Mask | None  # saved with the weights
    recipe: Recipe = Recipe()
    low: bool = False  # the network in bf16; levels, noise, estimates and errors are never
    rows: int = 0  # samples that were passed through the network, each pass of each sample

    def __init__(self, net: Any = None, frame: Frame | None = None) -> None:
        super().__init__()
        if frame is not None:  # a denoiser sets its own
            self.net, self.frame = net, frame
            self.register_buffer("mask", frame.mask)

    @abstractmethod
    def loss(self, batch: Examples, generator: torch.Generator) -> Scalar:
        """A scalar to train on, from windows in the network's units."""

    @abstractmethod
    def advance(self, x: Condition, generator: torch.Generator | None = None) -> State:
        """y from x; non-finite values are returned, not hidden."""

    def corrected(self, x: Condition, generator: torch.Generator | None, correct: Correct) -> State:
        """y from x with every estimate on the way to it corrected; by default only the answer, as one of σ = 0."""
        return correct(self.advance(x, generator), 0.0)

    @property
    def calls(self) -> int:
        """Network calls of one `advance`."""
        return 1

    def spec(self) -> dict[str, Any]:
        """JSON values that `make` takes as options; the schedule of a chain is kept beside them."""
        return {}

    @classmethod
    def options(cls, method: Any, settings: Settings) -> dict[str, Any]:
        """What a fresh model of a method is made with, beside its network and frame."""
        return {}

    @classmethod
    def extra(cls, channels: int) -> int:
        """Channels that it adds to x for its network, where y has so many."""
        return 0

    def resample(self, sampler: str = "", calls: int = 0) -> None:
        """Answer in another way from now on, without another training: one of `samplers`, or with so many calls."""
        self.require(sampler, calls)
        if calls:
            raise ValueError(f"a {type(self).__name__} model has no other number of calls than {self.calls}")

    def require(self, sampler: str, calls: int) -> None:
        """Refuse a sampler that this kind does not have, and a number of calls that is none; empty and 0 are its own."""
        if sampler and sampler not in self.samplers:
            raise ValueError(f"a {type(self).__name__} model has the samplers {list(self.samplers)}, not {sampler!r}")
        if calls < 0:
            raise ValueError(f"a model needs at least 1 call, got {calls}")

    def ask(self, *inputs: Any) -> State:
        """The network's output for (z_t, x, log_snr), or for x alone; every pass is counted, for the ledger.

        Under a mask the network sees 0 at masked points, and the mask as one more channel of x.
        """
        if not torch.compiler.is_exporting():  # which would put the count into the exported program
            self.rows += len(inputs[0])
        if (mask := self.mask) is not None:
            *noisy, x = inputs[:2] if self.noisy else inputs[:1]
            x = torch.cat([x, mask.to(x).expand(x.shape[0], 1, *mask.shape)], 1)
            inputs = (*(cleared(field, mask) for field in (*noisy, x)), *inputs[2:])
        with low_precision(inputs[0].device) if self.low else nullcontext():
            output: State = self.net(*inputs)
        return output.to(inputs[0].dtype) if self.low else output

    @classmethod
    def passes(cls, recipe: Recipe, levels: int) -> float:
        """Expected network passes per sample in one update; `levels` is the length of a chain."""
        return 1.0 + recipe.unroll

    def windows(self, batch: Examples) -> tuple[Condition, list[State]]:
        """x of the first target, and all targets."""
        task = self.frame.task
        return task.given(batch.frames, batch.conditions), task.wanted(batch.frames)


def low_precision(device: torch.device) -> AbstractContextManager[Any]:
    """bf16 where an operation of a network can be in it, on a device that knows it."""
    known = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, torch.bfloat16) if known else nullcontext()


# Values are classes, or texts `module:Class` of ours that are imported when first asked for.
MODELS: dict[str, Any] = home(
    "models",
    {
        "diffusion": "biasbound.models.diffusion:Diffusion",
        "direct": "biasbound.models.direct:Direct",
        "refiner": "biasbound.models.refiner:Refiner",
        "edm": "biasbound.models.edm:EDM",
        "flow": "biasbound.models.flow:Flow",
        "recfm": "biasbound.models.recfm:RecFM",
        "meanflow": "biasbound.models.meanflow:MeanFlow",
        "flowrefiner": "biasbound.models.flowrefiner:FlowRefiner",
        "member": "biasbound.models.member:Member",
        "persistence": "biasbound.models.persistence:Persistence",
        "interpolation": "biasbound.models.persistence:Interpolation",
    },
)


def make(kind: str, net: Any, frame: Frame, options: Mapping[str, Any]) -> Model:
    """A model of a kind around a network."""
    made: Model = find(MODELS, kind)(net, frame, **options)
    return made


def target_of(scale: Sequence[float], task: Task, channels: int) -> Target:
    """The residual target of a task with the spread r of y − guess; the plain one without a scale."""
    return Target(tuple(scale), partial(task.guess, channels=channels)) if scale else PLAIN
