"""Networks that are a chain of blocks at one resolution: what `fno`, `dilated` and `dit` have in common.

An architecture of this kind says what its options are, how large its sizes are, and how a body is made of them. A body
enters a latent field, passes it through blocks that are told the log-SNR, and leaves it by a linear layer that starts at
zero, so that a new network answers 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import torch
from jaxtyping import Float
from pydantic import ConfigDict
from pydantic import Field as Limits
from torch import Tensor, nn

from biasbound._io import as_kind, plain
from biasbound.core.noise import Condition, State
from biasbound.nets.blocks import LogSnrEmbedding, Shift
from biasbound.nets.build import NetSpec, check_dims
from biasbound.nets.layers import Conv, Field, Paddings, Sizes, channels_first, channels_last, uniform
from biasbound.nets.places import Places

__all__ = ["Architecture", "Chain", "Conditional", "Count", "Direct", "Options", "Shape", "loud", "zero_linear"]

Count = Annotated[int, Limits(ge=1)]
Lift = TypeVar("Lift", Conv, nn.Linear)
Sizings = Mapping[tuple[int, str], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every chain has to say; checked by pydantic when a spec is resolved."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    width: Count  # channels between the blocks
    blocks: Count
    embedding: Annotated[int, Limits(gt=0, multiple_of=8)] = 64  # channels of the log-SNR embedding
    frequency: Annotated[float, Limits(gt=0)] = 2.0  # its highest angular frequency
    positions: Annotated[int, Limits(ge=0)] = 0  # waves that tell a point its place along each periodic axis

    def fitted(self, grid: Sizes, padding: Paddings) -> Options:
        """With all that depends on the grid written out."""
        return self


@dataclass(frozen=True)
class Shape:
    """What a body maps: the channels of its fields, its axes, and whether it is told the log-SNR."""

    inputs: int
    outputs: int
    padding: Paddings  # per axis, "circular" or "zeros"
    noise: bool


class Architecture:
    """An entry of `NETS`: from a spec to a conditional or a direct network.

    `about` describes it in lists, `kind` are its options, `sizes` the options by dimensions and size, and `body` makes
    its body.
    """

    def __init__(self, about: str, kind: type[Options], sizes: Sizings, body: Callable[[Shape, Any], Chain]) -> None:
        self.__doc__, self.kind, self.sizes, self.body = about, kind, sizes, body

    def resolve(self, spec: NetSpec) -> NetSpec:
        """Options: `size` (small, large) and any field of the options, whose defaults are those of the size."""
        given = dict(spec.options)
        size: str = as_kind(Literal["small", "large"], given.pop("size", "small"), "the network's size")
        check_dims(spec)
        made = self._options({**self.sizes[len(spec.grid), size], **given})
        return replace(spec, options=plain(made.fitted(spec.grid, spec.padding)))

    def __call__(self, spec: NetSpec, noisy: bool) -> nn.Module:
        channels = spec.inputs + (spec.outputs if noisy else 0)
        body = self.body(Shape(channels, spec.outputs, spec.padding, noisy), self._options(spec.options))
        return Conditional(body) if noisy else Direct(body)

    def _options(self, values: Mapping[str, Any]) -> Options:
        made: Options = as_kind(self.kind, plain(values), "the network's options")
        return made


class Chain(nn.Module, ABC):
    """(B, inputs, *N) and log-SNR (B,) → (B, outputs, *N): enter → blocks → leave."""

    # Waves that tell a point its place along an axis with ends, for bodies to which the padding does not show it.
    ends: ClassVar[int] = 0
    lift: nn.Module  # from channels of the field to those of the blocks

    def __init__(self, shape: Shape, options: Options, blocks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.shape, self.options = shape, options
        made: list[Any] = [*blocks]
        self.blocks = nn.ModuleList(made)
        self.shift_channels: list[int] = [block.shift_channels for block in made]
        if shape.noise:
            self.embedding = LogSnrEmbedding(options, sum(self.shift_channels))
        told = tuple(options.positions if kind == "circular" else self.ends for kind in shape.padding)
        self.place = Places(shape.padding, told, options.width) if any(told) else None

    @property
    def strides(self) -> Sizes:
        """By how many points a field may be shifted along each circular axis, so that the result is shifted too: with no
        `positions` that tell the points apart."""
        return (1,) * len(self.shape.padding)

    def enter(self, x: Field) -> Field:
        """From the field's channels to those of the blocks."""
        y: Field = self.lift(x)
        return y

    def middle(self, x: Field, shifts: Iterator[Shift | None]) -> Field:
        for block in self.blocks:
            x = block(x, next(shifts))
        return x

    @abstractmethod
    def leave(self, x: Field, grid: Sizes) -> Field:
        """From the blocks to the answer, on the grid of the field."""

    def forward(
        self, inputs: Float[Tensor, "B I *N"], log_snr: Float[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B O *N"]:
        dims = len(self.shape.padding)
        if (inputs.shape[1], inputs.ndim - 2) != (self.shape.inputs, dims):
            raise ValueError(
                f"the network takes {self.shape.inputs} channels in {dims} dimensions, got a field of shape "
                f"{tuple(inputs.shape)}"
            )
        told = repeat(None) if log_snr is None else iter(self.embedding(log_snr).split(self.shift_channels, -1))
        x = channels_last(inputs)
        h = self.enter(x)
        h = h if self.place is None else self.place(h)
        return channels_first(self.leave(self.middle(h, told), x.shape[1:-1]), dims)


class Conditional(nn.Module):
    """output = net(z_t, x, log-SNR): the network inside a denoiser."""

    def __init__(self, body: Chain) -> None:
        super().__init__()
        self.body = body

    def forward(self, z_t: State, x: Condition, log_snr: Float[Tensor, " B"]) -> State:
        y: State = self.body(torch.cat([z_t, x], 1), log_snr)
        return y


class Direct(nn.Module):
    """y = net(x): the same without a noisy target and its log-SNR."""

    def __init__(self, body: Chain) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Condition) -> State:
        y: State = self.body(x)
        return y


def loud(lift: Lift, shape: Shape) -> Lift:
    """A first layer that hears x as loudly as that of a direct network does.

    Drawn for the fan-in of z_t and x together, weights and bias are smaller, and a network that ignores z_t, as one
    at the top of a ladder does, is a tenth less accurate.
    """
    if shape.noise:
        heard = shape.inputs - shape.outputs
        uniform(lift.weight, lift.bias, fan_in=lift.weight[0].numel() * heard // shape.inputs)
    return lift


def zero_linear(inside: int, outside: int) -> nn.Linear:
    """A linear layer that starts at zero."""
    made = nn.Linear(inside, outside)
    nn.init.zeros_(made.weight)
    nn.init.zeros_(made.bias)
    return made
