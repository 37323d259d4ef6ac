"""Mirror images under which an equation stays the same: from one window, as many as the group has elements.

A symmetry is written as the axes that are reversed and, after a colon, the channels that change sign: `x`, `x:-u`, `:-u`,
`xy:-velocity_x,-velocity_y`. The Kuramoto–Sivashinsky equation has `x:-u`, since u(−x) with the other sign solves it too.
What stays where it is, the mask and static conditions, must be its own mirror image.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from jaxtyping import Int64

from biasbound.data.batches import Batch
from biasbound.data.layout import Layout
from biasbound.data.trajectories import Trajectories

AXES = "xyz"
ROUND_OFF = 1e-5  # of the largest value of a static field: less is no difference


@dataclass(frozen=True)
class Symmetry:
    """Some space axes reversed, some channels with the other sign; its own inverse."""

    axes: tuple[int, ...] = ()
    negative: tuple[int, ...] = ()

    @classmethod
    def read(cls, text: str, layout: Layout) -> Symmetry:
        """From its text, for fields of this layout."""
        axes, _, signs = text.replace(" ", "").partition(":")
        named = [sign.removeprefix("-") for sign in signs.split(",") if sign]
        known = AXES[: len(layout.grid)]
        if not (axes or named) or not re.fullmatch(f"[{known}]*", axes) or len({*axes}) < len(axes):
            raise ValueError(f"train.symmetries: {text!r} should name axes among {known}, as in 'x' or 'x:-u'")
        for sign, channel in zip(filter(None, signs.split(",")), named, strict=True):
            if channel not in layout.channels or not sign.startswith("-"):
                have = ", ".join(layout.channels)
                raise ValueError(f"train.symmetries: {text!r} should name channels with a minus, among {have}")
        return cls(tuple(sorted(map(AXES.index, axes))), tuple(sorted(map(layout.channels.index, named))))

    def text(self, layout: Layout) -> str:
        """As `read` takes it."""
        signs = ",".join(f"-{layout.channels[c]}" for c in self.negative)
        return "".join(AXES[a] for a in self.axes) + (f":{signs}" if signs else "")

    def after(self, other: Symmetry) -> Symmetry:
        """Both, one after the other: what either has, but not what both have."""
        axes, negative = ({*a} ^ {*b} for a, b in ((self.axes, other.axes), (self.negative, other.negative)))
        return Symmetry(tuple(sorted(axes)), tuple(sorted(negative)))

    def image(self, batch: Batch) -> Batch:
        """The mirror image of windows (B, W, C, *N), and of what only informs (B, P, *N), which keeps its sign."""
        frames = batch.frames.flip([3 + a for a in self.axes])
        if self.negative:
            signs = frames.new_ones(frames.shape[2], *[1] * (frames.ndim - 3))
            signs[list(self.negative)] = -1
            frames = frames * signs
        return Batch(frames, batch.conditions.flip([2 + a for a in self.axes]))

    def broken_by(self, data: Trajectories) -> str | None:
        """What stays where it is and is not its own mirror image: the mask, or a static condition by name."""
        still = {"the mask": data.mask} if data.mask is not None else {}
        still |= {f"the static field {name!r}": data.static[name] for name in data.conditions if name in data.static}
        for name, field in still.items():
            values = np.asarray(field, dtype=np.float64)
            image = np.flip(values, tuple(a - len(data.layout.grid) for a in self.axes))
            if np.abs(image - values).max() > ROUND_OFF * np.abs(values).max():
                return name
        return None

    def checked(self, data: Trajectories) -> Symmetry:
        """Itself, where these data can have it."""
        if (name := self.broken_by(data)) is not None:
            text = self.text(data.layout)
            raise ValueError(
                f"train.symmetries: {text!r} is no symmetry of {data.name}, since {name} is not its own mirror image; "
                "leave it out"
            )
        return self


def group(symmetries: Iterable[Symmetry]) -> tuple[Symmetry, ...]:
    """Everything that these make together, the identity first."""
    made = {Symmetry(): None}
    for one in symmetries:
        made |= {one.after(other): None for other in made}
    return tuple(made)


def images(batch: Batch, elements: Sequence[Symmetry], which: Int64[np.ndarray, " B"]) -> Batch:
    """Each window as its own element of the group shows it."""
    frames, conditions = torch.empty_like(batch.frames), torch.empty_like(batch.conditions)
    for number, element in enumerate(elements):
        rows = torch.from_numpy(np.flatnonzero(which == number))
        frames[rows], conditions[rows] = element.image(Batch(batch.frames[rows], batch.conditions[rows]))
    return Batch(frames, conditions)


def candidates(layout: Layout) -> list[Symmetry]:
    """The mirror images that an equation of these fields may have: each axis alone, with signs, and signs alone.

    Along a reversed axis all channels keep their sign, all change it, or only the component along the axis does.
    """
    every = tuple(range(len(layout.channels)))
    found = [Symmetry((), every)]
    for axis in range(len(layout.grid)):
        along = tuple(i for i, name in enumerate(layout.channels) if name.endswith(f"_{AXES[axis]}"))
        signs = [(), every, *([along] if along and along != every else [])]
        found += [Symmetry((axis,), negative) for negative in signs]
    if len(layout.grid) > 1:
        found += [Symmetry(axes, every) for axes in combinations(range(len(layout.grid)), 2)]
    return found
