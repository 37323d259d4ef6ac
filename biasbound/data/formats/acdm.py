"""Folders of transonic cylinder flow as ACDM ("autoreg-pde-diffusion") lays them out.

    sim_000000/{velocity,density,pressure}_000000.npz   key arr_0: (2, X, Y), (1, X, Y), (1, X, Y)
    sim_000000/obstacle_mask.npz                        key arr_0: (X, Y), 1 in the fluid
    sim_000000/src/description.json                     Mach and Reynolds number, drag and lift series

**Trap:** the files called `velocity_*.npz` hold momentum ρu. Reading divides it by the density (channels velocity_x,
velocity_y), writing multiplies by it. `momentum=True` gives it as it is (momentum_x, momentum_y), bit for bit. Frames
are 0.1 convective times D/U apart.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from biasbound._io import backed, read_json, replacing
from biasbound.data.columns import Frames
from biasbound.data.extras import reading
from biasbound.data.formats.files import Format
from biasbound.data.formats.numpy import header_of
from biasbound.data.layout import Boundary, Layout
from biasbound.data.trajectories import Trajectories

FIELDS = ("velocity", "density", "pressure")
VELOCITY = ("velocity_x", "velocity_y", "density", "pressure")
MOMENTUM = ("momentum_x", "momentum_y", "density", "pressure")
STEP = 0.1  # D/U
OPEN: tuple[Boundary, ...] = ("open", "open")
# 256 × 128 points with ends at x = −1.5, 10.5 and y = ±3 (in D), and the pair mid-points of them that make
# 128 × 64, are both centres of equal cells here.
DOMAIN = ((-1.5 - 6 / 255, 10.5 + 6 / 255), (-3 - 3 / 127, 3 + 3 / 127))
SCALARS = {"mach": "Mach Number", "reynolds": "Reynolds Number"}
SERIES = {"drag": "Drag Coefficient", "lift": "Lift Coefficient"}


def _simulations(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("sim_*") if re.fullmatch(r"sim_\d+", p.name))


def _array(path: Path, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """The one array of an .npz file."""
    if not path.is_file():
        raise ValueError(f"{path} is missing from its simulation")
    with reading(path, "a damaged .npz file"), np.load(path, allow_pickle=False) as file:
        array = _unpacked(file, path)
    if shape is not None and array.shape != shape:
        raise ValueError(f"{path}: found shape {array.shape}, expected {shape}")
    return array


def _unpacked(file: Any, path: Path) -> np.ndarray:
    """arr_0, after a look at what its header declares: a few bytes may unpack to gigabytes."""
    with file.zip.open("arr_0.npy") as member:
        shape, _, dtype = header_of(member, path)
    backed(str(path), shape, dtype.itemsize, path)
    return np.asarray(file["arr_0"])


class _Files:
    """Channels (x, y of momentum or velocity, density, pressure) from the three files of a frame."""

    def __init__(self, folders: list[Path], numbers: list[str], density: np.ndarray, momentum: bool) -> None:
        self._folders, self._numbers, self._grid, self._momentum = folders, numbers, density.shape[1:], momentum
        self.channels, self.dtype = 4, density.dtype.newbyteorder("=")

    def read(self, frames: Frames) -> Float[np.ndarray, "F 4 X Y"]:
        out = np.empty((len(frames), 4, *self._grid), self.dtype)
        for i, frame in enumerate(frames.tolist()):
            s, k = divmod(frame, len(self._numbers))
            for name, part in zip(FIELDS, np.split(out[i], [2, 3]), strict=True):
                part[:] = _array(self._folders[s] / f"{name}_{self._numbers[k]}.npz", part.shape)
        if not self._momentum:
            with np.errstate(divide="ignore", invalid="ignore"):  # refused where values are checked
                out[:, :2] /= out[:, 2:3]
        return out


def _numbers(simulation: Path) -> list[str]:
    """Frame numbers, the same for the three fields."""
    found = {name: sorted(p.stem.rsplit("_", 1)[1] for p in simulation.glob(f"{name}_*.npz")) for name in FIELDS}
    if not found["density"] or any(v != found["density"] for v in found.values()):
        counts = {name: len(v) for name, v in found.items()}
        raise ValueError(f"{simulation}: found {counts}, expected velocity, density and pressure of the same frames")
    return found["density"]


def _description(simulation: Path, numbers: list[str]) -> tuple[dict[str, float], dict[str, Any]]:
    """Parameters of one simulation, and its series at these frames where they reach so far."""
    path = simulation / "src" / "description.json"
    wanted = f"expected JSON with {list(SCALARS.values())}"
    told: dict[str, Any] = read_json(path, dict[str, Any], wanted)
    try:
        frames = [int(n) for n in numbers]
        scalars = {ours: float(told[theirs]) for ours, theirs in SCALARS.items() if theirs in told}
        long = {ours: told[theirs] for ours, theirs in SERIES.items() if len(told.get(theirs, ())) > frames[-1]}
        series = {ours: np.array(values, dtype=np.float64)[frames] for ours, values in long.items()}
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {wanted} ({error})") from None
    if "mach" not in scalars:
        raise ValueError(f"{path}: found {sorted(told)}, expected 'Mach Number'")
    return scalars, series


def read(path: Path, dt: float | None = None, momentum: bool = False) -> Trajectories:
    """Open lazily: a frame costs its three files."""
    folders = _simulations(path)
    numbers = _numbers(folders[0])
    for folder in folders[1:]:
        if _numbers(folder) != numbers:
            raise ValueError(f"{folder}: its frames differ from those of {folders[0]}")
    density = _array(folders[0] / f"density_{numbers[0]}.npz")
    grid = density.shape[1:]
    if len(grid) != 2:
        raise ValueError(f"{folders[0]}: found density on a grid of {grid}, expected (1, X, Y)")
    told = [_description(folder, numbers) for folder in folders]
    masks = np.stack([_array(f / "obstacle_mask.npz", grid) for f in folders]).astype(np.float32)
    ids = np.array([int(folder.name[4:]) for folder in folders], dtype=np.float64)
    parameters = {n: np.array([t[0][n] for t in told]) for n in told[0][0]}
    if not np.array_equal(ids, np.arange(len(folders))):
        parameters["simulation"] = ids
    channels, how = (MOMENTUM, "momentum, as stored") if momentum else (VELOCITY, "stored momentum over density")
    step = STEP if dt is None else dt
    return Trajectories.open(
        Layout("transonic", len(folders), len(numbers), channels, grid, step, DOMAIN, OPEN, points="centre"),
        _Files(folders, numbers, density, momentum),
        name=str(path),
        parameters=parameters,
        series={n: np.stack([t[1][n] for t in told]) for n in SERIES if all(n in t[1] for t in told)},
        static={"mask": masks[0] if (masks == masks[0]).all() else masks},
        provenance={"read from": "ACDM folder", "velocity": how},
    )


def write(trajectories: Trajectories, path: Path, *, overwrite: bool = False) -> None:
    """Save momentum (or velocity times density), density and pressure, frame by frame."""
    grid, names = trajectories.layout.grid, trajectories.channels
    parameters, series = trajectories.parameters, trajectories.series
    wanted = MOMENTUM if "momentum_x" in names else VELOCITY
    if len(grid) != 2 or {*wanted} != {*names} or "mach" not in parameters:
        hold = f"ACDM folders hold {list(wanted)} in two dimensions and a parameter mach"
        raise ValueError(f"{trajectories.name}: {hold}; found {list(names)} on {grid} with {list(parameters)}")
    order = [names.index(name) for name in wanted]
    ids = parameters.get("simulation", np.arange(len(trajectories)))
    masks = np.broadcast_to(trajectories.static.get("mask", 1), (len(trajectories), *grid)).astype(np.int64)
    with replacing(path, overwrite) as temporary:
        folders = [temporary / f"sim_{int(i):06d}" for i in ids]
        for s, folder in enumerate(folders):
            (folder / "src").mkdir(parents=True)
            np.savez_compressed(folder / "obstacle_mask.npz", masks[s])
            scalars = {theirs: float(parameters[ours][s]) for ours, theirs in SCALARS.items() if ours in parameters}
            forces = {theirs: series[ours][s].tolist() if ours in series else [] for ours, theirs in SERIES.items()}
            (folder / "src" / "description.json").write_text(json.dumps(scalars | forces, indent=1))
        for s, k, fields in trajectories.pieces():
            fields = fields[:, :, order]
            if wanted == VELOCITY:
                fields[:, :, :2] *= fields[:, :, 2:3]
            for i, j in np.ndindex(fields.shape[:2]):
                for name, part in zip(FIELDS, np.split(fields[i, j], [2, 3]), strict=True):
                    np.savez_compressed(folders[s + i] / f"{name}_{k + j:06d}.npz", part)


FORMAT = Format("an ACDM folder", lambda path: bool(_simulations(path)), read, write)
