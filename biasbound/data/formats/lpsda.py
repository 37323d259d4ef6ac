"""Kuramoto–Sivashinsky files of LPSDA and PDEArena.

One HDF5 group named by the split, with `pde_{K}-{N}` (S, K, N), `x` (S, N), `dx` (S,), `t` (S, K) and `dt` (S,).
Unless told otherwise, their generator varies the time step and the length of the domain between trajectories. Both are
then kept as parameters `dt` and `length`, and the file's own are the means.
"""

from __future__ import annotations

import re
from pathlib import Path

import h5py
import numpy as np
from jaxtyping import Float64

from biasbound._io import replacing
from biasbound.data.columns import hdf5_column
from biasbound.data.formats.files import Format, holds, opened
from biasbound.data.layout import Layout
from biasbound.data.trajectories import PERIODIC, Trajectories

FIELD = re.compile(r"pde_\d+-\d+")
EXPECTED = "one group (train, valid or test) with pde_<frames>-<points>, dx and dt"


def _fields(file: h5py.File) -> list[h5py.Dataset]:
    groups = [group for group in file.values() if isinstance(group, h5py.Group)]
    return [group[name] for group in groups for name in group if FIELD.fullmatch(name)]


def read(path: Path, dt: float | None = None) -> Trajectories:
    """Open lazily; any further dataset with one number per trajectory becomes a parameter."""
    with opened(path) as file:
        fields = _fields(file)
        if len(fields) != 1:
            raise ValueError(f"{path}: found the fields {[f.name[1:] for f in fields]}, expected {EXPECTED}")
        field, group = fields[0], fields[0].parent
        if field.ndim != 3 or 0 in field.shape or field.dtype.kind != "f":
            found = f"{field.name[1:]} of shape {field.shape} and {field.dtype}"
            raise ValueError(f"{path}: found {found}, expected floats (trajectories, frames, points) without zeros")
        samples, frames, points = field.shape
        if "dx" not in group or ("dt" not in group and dt is None):
            raise ValueError(f"{path}: found {sorted(group)}, expected {EXPECTED}")
        scalars = {name: np.asarray(d, dtype=np.float64) for name, d in group.items() if getattr(d, "ndim", 0) == 1}
        if any(v.shape != (samples,) for v in scalars.values()):
            raise ValueError(f"{path}: expected {samples} values in each of {sorted(scalars)}")
        scalars["length"] = scalars.pop("dx") * points
        length, step = _mean(scalars["length"]), _mean(scalars["dt"]) if dt is None else dt
        times = np.asarray(group["t"], dtype=np.float64) if "t" in group else None
        plain = np.tile(np.arange(frames) * step, (samples, 1))
        return Trajectories.open(
            Layout("ks", samples, frames, ("u",), (points,), step, ((0.0, length),), PERIODIC),
            hdf5_column(path, field, (1, points)),
            name=str(path),
            parameters={n: v for n, v in scalars.items() if n not in ("dt", "length") or not _same(v)},
            series={} if times is None or np.array_equal(times, plain) else {"t": times},
            provenance={"read from": "LPSDA/PDEArena file", "split": group.name[1:]},
        )


def _same(values: Float64[np.ndarray, " S"]) -> bool:
    return bool(np.ptp(values) <= 1e-9 * np.abs(values).max())


def _mean(values: Float64[np.ndarray, " S"]) -> float:
    return float(values[0] if _same(values) else values.mean())


def _varied(trajectories: Trajectories, name: str, value: float) -> Float64[np.ndarray, " S"]:
    """`value` for every trajectory, with the variation that a parameter of this name has."""
    given = trajectories.parameters.get(name, np.full(len(trajectories), value))
    mean = float(given.mean())  # not `value` after a time stride: the parameter dt stays that of the file
    return given if np.isclose(mean, value, rtol=1e-9) else given * (value / mean)


def write(trajectories: Trajectories, path: Path, *, overwrite: bool = False) -> None:
    """Save one channel on one periodic axis, as float64 (float32 fits into it exactly)."""
    samples, frames, channels, *grid = trajectories.shape
    if channels != 1 or len(grid) != 1:
        found = f"{channels} channels on a grid of {tuple(grid)}"
        raise ValueError(f"{trajectories.name}: LPSDA files hold one channel on one axis, found {found}")
    (points,), ((low, high),) = grid, trajectories.layout.domain
    dt = _varied(trajectories, "dt", trajectories.dt)
    dx = _varied(trajectories, "length", high - low) / points
    with replacing(path, overwrite) as temporary, h5py.File(temporary, "w") as file:
        group = file.create_group(str(trajectories.provenance.get("split", "train")))
        field = group.create_dataset(f"pde_{frames}-{points}", (samples, frames, points), "f8")
        for s, k, fields in trajectories.pieces():
            field[s : s + len(fields), k : k + fields.shape[1]] = fields[:, :, 0]
        group["x"] = np.linspace(np.zeros(samples), (1 - 1 / points) * dx * points, points, axis=1)
        group["dx"] = dx
        group["t"] = trajectories.series.get("t", dt[:, None] * np.arange(frames))
        group["dt"] = dt
        for name, values in trajectories.parameters.items():
            if name not in (*group, "length"):
                group[name] = values


FORMAT = Format("an LPSDA/PDEArena file", lambda path: holds(path, lambda file: bool(_fields(file))), read, write)
