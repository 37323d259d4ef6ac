"""MATLAB files, version 5 (through scipy) and 7.3 (HDF5); only read, and only their arrays of numbers.

A field is an array over time and space in any order, u(x, t) say. Its time axis is the one as long as an evenly spaced
vector called t, time, tt …; vectors as long as its other axes say where the grid points stand. A complex field becomes
two channels. Scalars are parameters. Cells, structures and objects are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from jaxtyping import Float, Float64

from biasbound._io import open_regular
from biasbound.data.axes import Arrangement, arrange
from biasbound.data.columns import Array
from biasbound.data.edges import settle
from biasbound.data.extras import extra, reading
from biasbound.data.formats.files import HDF5, Format, begins, opened
from biasbound.data.layout import Boundary, Labels, Layout
from biasbound.data.options import ReadOptions, as_mask
from biasbound.data.trajectories import Trajectories

__all__ = ["FORMAT"]

V5, V73, BLOCK = b"MATLAB 5.0 MAT-file", b"MATLAB 7.3 MAT-file", 512
NUMBERS = ("double", "single", "logical", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
KIND = "a MATLAB file"
OPEN: tuple[Boundary, ...] = ("open",)


@dataclass(frozen=True)
class _File:
    """The arrays of numbers in a file: their shapes without axes of one point, and their values when asked for."""

    path: Path
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def look(cls, path: Path) -> _File:
        if begins(path, V73):
            with reading(path, KIND), opened(path) as file:
                parts = {n: d for n, d in file.items() if isinstance(d, h5py.Dataset) and _numeric(d)}
                return cls(path, {n: _squeezed(d.shape[::-1]) for n, d in parts.items()})
        io = extra("scipy.io", path)
        with reading(path, KIND):
            found = io.whosmat(str(path))
        return cls(path, {n: _squeezed(shape) for n, shape, kind in found if kind in NUMBERS and 0 not in shape})

    def values(self, *names: str) -> dict[str, np.ndarray]:
        if begins(self.path, V73):  # where MATLAB counts axes from the other end
            with reading(self.path, KIND), opened(self.path) as file:
                return {n: _complex(file[n][()]).T.reshape(self.shapes[n]) for n in names}
        io = extra("scipy.io", self.path)
        with reading(self.path, KIND):
            found = io.loadmat(str(self.path), variable_names=list(names))
            return {n: np.asarray(found[n]).reshape(self.shapes[n]) for n in names}

    def fields(self) -> list[str]:
        return [n for n, shape in self.shapes.items() if len(shape) > 1]


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(n) for n in shape if n != 1)


def _numeric(dataset: h5py.Dataset) -> bool:
    kind = dataset.attrs.get("MATLAB_class", b"double")
    named = kind.decode() if isinstance(kind, bytes) else str(kind)
    whole = 0 not in dataset.shape and "MATLAB_empty" not in dataset.attrs
    return named in NUMBERS and whole and (dataset.dtype.kind in "fiub" or dataset.dtype.names == ("real", "imag"))


def _complex(values: np.ndarray) -> np.ndarray:
    return values["real"] + 1j * values["imag"] if values.dtype.names else values


def matches(path: Path) -> bool:
    if not path.is_file():
        return False
    with open_regular(path) as file:
        head = file.read(BLOCK + len(HDF5))
    return head.startswith(V5) or (head.startswith(V73) and (len(head) < BLOCK or head.endswith(HDF5)))


def _chosen(file: _File, options: ReadOptions) -> tuple[str, ...]:
    fields = file.fields()
    if options.variable is None:
        others = [n for n in fields if n not in (options.mask, "mask")]
        if len(others) != 1:
            what = ", ".join(others) or "none"
            raise ValueError(f"{file.path}: found the fields {what}; choose one or several with --variable")
        return tuple(others)
    for name in options.variable:
        if name not in fields:
            raise ValueError(f"{file.path}: found no field {name!r}; it has {', '.join(fields) or 'none'}")
    shapes = {file.shapes[name] for name in options.variable}
    if len(shapes) > 1:
        raise ValueError(f"{file.path}: found the shapes {sorted(shapes)}; variables read together need one shape")
    return options.variable


def read(path: Path, options: ReadOptions | None = None) -> Trajectories:
    """Read the field into memory, as trajectories in its own precision."""
    told, file, where = options or ReadOptions(), _File.look(path), str(path)
    chosen = _chosen(file, told)
    loaded = file.values(*chosen, *(n for n, shape in file.shapes.items() if len(shape) < 2))
    vectors = {n: v.astype(np.float64) for n, v in loaded.items() if v.ndim == 1 and v.dtype.kind in "fiu"}
    scalars = {n: float(v) for n, v in loaded.items() if v.ndim == 0 and v.dtype.kind in "fiu"}
    how = arrange(file.shapes[chosen[0]], vectors, told, where, scalars.pop("dt", None), stacked=len(chosen) > 1)
    parts = [_parts(n, loaded[n], how) for n in chosen]
    fields = np.concatenate([values for _, values in parts], axis=2)
    names = told.channels or tuple(name for names, _ in parts for name in names)
    samples, frames, count, *grid = fields.shape
    if len(names) != count:
        raise ValueError(f"{path}: found {len(names)} names for {count} channels; name each of them")
    points = tuple(_points(how, i, n) for i, n in enumerate(grid))
    ends = tuple((float(p.min()), float(p.max())) for p in points)
    layout = Layout(path.stem, samples, frames, names, tuple(grid), how.dt, ends, OPEN * len(grid), points="ends")
    found = Trajectories.open(
        layout,
        Array(fields),
        name=where,
        coordinates=points,
        parameters={n: np.full(samples, v) for n, v in scalars.items()},
        provenance={"read from": "MATLAB file", "variable": ", ".join(chosen)},
        labels=Labels(how.names),
        notes=how.notes,
        mask=_mask(file, told, tuple(grid)),
    )
    return settle(found, told.edges(len(grid), where), told.ends(len(grid), where) or (None,) * len(grid))


def _parts(name: str, values: np.ndarray, how: Arrangement) -> tuple[list[str], Float[np.ndarray, "S K C *N"]]:
    """One variable with its axes in our order, and the names of its channels."""
    fields = how.ordered(values)
    names = [name] if fields.shape[2] == 1 else [f"{name}{i}" for i in range(fields.shape[2])]
    if fields.dtype.kind == "c":
        names = [f"{n}_{part}" for n in names for part in ("real", "imag")]
        fields = np.stack([fields.real, fields.imag], axis=3)
        fields = fields.reshape(*fields.shape[:2], -1, *fields.shape[4:])
    kind = np.float64 if fields.dtype.kind != "f" else fields.dtype.newbyteorder("=")
    return names, np.ascontiguousarray(fields, dtype=kind)


def _points(how: Arrangement, axis: int, count: int) -> Float64[np.ndarray, " n"]:
    found = how.points[axis]
    return np.linspace(0.0, 1.0, count) if found is None else found


def _mask(file: _File, told: ReadOptions, grid: tuple[int, ...]) -> np.ndarray | None:
    """The variable that says which points are valid: the one asked for, or a field called mask on this grid."""
    name = told.mask or "mask"
    if file.shapes.get(name) != grid:
        if told.mask is not None:
            raise ValueError(f"{file.path}: found no field {name!r} of shape {grid} for the mask")
        return None
    return as_mask(file.values(name)[name], len(grid))


FORMAT = Format(KIND, matches, read)
