"""HDF5 files with one dataset `x`: SDA's Kolmogorov flow, and the one-dimensional variant of PDEDiff.

`x` is float32: velocity (S, K, 2, H, W) on [0, 2π)², or (S, K, 1, N) on [0, 64). Frames are 0.2 apart. SDA's
components stand on the faces of a staggered grid, or are block means of these after coarsening. We read both as if
they stood on the same points, as SDA's own code does. Files that we write also hold dt and the domain as attributes
of `x`, which SDA ignores.
"""

from __future__ import annotations

import math
from pathlib import Path

import h5py
import numpy as np

from biasbound._io import replacing
from biasbound.data.columns import hdf5_column
from biasbound.data.formats.files import Format, holds, opened
from biasbound.data.layout import Layout
from biasbound.data.trajectories import PERIODIC, Trajectories

KINDS = {  # rank → flow, channels, domain of an axis
    5: ("kolmogorov", ("velocity_x", "velocity_y"), (0.0, 2 * math.pi)),
    4: ("ks", ("u",), (0.0, 64.0)),
}
STEP = 0.2


def _is_sda(file: h5py.File) -> bool:
    return isinstance(file.get("x"), h5py.Dataset) and len(file) == 1


def read(path: Path, dt: float | None = None) -> Trajectories:
    """Open lazily."""
    with opened(path) as file:
        x = file["x"]
        flow, channels, axis = KINDS.get(x.ndim, ("", (), (0.0, 0.0)))
        if x.dtype.kind != "f" or not channels or x.shape[2] != len(channels):
            wanted = "floats (trajectories, frames, 2, H, W) or (trajectories, frames, 1, N)"
            raise ValueError(f"{path}: found x of shape {x.shape} and {x.dtype}, expected {wanted}")
        samples, frames, _, *grid = x.shape
        step = float(x.attrs.get("dt", STEP) if dt is None else dt)
        told = np.asarray(x.attrs.get("domain", [axis] * len(grid)), dtype=np.float64)
        domain = tuple((float(low), float(high)) for low, high in told)
        layout = Layout(flow, samples, frames, channels, tuple(grid), step, domain, PERIODIC * len(grid))
        provenance = {"read from": "SDA file, a single dataset x"}
        return Trajectories.open(layout, hdf5_column(path, x, x.shape[2:]), name=str(path), provenance=provenance)


def write(trajectories: Trajectories, path: Path, *, overwrite: bool = False) -> None:
    """Save velocity in two dimensions, or one channel in one, as float32."""
    rank, channels = len(trajectories.shape), trajectories.channels
    if rank not in KINDS or len(channels) != len(KINDS[rank][1]):
        found = f"the channels {channels} on a grid of {trajectories.layout.grid}"
        raise ValueError(f"{trajectories.name}: SDA files hold two channels on two axes or one on one, found {found}")
    with replacing(path, overwrite) as temporary, h5py.File(temporary, "w") as file:
        x = file.create_dataset("x", trajectories.shape, "f4")
        x.attrs.update(dt=trajectories.dt, domain=np.array(trajectories.layout.domain))
        for s, k, fields in trajectories.pieces():
            x[s : s + len(fields), k : k + fields.shape[1]] = fields


FORMAT = Format("an SDA file with x", lambda path: holds(path, _is_sda), read, write)
