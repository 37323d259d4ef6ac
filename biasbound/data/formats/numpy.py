"""A plain NumPy array (S, K, C, *N) or (S, K, *N) in a .npy file, with its time step.

Beside FILE.npy may stand FILE.json: {"dt": 0.2, "channels": ["u"], "domain": [[0, 64]],
"boundary": ["periodic"], …}, as `write` leaves it. Without it, the time step must be given.
"""

from __future__ import annotations

import json
import tokenize
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from biasbound._io import replacing
from biasbound.data.columns import Raw, Store
from biasbound.data.layout import Layout
from biasbound.data.trajectories import PERIODIC, Trajectories

__all__ = ["MAGIC", "read", "write"]

MAGIC = b"\x93NUMPY"
FACTS = ("parameters", "series", "static")


def _header(path: Path) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, dtype and offset of the first value."""
    with path.open("rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            reader = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                reader = np.lib.format.read_array_header_2_0
            shape, fortran, dtype = reader(file)
        except (ValueError, SyntaxError, tokenize.TokenError) as error:
            raise ValueError(f"{path}: found a damaged .npy header ({error})") from None
        offset = file.tell()
    if dtype.kind != "f" or fortran:
        order = "Fortran order" if fortran else "C order"
        raise ValueError(f"{path}: found {dtype} in {order}, expected floats in C order")
    missing = offset + int(np.prod(shape)) * dtype.itemsize - path.stat().st_size
    if missing > 0:
        raise ValueError(f"{path}: found a truncated array, {missing} bytes short; copy it again")
    return shape, dtype, offset


def _sidecar(beside: Path) -> dict[str, Any]:
    if not beside.exists():
        return {}
    try:
        found = json.loads(beside.read_text())
    except ValueError as error:
        raise ValueError(f"{beside}: found broken JSON ({error})") from None
    if isinstance(found, dict):
        return found
    raise ValueError(f"{beside}: found a JSON {type(found).__name__}, expected an object")


def _space_axes(path: Path, shape: tuple[int, ...], told: int | None) -> int:
    """How many of the axes after (S, K) are space; the one before them, if any, are channels."""
    rank = len(shape)
    if rank < 3:
        raise ValueError(f"{path}: found shape {shape}, expected (S, K, C, *N) or (S, K, *N)")
    if told is not None and told in (rank - 2, rank - 3) and told > 0:
        return told
    if told is None and rank == 4 and shape[2] != 1:
        raise ValueError(
            f"{path}: found shape {shape}, which may be (S, K, C, N) or (S, K, N, N); put the domain, a pair "
            f"for each space axis, into {path.with_suffix('.json').name} beside it, or give --space to `biasbound data convert`"
        )
    if told is not None:
        raise ValueError(f"{path}: found shape {shape}, which cannot have {told} space axes")
    return max(1, rank - 3)


def read(path: Path, dt: float | None = None, space: int | None = None) -> Trajectories:
    """Open lazily; `dt` and `space` (number of space axes) overrule the sidecar."""
    shape, dtype, offset = _header(path)
    beside = path.with_suffix(".json")
    told = _sidecar(beside)
    step = told.get("dt") if dt is None else dt
    if step is None:
        raise ValueError(
            f'{path}: found no time step; put {{"dt": …}} into {beside.name} beside it, or give --dt to `biasbound data convert`'
        )
    if space is None and "domain" in told:
        space = len(told["domain"])
    axes = _space_axes(path, shape, space)
    count = shape[2] if len(shape) - axes == 3 else 1
    names = ("u",) if count == 1 else tuple(f"u{i}" for i in range(count))
    try:
        layout = Layout(
            name=str(told.get("name", path.stem)),
            trajectories=shape[0],
            frames=shape[1],
            channels=tuple(map(str, told.get("channels", names))),
            grid=shape[len(shape) - axes :],
            dt=float(step),
            domain=tuple((float(a), float(b)) for a, b in told.get("domain", [(0, 1)] * axes)),
            boundary=tuple(told.get("boundary", PERIODIC * axes)),
            points=told.get("points", "left"),
        )
        known: dict[str, Any] = {
            kind: {n: np.array(v, dtype=np.float64) for n, v in told.get(kind, {}).items()} for kind in FACTS
        }
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{beside}: found values of the wrong kind ({error})") from None
    if len(layout.channels) != count:
        raise ValueError(f"{path}: found {count} channels, but {beside.name} names {layout.channels}")
    return Trajectories.open(
        layout,
        Store([Raw(path, offset, dtype, (count, *layout.grid), axis=0)]),
        name=str(path),
        provenance=told.get("provenance", {"read from": "NumPy array"}),
        **known,
    )


def write(trajectories: Trajectories, path: Path, *, overwrite: bool = False) -> None:
    """Save (S, K, C, *N) in the stored precision, and all else in the .json beside it."""
    beside = path.with_suffix(".json")
    if beside.exists() and not overwrite:
        raise ValueError(f"{beside} exists already; choose another name or allow it with --force")
    header = {
        "descr": np.lib.format.dtype_to_descr(trajectories.dtype),
        "fortran_order": False,
        "shape": trajectories.shape,
    }
    facts = {kind: {n: v.tolist() for n, v in getattr(trajectories, kind).items()} for kind in FACTS}
    told = asdict(trajectories.layout) | facts | {"provenance": dict(trajectories.provenance)}
    with replacing(path, overwrite) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for _, _, fields in trajectories.pieces():
            file.write(np.ascontiguousarray(fields).data)
        beside.unlink(missing_ok=True)  # never an old description beside a new array
    with replacing(beside, overwrite) as temporary:
        temporary.write_text(json.dumps(told))
