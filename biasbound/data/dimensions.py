"""What the dimensions and variables of a labelled dataset mean: time, trajectories, space, levels, facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from biasbound.data.layout import Boundary
from biasbound.data.options import ReadOptions, as_mask
from biasbound.data.times import time_step

__all__ = ["Axes", "around", "axes_of", "facts_of", "mask_of", "points_of", "step_of", "units_of", "variables_of"]

TIMES = ("time", "t", "step", "valid_time", "times", "tt")
ROWS = ("trajectory", "member", "number", "sample", "ensemble", "realization", "simulation", "run", "case", "batch")
LATITUDE, LONGITUDE = ("lat", "latitude"), ("lon", "longitude")


@dataclass(frozen=True)
class Axes:
    """The dimensions of the fields by what they mean."""

    rows: tuple[str, ...]  # count trajectories; several are one after the other
    time: str
    extra: tuple[str, ...]  # count channels (levels)
    space: tuple[str, ...]


def variables_of(dataset: Any, options: ReadOptions, name: str) -> tuple[list[str], tuple[str, ...]]:
    """The fields to read: those asked for, or all that have the most dimensions, one of which is time."""
    fields = [str(n) for n, v in dataset.data_vars.items() if v.dtype.kind in "fiu" and v.ndim > 1]
    if options.variable is not None:
        for wanted in options.variable:
            if wanted not in fields:
                raise ValueError(f"{name}: found no field {wanted!r}; it has {', '.join(fields) or 'none'}")
        return list(options.variable), ()
    bounds = {str(v.attrs.get("bounds", "")) for v in dataset.variables.values()}
    timed = [n for n in fields if n not in bounds and _time_of(dataset, dataset[n].dims)]
    if not timed:
        raise ValueError(f"{name}: found no field with a time dimension and space; it has {dict(dataset.sizes)}")
    most = max(len(dataset[n].dims) for n in timed)
    chosen = [n for n in timed if len(dataset[n].dims) == most and most > 1]
    if len({frozenset(dataset[n].dims) for n in chosen}) > 1:
        several = ", ".join(f"{n}{dataset[n].dims}" for n in chosen)
        raise ValueError(f"{name}: found fields on different grids ({several}); choose with --variable")
    left = [n for n in timed if n not in chosen and not {*dataset[n].dims} <= {*ROWS, *TIMES}]
    less = f"{Path(name).name}: left out {', '.join(left)}, with fewer dimensions than {chosen[0]}."
    return chosen, (less,) if left else ()


def _time_of(dataset: Any, dims: Sequence[Any]) -> str | None:
    """The dimension that is time, by its kind, its attributes or its name; a forecast's step before its start."""
    found = []
    for d in dims:
        point = dataset.variables.get(d)
        about = {} if point is None else point.attrs
        told = about.get("axis") == "T" or about.get("standard_name") == "time"
        if str(d).lower() in TIMES or told or (point is not None and point.dtype.kind in "mM"):
            found.append(str(d))
    return "step" if "step" in found else next(iter(found), None)


def axes_of(dataset: Any, chosen: list[str], options: ReadOptions, name: str) -> Axes:
    dims = [str(d) for d in max((dataset[n].dims for n in chosen), key=len)]
    time = _time_of(dataset, dims)
    if time is None:
        raise ValueError(
            f"{name}: found the dimensions {', '.join(dims)}, none of which is time; name one of them time"
        )
    starts = [d for d in dims if d != time and d in TIMES]  # of forecasts
    rows = tuple(d for d in dims if d.lower() in ROWS or d in starts)
    rest = [d for d in dims if d not in (*rows, time)]
    count = options.space_axes(name) or len(rest)
    if not 0 < count <= len(rest) or len(rest) > count + 1:
        raise ValueError(f"{name}: found the dimensions {', '.join(dims)}, which cannot have {count} space axes")
    cut = len(rest) - count
    return Axes(rows, time, tuple(rest[:cut]), tuple(rest[cut:]))


def points_of(dataset: Any, dim: str) -> Float64[np.ndarray, " n"]:
    """Where the points of a dimension stand; 0 … 1 where it does not say."""
    if dim in dataset.variables and dataset.variables[dim].dtype.kind in "fiu":
        return np.asarray(dataset.variables[dim].values, dtype=np.float64)
    return np.linspace(0.0, 1.0, int(dataset.sizes[dim]))


def step_of(dataset: Any, time: str, options: ReadOptions, name: str) -> float:
    if options.dt is not None:
        return options.dt
    if time not in dataset.variables:
        raise ValueError(f"{name}: found no times along {time}; give the time step with --dt")
    values = np.asarray(dataset.variables[time].values)
    if values.dtype.kind in "mM":
        values = (values - values[:1]).astype("timedelta64[ns]").astype(np.float64) / 1e9  # seconds
    return time_step(values.astype(np.float64), name)


def units_of(dataset: Any, channels: Sequence[tuple[str, str]], axes: Axes, options: ReadOptions) -> dict[str, str]:
    """Units by the names that the layout has; `channels` are (variable, channel)."""
    named = [(dim, dim) for dim in axes.space] + ([(axes.time, "time")] if options.dt is None else [])
    held = [(dataset.variables[n], ours) for n, ours in (*named, *channels) if n in dataset.variables]
    found = {ours: "s" if v.dtype.kind in "mM" else v.attrs.get("units") for v, ours in held}
    return {ours: str(unit) for ours, unit in found.items() if unit is not None}


def facts_of(dataset: Any, chosen: list[str], axes: Axes, sizes: dict[str, int]) -> dict[str, Any]:
    """Parameters, series and static fields among the other variables."""
    facts: dict[str, Any] = {"parameters": {}, "series": {}, "static": {}}
    rows, grid = [sizes[d] for d in axes.rows], [sizes[d] for d in axes.space]
    samples = int(np.prod(rows))
    if len(rows) > 1:  # which member, and which of the trajectories that they start from
        numbers = np.unravel_index(np.arange(samples), rows)
        for d, number in zip((*axes.rows[:-1], "start"), numbers, strict=True):
            facts["parameters"][d] = number.astype(np.float64)
    for key, variable in dataset.variables.items():
        n, dims = str(key), {*variable.dims}
        if n in chosen or n in dataset.dims or variable.dtype.kind not in "fiub" or not dims:
            continue
        lead = [d for d in axes.rows if d in dims]
        if dims == {*axes.space, *lead}:
            values = variable.transpose(*lead, *axes.space).values
            whole = np.broadcast_to(
                values.reshape([sizes[d] if d in lead else 1 for d in axes.rows] + grid), rows + grid
            )
            facts["static"][n] = np.asarray(whole.reshape(samples, *grid) if lead else values, dtype=np.float64)
        elif dims <= {*axes.rows, axes.time} and lead:
            ends = [axes.time] if axes.time in dims else []
            values = variable.transpose(*lead, *ends).values.astype(np.float64)
            shape = [sizes[d] if d in lead else 1 for d in axes.rows] + [sizes[d] for d in ends]
            full = np.broadcast_to(values.reshape(shape), rows + [sizes[d] for d in ends])
            facts["series" if ends else "parameters"][n] = full.reshape(samples, *full.shape[len(rows) :]).copy()
    return facts


def mask_of(facts: dict[str, Any], name: str, rank: int) -> Bool[np.ndarray, " *N"] | None:
    """The static field of this name as a mask, taken out of the facts; None where none of zeros and ones has it."""
    values = facts["static"].get(name)
    if values is None or not np.isin(np.nan_to_num(values), (0, 1)).all():
        return None
    del facts["static"][name]
    return as_mask(values, rank)


def around(dataset: Any, dim: str, points: Float64[np.ndarray, " n"]) -> Boundary | None:
    """What latitude and longitude say about their boundary; None for any other axis."""
    unit = str(dataset.variables[dim].attrs.get("units", "")) if dim in dataset.variables else ""
    if dim.lower() in LATITUDE or unit == "degrees_north":
        return "open"
    if dim.lower() in LONGITUDE or unit == "degrees_east":
        step = abs(float(points[-1] - points[0])) / max(1, len(points) - 1)
        closes = min(abs(n * step - 360) for n in (len(points) - 1, len(points))) < 0.01 * step
        return "periodic" if closes else "open"
    return None
