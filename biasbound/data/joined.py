"""Several files as one set of trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from biasbound.data.columns import Frames
from biasbound.data.trajectories import Trajectories


class Joined:
    """Trajectories one set after the other; frames are counted through all of them."""

    def __init__(self, parts: Sequence[Trajectories]) -> None:
        self._parts, self._starts = tuple(parts), np.cumsum([0, *map(len, parts)])
        self.channels, self.dtype = len(parts[0].channels), np.result_type(*(part.dtype for part in parts))

    def read(self, frames: Frames) -> Float[np.ndarray, "F C *N"]:
        _, length, *frame = self._parts[0].shape
        s, k = np.divmod(frames, length)
        owner = np.searchsorted(self._starts, s, side="right") - 1
        out = np.empty((len(frames), *frame), self.dtype)
        for i in np.unique(owner).tolist():
            mine = owner == i
            out[mine] = self._parts[i].take(s[mine] - self._starts[i], k[mine][:, None])[:, 0]
        return out


def concatenate(parts: Sequence[Trajectories], name: str) -> Trajectories:
    """Sets of trajectories as one; all but their number and their parameters' values must agree."""
    first = parts[0]
    for part in parts[1:]:
        if replace(part.layout, trajectories=len(first)) != first.layout:
            raise ValueError(
                f"{part.name} does not continue {first.name}: found {part.shape[1:]}, dt {part.dt}, "
                f"channels {part.channels}; expected {first.shape[1:]}, {first.dt}, {first.channels}"
            )
        for kind in ("parameters", "series", "static"):
            found, expected = sorted(getattr(part, kind)), sorted(getattr(first, kind))
            if found != expected:
                raise ValueError(f"{part.name} has the {kind} {found}, but {first.name} has {expected}")
    return Trajectories.open(
        replace(first.layout, trajectories=sum(map(len, parts))),
        Joined(parts),
        name=name,
        coordinates=first.coordinates,
        parameters={n: np.concatenate([p.parameters[n] for p in parts]) for n in first.parameters},
        series={n: np.concatenate([p.series[n] for p in parts]) for n in first.series},
        static={n: _static([p.static[n] for p in parts], parts) for n in first.static},
        provenance=first.provenance,
    )


def _static(fields: Sequence[np.ndarray], parts: Sequence[Trajectories]) -> np.ndarray:
    """(*N) where all parts share it, else (S, *N)."""
    grid = parts[0].layout.grid
    if all(f.shape == grid and np.array_equal(f, fields[0]) for f in fields):
        return fields[0]
    return np.concatenate([np.broadcast_to(f, (len(p), *grid)) for f, p in zip(fields, parts, strict=True)])
