"""Several sets of trajectories as one, the files of a folder for example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float

from biasbound.data.columns import Frames
from biasbound.data.trajectories import Trajectories

__all__ = ["concatenate"]


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
    """Sets of trajectories as one; all but their number, their names and their parameters' values must agree."""
    first = parts[0]
    for part in parts[1:]:
        if replace(part.layout, trajectories=len(first), name=first.layout.name) != first.layout:
            raise ValueError(f"{part.name} does not continue {first.name}: found {part!r}, expected {first!r}")
        for kind in ("parameters", "series", "static"):
            found, expected = sorted(getattr(part, kind)), sorted(getattr(first, kind))
            if found != expected:
                raise ValueError(f"{part.name} has the {kind} {found}, but {first.name} has {expected}")
        if not np.array_equal(_valid(part), _valid(first)):
            raise ValueError(f"{part.name} has another mask than {first.name}; give them one mask, or read them apart")
    layout, static = replace(first.layout, trajectories=sum(map(len, parts))), dict(first.static)
    for n, mask in first.static.items():  # stays (*N) where all parts share it, else becomes (S, *N)
        if mask.shape != layout.grid or not all(np.array_equal(mask, part.static[n]) for part in parts):
            static[n] = np.concatenate([np.broadcast_to(p.static[n], (len(p), *layout.grid)) for p in parts])
    return Trajectories.open(
        layout,
        Joined(parts),
        name=name,
        coordinates=first.coordinates,
        parameters={n: np.concatenate([p.parameters[n] for p in parts]) for n in first.parameters},
        series={n: np.concatenate([p.series[n] for p in parts]) for n in first.series},
        static=static,
        provenance=first.provenance,
        mask=first.mask,
        labels=first.labels,
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def _valid(t: Trajectories) -> Bool[np.ndarray, " *N"]:
    return np.ones(t.layout.grid, dtype=bool) if t.mask is None else t.mask
