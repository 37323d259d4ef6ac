"""Trajectories laid out as named arrays with named dimensions: what xarray, NetCDF and Zarr all hold.

channels      (trajectory, time, *axes); rollouts (member, trajectory, time, *axes)
parameters    (trajectory)           series   (trajectory, time)
static, mask  (*axes)                coordinates of every dimension, with units
attribute biasbound                  what no convention has a place for, as JSON
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from biasbound._io import as_kind
from biasbound.data.layout import Labels, Layout
from biasbound.data.trajectories import Trajectories

__all__ = ["OWN", "Own", "Sheet", "own_facts", "sheet_of"]

OWN = "biasbound"


@dataclass(frozen=True)
class Own:
    """What our own files say beyond the conventions."""

    layout: Layout
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    mask: str | None = None  # the variable that holds it


def own_facts(attributes: Any, where: str) -> Own | None:
    """What the attribute `biasbound` of a file holds, if it is ours."""
    told = attributes.get(OWN)
    if not isinstance(told, str):
        return None
    try:
        value = json.loads(told)
    except (ValueError, RecursionError):
        return None
    made: Own = as_kind(Own, value, f"{where}: the attribute {OWN}")
    return made


@dataclass(frozen=True)
class Named:
    """An array with the names of its dimensions."""

    dims: tuple[str, ...]
    values: np.ndarray
    units: str | None = None

    @property
    def attributes(self) -> dict[str, str]:
        return {} if self.units is None else {"units": self.units}


@dataclass(frozen=True)
class Sheet:
    """A labelled file but for the values of its channels, which have the dimensions `dims`."""

    layout: Layout
    rows: tuple[tuple[str, int], ...]  # dimensions before time, with their sizes
    labels: Labels
    arrays: Mapping[str, Named]
    own: Own
    dtype: np.dtype[Any]
    mask: Bool[np.ndarray, " *N"] | None = None

    @property
    def dims(self) -> tuple[str, ...]:
        return (*(name for name, _ in self.rows), "time", *self.labels.named(len(self.layout.grid)))

    @property
    def shape(self) -> tuple[int, ...]:
        return (*(size for _, size in self.rows), self.layout.frames, *self.layout.grid)

    @property
    def attributes(self) -> dict[str, str]:
        return {"title": self.layout.name, OWN: json.dumps(asdict(self.own), sort_keys=True)}

    def units(self, name: str) -> dict[str, str]:
        """The attributes of a channel."""
        return {"units": self.labels.units[name]} if name in self.labels.units else {}

    def filled(self, fields: np.ndarray) -> np.ndarray:
        """Fields (…, *N) in the stored precision, with NaN where the mask says that nothing is valid."""
        kept = fields.astype(self.dtype, copy=False)
        return kept if self.mask is None else np.where(self.mask, kept, self.dtype.type(np.nan))


def sheet_of(t: Trajectories, rows: Mapping[str, int] | None = None, start: float = 0.0) -> Sheet:
    """Trajectories as a sheet; `rows` may split their number into members and trajectories."""
    counts = tuple((rows or {"trajectory": len(t)}).items())
    axes, lead = t.labels.named(len(t.layout.grid)), tuple(name for name, _ in counts)
    times = start + np.arange(t.layout.frames) * t.dt
    points: dict[str, Float64[np.ndarray, " n"]] = dict(zip(axes, t.coordinates, strict=True)) | {"time": times}
    units = t.labels.units
    arrays = {name: Named((name,), np.arange(size)) for name, size in counts}
    arrays |= {name: Named((name,), values, units.get(name)) for name, values in points.items()}
    shape = tuple(size for _, size in counts)
    facts = {name: Named(lead, v.reshape(shape)) for name, v in t.parameters.items()}
    facts |= {name: Named((*lead, "time"), v.reshape(*shape, -1)) for name, v in t.series.items()}
    for name, v in t.static.items():
        alike = v.shape == t.layout.grid
        facts[name] = Named(axes, v) if alike else Named((*lead, *axes), v.reshape(*shape, *t.layout.grid))
    mask = None if t.mask is None else next(n for n in ("mask", "valid", "valid_points") if n not in facts)
    if mask is not None and t.mask is not None:
        facts[mask] = Named(axes, t.mask.astype(np.int8))
    names = [*arrays, *t.channels, *facts]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{t.name}: the name {min(twice)!r} is used twice among {names}; rename one with channels")
    own = Own(t.layout, t.notes, dict(t.provenance), mask)
    return Sheet(t.layout, counts, replace(t.labels, axes=axes), arrays | facts, own, t.dtype, t.mask)
