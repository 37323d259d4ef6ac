"""A plain NumPy array (S, K, C, *N), (S, K, *N) or (K, *N) in a .npy file, with its time step.

FILE.json beside FILE.npy may say more: {"dt": 0.2, "channels": ["u"], "domain": [[0, 64]], "boundary": ["periodic"]}
and so on. `write` leaves such a file. Without it, the time step must be given.
"""

from __future__ import annotations

import json
import math
import tokenize
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from biasbound._io import as_kind, open_regular, read_json, replacing
from biasbound.data.columns import Raw
from biasbound.data.formats.files import Format, begins
from biasbound.data.layout import Labels, Layout
from biasbound.data.options import ReadOptions, applied
from biasbound.data.shapes import arranged
from biasbound.data.trajectories import PERIODIC, Trajectories

FACTS = ("parameters", "series", "static")


def header_of(file: Any, where: object) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran order, and dtype of an array that begins here."""
    try:
        first = np.lib.format.read_magic(file) == (1, 0)
        header = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = header(file)
        if min(shape, default=0) < 0 or dtype.hasobject:
            raise ValueError(f"shape {shape} of {dtype}")
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError, tokenize.TokenError) as error:
        raise ValueError(f"{where}: found a damaged .npy header ({error})") from None
    return shape, fortran, dtype


def open_array(path: Path) -> np.ndarray:
    """A .npy file as a memory map, once its header proved to be that of an array which the file holds."""
    with open_regular(path) as file:
        if file.read(2) == b"PK":
            raise ValueError(f"{path}: found an archive of arrays (.npz), expected one array")
        file.seek(0)
        shape, _, dtype = header_of(file, path)
        missing = file.tell() + math.prod(shape) * dtype.itemsize - path.stat().st_size
    if missing > 0:
        raise ValueError(f"{path}: found a truncated array, {missing} bytes short; copy it again")
    found: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    return found


def _header(path: Path) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, dtype and offset of the first value."""
    with open_regular(path) as file:
        shape, fortran, dtype = header_of(file, path)
        offset = file.tell()
    if dtype.kind != "f" or fortran:
        raise ValueError(f"{path}: found {dtype} in {'Fortran' if fortran else 'C'} order, expected floats in C order")
    missing = offset + math.prod(shape) * dtype.itemsize - path.stat().st_size
    if missing > 0:
        raise ValueError(f"{path}: found a truncated array, {missing} bytes short; copy it again")
    return shape, dtype, offset


def _shape(path: Path, shape: tuple[int, ...], options: ReadOptions, told: dict[str, Any]) -> tuple[int, ...]:
    """(S, K, C, *N) of the array. Without a hint three axes are (S, K, N), and four are refused."""
    dims = options.space_axes(str(path)) or len(told.get("domain", ())) or None
    if dims is None and len(shape) == 4 and shape[2] != 1:
        where = f"put the domain, a pair for each space axis, into {path.with_suffix('.json').name} beside it"
        found = f"found shape {shape}, which may be (S, K, C, N) or (S, K, N, N)"
        raise ValueError(f"{path}: {found}; {where}, or give --dims")
    names = told.get("channels") or (() if options.variable else options.channels or ())
    several = len(names) > 1 and len(shape) == 3
    return arranged(shape, str(path), 1 if dims is None and len(shape) == 3 and not several else dims, names)


def read(path: Path, options: ReadOptions | None = None) -> Trajectories:
    """Open lazily; the options override the .json beside the array."""
    options = options or ReadOptions()
    stored, dtype, offset = _header(path)
    beside = path.with_suffix(".json")
    told: dict[str, Any] = read_json(beside, dict[str, Any], "correct it") if beside.exists() else {}
    told = {name: value for name, value in told.items() if value is not None}
    told |= {} if options.dt is None else {"dt": options.dt}
    if "dt" not in told:
        raise ValueError(f'{path}: found no time step; put {{"dt": …}} into {beside.name} beside it, or give --dt')
    shape = _shape(path, stored, options, told)
    samples, frames, count, *grid = shape
    names = ("u",) if count == 1 else tuple(f"u{i}" for i in range(count))
    facts = {
        "name": path.stem,
        "channels": names,
        "domain": [(0.0, 1.0)] * len(grid),
        "boundary": PERIODIC * len(grid),
    }
    facts |= told | {"trajectories": samples, "frames": frames, "grid": grid, "block": 1}
    layout: Layout = as_kind(Layout, facts, str(beside))
    try:
        held: dict[str, Any] = {k: {n: np.array(v, np.float64) for n, v in told.get(k, {}).items()} for k in FACTS}
        held["provenance"] = dict(told.get("provenance", {"read from": "NumPy array"}))
        held["mask"] = np.array(told["mask"], dtype=bool) if "mask" in told else None
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{beside}: found values that make no array ({error})") from None
    held["labels"] = as_kind(Labels, told.get("labels", {}), f"{beside}: labels")
    held["notes"] = as_kind(tuple[str, ...], told.get("notes", []), f"{beside}: notes")
    found = Trajectories.open(layout, Raw(path, dtype, (count, *grid), offset=offset), name=str(path), **held)
    return applied(found, replace(options, dims=None))


def write(trajectories: Trajectories, path: Path, *, overwrite: bool = False) -> None:
    """Save (S, K, C, *N) in the stored precision, and all else in the .json beside it."""
    beside = path.with_suffix(".json")
    if beside.exists() and not overwrite:
        raise ValueError(f"{beside} exists already; choose another name or allow it with --force")
    header = {"descr": np.lib.format.dtype_to_descr(trajectories.dtype), "fortran_order": False}
    facts = {kind: {n: v.tolist() for n, v in getattr(trajectories, kind).items()} for kind in FACTS}
    told = asdict(trajectories.layout) | facts | {"provenance": dict(trajectories.provenance)}
    told |= {"labels": asdict(trajectories.labels), "notes": trajectories.notes}
    told |= {} if trajectories.mask is None else {"mask": trajectories.mask.tolist()}
    with replacing(path, overwrite) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header | {"shape": trajectories.shape})
        for _, _, fields in trajectories.pieces():
            file.write(np.ascontiguousarray(fields).data)
        beside.unlink(missing_ok=True)  # never an old description beside a new array
    with replacing(beside, overwrite) as temporary:
        temporary.write_text(json.dumps(told))


FORMAT = Format("a .npy array", lambda path: begins(path, b"\x93NUMPY"), read, write, (".npy",), masks=True)
