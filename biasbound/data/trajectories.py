"""Trajectories x⁰ … x^{K−1}: one array (S, K, C, *N), read lazily, with what is needed to use it.

A `Trajectories` is a view: selecting, striding and splitting copy nothing, and a batch reads only its own frames.
`windows(u)` are the stretches x^k … x^{k+u} inside single trajectories; `batches.Order` gives them in a random order
that training can leave and resume exactly (docs/data.md has an example). Values are neither checked nor normalised on
reading; `statistics` helps with both. Points outside the `mask` read as 0.0, whatever is stored there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from biasbound.data import splits
from biasbound.data.columns import Array, Reader
from biasbound.data.layout import Boundary, Coordinates, Labels, Layout
from biasbound.data.shapes import arranged, space_axes
from biasbound.data.statistics import Moments, Statistics, require_finite
from biasbound.data.windows import Index, Windows, float32

__all__ = ["PERIODIC", "PIECE", "Trajectories", "View", "Windows"]

PERIODIC: tuple[Boundary, ...] = ("periodic",)
PIECE = 1 << 22  # values held at once in a streaming pass


@dataclass(frozen=True)
class View:
    """A part of the stored array (S₀, K₀, C, *N₀)."""

    length: int  # K₀
    trajectories: Int64[np.ndarray, " S"]
    frames: range
    points: tuple[range, ...]

    @classmethod
    def whole(cls, layout: Layout) -> View:
        s, k, _, *grid = layout.shape
        return cls(k, np.arange(s), range(k), tuple(map(range, grid)))


@dataclass(frozen=True, eq=False, repr=False)
class Trajectories:
    """S trajectories of K frames with C channels on a grid *N, in memory or on disk.

    >>> data = Trajectories.from_array(np.zeros((3, 100, 1, 16)), dt=0.1, channels=["u"])
    >>> train, valid, test = data.split_time(0.7, 0.15, 0.15, gap=5)
    >>> train  # 0.7 of what the two gaps leave
    Trajectories(array: 3 × 63 × 1 × 16, dt 0.1, u)
    """

    layout: Layout
    reader: Reader
    view: View
    coordinates: Coordinates
    parameters: Mapping[str, Float64[np.ndarray, " S"]] = field(default_factory=dict)
    series: Mapping[str, Float64[np.ndarray, "S K"]] = field(default_factory=dict)
    static: Mapping[str, Float[np.ndarray, ...]] = field(default_factory=dict)  # *N or S *N
    provenance: Mapping[str, Any] = field(default_factory=dict)
    name: str = "array"  # how messages call it
    conditions: tuple[str, ...] = ()
    known: Statistics | None = None  # of the channels, where the file holds them
    mask: Bool[np.ndarray, " *N"] | None = None  # True where values are valid; None where all are
    labels: Labels = field(default_factory=Labels)
    notes: tuple[str, ...] = ()  # what was done on reading, in sentences
    division: splits.Split | None = None  # how the data were divided, of which this is a part

    @classmethod
    def open(cls, layout: Layout, reader: Reader, *, name: str, **facts: Any) -> Trajectories:
        """All of a reader's frames, which have the shape that `layout` says, and the facts that belong to them."""
        layout.check(name)
        facts = {"coordinates": layout.coordinates()} | facts
        found = cls(layout, reader, View.whole(layout), name=name, **facts)
        s, k, grid = layout.trajectories, layout.frames, layout.grid
        facts_and_shapes = (found.parameters, [(s,)]), (found.series, [(s, k)]), (found.static, [grid, (s, *grid)])
        for values, shapes in facts_and_shapes:
            for key, value in values.items():
                if value.shape not in shapes:
                    raise ValueError(f"{name}: found {key} of shape {value.shape}, expected {shapes[0]}")
        if tuple(axis.shape for axis in found.coordinates) != tuple((n,) for n in grid):
            raise ValueError(f"{name}: found coordinates of {[*map(len, found.coordinates)]} points, expected {grid}")
        if (mask := found.mask) is not None and not (mask.dtype == bool and mask.shape == grid and mask.any()):
            what = f"of shape {mask.shape} and {mask.dtype}" if mask.any() else "without a valid point"
            raise ValueError(f"{name}: found a mask {what}, expected bool of shape {grid}, True at valid points")
        return found

    @classmethod
    def from_array(
        cls,
        fields: Float[np.ndarray, ...] | Float[Tensor, ...],
        *,
        dt: float,
        channels: Sequence[str] = (),
        domain: Sequence[tuple[float | int, float | int]] = (),
        boundary: Sequence[Boundary] = (),
        name: str = "array",
        dims: int | None = None,
        mask: Bool[np.ndarray, " *N"] | None = None,
        **facts: Any,
    ) -> Trajectories:
        """Wrap an array in memory: (S, K, C, *N), or one trajectory or one channel less.

        `dims`, `domain` or `boundary` tell the number of space axes; `biasbound.data.shapes` has the rule by which the
        other axes are recognised. By default channels are u0, u1, … (one alone in fewer axes: u), and every axis is
        periodic on [0, 1]. `mask` is True at valid points; values elsewhere may be NaN.

        >>> data = Trajectories.from_array(np.zeros((3, 10, 1, 16)), dt=0.1, channels=["u"])
        >>> data.shape, data.dt, data.first().shape
        ((3, 10, 1, 16), 0.1, torch.Size([3, 1, 16]))
        """
        array = fields.numpy() if isinstance(fields, Tensor) else np.asarray(fields)
        shape = arranged(array.shape, name, space_axes(name, dims, domain, boundary), channels)
        s, k, c, *grid = shape
        alone = c == 1 and array.ndim < len(shape)
        names = tuple(channels) or (("u",) if alone else tuple(f"u{i}" for i in range(c)))
        ends, kinds = tuple(domain) or ((0.0, 1.0),) * len(grid), tuple(boundary) or PERIODIC * len(grid)
        layout = Layout(name, s, k, names, tuple(grid), dt, tuple((float(a), float(b)) for a, b in ends), kinds)
        return cls.open(layout, Array(array.reshape(shape)), name=name, mask=mask, **facts)

    @property
    def shape(self) -> tuple[int, ...]:
        """(S, K, C, *N)."""
        return self.layout.shape

    @property
    def dt(self) -> float:
        return self.layout.dt

    @property
    def channels(self) -> tuple[str, ...]:
        return self.layout.channels

    @property
    def dtype(self) -> np.dtype[Any]:
        """As stored; batches are float32."""
        return self.reader.dtype

    def __len__(self) -> int:
        return self.layout.trajectories

    def __repr__(self) -> str:
        size = " × ".join(map(str, self.shape))
        return f"Trajectories({self.name}: {size}, dt {self.dt:g}, {', '.join(self.channels)})"

    def take(self, s: Int64[np.ndarray, " B"], k: Int64[np.ndarray, "B W"]) -> Float[np.ndarray, "B W C *N"]:
        """Frames k[b, w] of trajectory s[b], in the stored dtype."""
        view = self.view
        numbers = view.trajectories[s][:, None] * view.length + view.frames.start + view.frames.step * k
        data = self.reader.read(numbers.reshape(-1))[:, :, *(slice(p.start, p.stop, p.step) for p in view.points)]
        if self.mask is not None:
            data = np.where(self.mask, data, data.dtype.type(0))
        return data.reshape(*k.shape, *data.shape[1:])

    def read(self, start: int, stop: int, frames: slice = slice(None)) -> Float[np.ndarray, "n k C *N"]:
        """Trajectories [start, stop), by default all their frames, in the stored dtype."""
        s, k = np.arange(start, stop), np.arange(self.layout.frames)[frames]
        return self.take(s, np.broadcast_to(k, (len(s), len(k))))

    def __getitem__(self, s: int) -> Float[Tensor, "K C *N"]:
        """One whole trajectory."""
        return float32(self.select(s).read(0, 1))[0]

    def first(self, n: int = 1) -> Float[Tensor, "S ..."]:
        """The first frame of each trajectory (S, C, *N); for n > 1 the first n (S, n, C, *N)."""
        if not 1 <= n <= self.layout.frames:
            raise ValueError(f"{self.name}: found {self.layout.frames} frames, of which {n} were asked for")
        frames = float32(self.read(0, len(self), slice(n)))
        return frames[:, 0] if n == 1 else frames

    def samples(self, limit: int = PIECE, reads: int = 64) -> Float[np.ndarray, "F C *N"]:
        """Frames spread evenly over all trajectories: all of them where they are at most `limit` values, in `reads`."""
        total, size = len(self) * self.layout.frames, int(np.prod(self.shape[2:]))
        whole = total * size <= limit and len(self) <= reads
        count = total if whole else min(total, reads, max(2, limit // size))
        s, k = np.divmod(np.unique(np.linspace(0, total - 1, count).astype(np.int64)), self.layout.frames)
        return self.take(s, k[:, None])[:, 0]

    def pieces(self, limit: int = PIECE) -> Iterator[tuple[int, int, np.ndarray]]:
        """All data in order, bounded in size: (first trajectory, first frame, (n, k, C, *N)); NaN, ∞ are refused."""
        frames, size = self.layout.frames, int(np.prod(self.shape[2:]))
        some = max(1, limit // (size * frames))
        step = frames if size * frames <= limit else max(1, limit // size)
        for s in range(0, len(self), some):
            for k in range(0, frames, step):
                fields = self.read(s, min(s + some, len(self)), slice(k, k + step))
                stored = self.view.trajectories[s : s + some], self.view.frames[k : k + step]
                require_finite(fields, self.channels, stored, self.name)
                yield s, k, fields

    def load(self) -> Trajectories:
        """The same trajectories in memory."""
        fields = self.read(0, len(self)).copy(order="K")  # without the points that a stride left out
        return replace(self, reader=Array(fields), view=View.whole(self.layout))

    def select(self, trajectories: Index = slice(None), frames: slice = slice(None)) -> Trajectories:
        """Some trajectories (a number, slice, list or mask) and a stretch of frames."""
        rows = np.atleast_1d(np.arange(len(self))[trajectories])
        kept = range(self.layout.frames)[frames]
        if len(rows) == 0 or len(kept) == 0 or kept.step < 0:
            raise ValueError(f"{self.name}: a selection needs a trajectory and frames going forwards")
        return replace(
            self,
            layout=replace(self.layout, trajectories=len(rows), frames=len(kept), dt=self.dt * kept.step),
            view=replace(self.view, trajectories=self.view.trajectories[rows], frames=self.view.frames[frames]),
            parameters={n: v[rows] for n, v in self.parameters.items()},
            series={n: v[rows][:, frames] for n, v in self.series.items()},
            static={n: v if v.shape == self.layout.grid else v[rows] for n, v in self.static.items()},
            known=None,
        )

    def stride(self, time: int = 1, space: int = 1) -> Trajectories:
        """Every `time`-th frame and every `space`-th grid point along each axis, from the first."""
        if time < 1 or space < 1:
            raise ValueError(f"{self.name}: strides must be at least 1, got {time} and {space}")
        thin = self.select(frames=slice(None, None, time)) if time > 1 else self
        if space == 1:
            return thin
        every = slice(None, None, space)
        kept = tuple(axis[every] for axis in self.coordinates)
        cut: Any = (..., *[every] * len(kept))
        return replace(
            thin,
            layout=thin.layout.thin(kept, space, self.name),
            view=replace(thin.view, points=tuple(p[every] for p in thin.view.points)),
            coordinates=kept,
            static={n: v[cut] for n, v in thin.static.items()},
            mask=None if thin.mask is None else thin.mask[cut],
            known=None,
        )

    def split(self, seed: int | None = None, **fractions: float) -> dict[str, Trajectories]:
        """Disjoint parts by trajectory, `split(train=0.8, test=0.2)`, in stored order or in the seed's random order.

        Part i has the places from ⌊S Σ_{j<i} f_j⌋ to ⌊S Σ_{j≤i} f_j⌋; none may be empty.
        """
        return splits.by_trajectory(self, fractions, seed)

    def split_time(
        self, train: float, valid: float, test: float, gap: int = 0
    ) -> tuple[Trajectories, Trajectories, Trajectories]:
        """Three parts of every trajectory in time order, with `gap` frames left out between two of them.

        >>> data = Trajectories.from_array(np.zeros((1, 100, 1, 16)), dt=0.1)
        >>> [part.shape for part in data.split_time(0.7, 0.15, 0.15, gap=5)]
        [(1, 63, 1, 16), (1, 13, 1, 16), (1, 14, 1, 16)]
        """
        parts = splits.in_time(self, {"train": train, "valid": valid, "test": test}, gap)
        return parts["train"], parts["valid"], parts["test"]

    def condition_on(self, *names: str) -> Trajectories:
        """Give these parameters or static fields to x (and x only) as extra channels."""
        have = sorted({*self.parameters, *self.static})
        for name in names:
            if name not in have:
                raise ValueError(f"{self.name} has no parameter or static field {name!r}; it has {have}")
        return replace(self, conditions=names)

    def windows(self, steps: int, every: int = 1) -> Windows:
        """All stretches of `steps` + 1 frames, `every` apart; h past and u future ones are `windows(h + u − 1)`."""
        return Windows(self, steps, every)

    def pairs(self) -> Windows:
        """All (x^k, x^{k+1})."""
        return Windows(self, 1)

    @cached_property
    def statistics(self) -> Statistics:
        """Of this view: from the file where it holds them, else from one pass over the data."""
        valid = ... if self.mask is None else (..., self.mask)
        fields = {name: v[valid] for name, v in self.static.items() if name in self.conditions}
        values = [{**fields, **self.parameters}[name] for name in self.conditions]
        mean, std = (np.array([of(v, dtype=np.float64) for v in values]) for of in (np.mean, np.std))
        return replace(self.known or self.measure(), condition_mean=mean, condition_std=std)

    def measure(self) -> Statistics:
        """Statistics of the channels from one pass over this view."""
        moments = Moments(len(self.channels), self.mask)
        for s, k, fields in self.pieces():
            moments.add(fields, s, k)
        return moments.statistics()

    def save(self, path: str | Path, *, format: str | None = None, overwrite: bool = False) -> None:
        """Write as this view shows it; without `format`, the ending of the path decides."""
        from biasbound.data.formats import save

        save(self, path, format=format, overwrite=overwrite)

    def to_xarray(self) -> Any:
        """An `xarray.Dataset` in memory: dimensions trajectory, time and the space axes, channels as variables."""
        from biasbound.data.labelled import to_xarray

        return to_xarray(self)
