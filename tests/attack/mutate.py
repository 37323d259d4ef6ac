"""Damage: to bytes, blindly and where numbers stand; to JSON and YAML, in their structure; to HDF5, by its own means."""

from __future__ import annotations

import json
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import h5py
import numpy as np

EXTREMES = (0, 1, -1, -7, -16, -17, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1)
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    3,
    1.5,
    1e308,
    -(2**70),
    "",
    "x",
    "../../x",
    "\x1b[2J",
    [],
    {},
    [[]],
    [None],
    {"a": {}},
)
DEEP = "[" * 5000
TEXTS = (".json", ".jsonl", ".yaml", ".zattrs")


def damaged(good: Path, folder: Path, rng: random.Random) -> Path:
    """A damaged copy of a file or folder below `folder`."""
    target = folder / good.name
    if not good.is_dir():
        target.write_bytes(_spoilt(good, folder, rng))
        beside = good.with_suffix(".json")
        if good.suffix == ".npy" and beside.exists():
            told = beside.read_bytes() if rng.random() < 0.6 else _structure(beside.read_bytes(), rng)
            (folder / beside.name).write_bytes(told)
        return target
    shutil.copytree(good, target)
    files = sorted(p for p in target.rglob("*") if p.is_file())
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        path = rng.choice(files)
        if rng.random() < 0.06:
            path.unlink(missing_ok=True)
        elif path.exists():
            path.write_bytes(_spoilt(path, path.parent, rng))
    return target


def _spoilt(path: Path, folder: Path, rng: random.Random) -> bytes:
    """The damaged bytes of a file; `folder` may be written into."""
    data = path.read_bytes()
    if path.suffix in TEXTS and rng.random() < 0.8:
        return _structure(data, rng)
    if data[:8] == b"\x89HDF\r\n\x1a\n" and rng.random() < 0.3:
        return _rewritten(data, folder, rng)
    for _ in range(rng.choice((1, 1, 1, 2, 5, 30))):
        data = _bytes(data, rng)
    return data


def _bytes(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return rng.randbytes(rng.randrange(64))
    spoilt, n = bytearray(data), len(data)
    # Metadata stand in front more often than not.
    place = rng.randrange(n) if rng.random() < 0.4 else rng.randrange(min(n, 2048))
    kind = rng.randrange(8)
    if kind == 0:
        spoilt[place] ^= 1 << rng.randrange(8)
    elif kind == 1:
        spoilt[place] = rng.choice((0, 1, 127, 128, 255))
    elif kind == 2:
        return bytes(spoilt[: rng.randrange(n)])
    elif kind == 3:
        spoilt[place : place + rng.randrange(1, 64)] = bytes(rng.randrange(1, 64))
    elif kind == 4:
        spoilt[place:place] = rng.randbytes(rng.randrange(1, 32))
    elif kind in (5, 6):
        place -= place % 4
        size = rng.choice(("<Q", "<I", ">I", "<H"))
        value = struct.pack(size, rng.choice(EXTREMES) % 256 ** struct.calcsize(size))
        spoilt[place : place + len(value)] = value
    else:
        other = rng.randrange(n)
        spoilt[place : place + 16] = data[other : other + 16]
    return bytes(spoilt)


def _structure(data: bytes, rng: random.Random) -> bytes:
    """JSON with a node changed, taken away or doubled; YAML and lines of JSON with lines changed."""
    if rng.random() < 0.05:
        return DEEP.encode() + data
    try:
        told = json.loads(data)
    except RecursionError:
        return data  # it is deep already
    except ValueError:
        lines = data.decode(errors="replace").split("\n")
        i = rng.randrange(len(lines))
        key = lines[i].partition(":")[0]
        lines[i] = rng.choice(
            ("", "]", "- ", f"{key}: {rng.choice(ODD)!r}", f"{key}: *a", "\t", lines[i] * 2, "{", '{"a": 1}')
        )
        return "\n".join(lines).encode(errors="surrogatepass")
    for _ in range(rng.choice((1, 1, 2))):
        told = _changed(told, rng)
    return json.dumps(told).encode()


def _changed(told: Any, rng: random.Random) -> Any:
    """One node of a JSON value, on a random way down, is another."""
    if isinstance(told, dict) and told and rng.random() < 0.85:
        key = rng.choice(sorted(told))
        if rng.random() < 0.12:
            return {k: v for k, v in told.items() if k != key}
        return {**told, key: _changed(told[key], rng)}
    if isinstance(told, list) and told and rng.random() < 0.7:
        i = rng.randrange(len(told))
        return [*told[:i], _changed(told[i], rng), *told[i + (rng.random() < 0.9) :]]
    if isinstance(told, int | float) and rng.random() < 0.5:
        return rng.choice((-told, told + 1, told * 1000, 0, -1, 2**33, 0.5))
    return rng.choice(ODD)


def _rewritten(data: bytes, folder: Path, rng: random.Random) -> bytes:
    """A valid HDF5 file with other attributes, other arrays or fewer of them."""
    path = folder / f".rewritten-{rng.randrange(10**9)}.h5"
    path.write_bytes(data)
    try:
        with h5py.File(path, "r+") as file:
            things: list[Any] = [file]
            file.visititems(lambda name, thing: things.append(thing))
            for _ in range(rng.choice((1, 1, 2, 3))):
                _other(rng.choice(things), rng)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        pass  # some changes are too much for h5py itself
    changed = path.read_bytes()
    path.unlink()
    return changed


def _other(thing: Any, rng: random.Random) -> None:
    odd = rng.choice(
        (3, "x", b"\xff", np.nan, h5py.Empty("f4"), np.zeros((2, 2)), np.array([], "f4"), [1.5, -1.0], "{}", "[")
    )
    names = list(thing.attrs)
    if names and rng.random() < 0.6:
        name = rng.choice(names)
        if rng.random() < 0.3:
            del thing.attrs[name]
        else:
            thing.attrs[name] = odd
    elif isinstance(thing, h5py.Dataset):
        group, name, attributes = thing.parent, thing.name, dict(thing.attrs)
        shape, kind = thing.shape, rng.choice(("f4", "f8", "i4", "S3", "bool", "c8", thing.dtype))
        del group[name]
        if rng.random() < 0.8:
            sizes = tuple(rng.choice((n, n, n + 1, 0, 1, 2**31)) for n in shape)
            chunks = tuple(min(n, 2) or 1 for n in sizes) or None
            group.create_dataset(name, sizes, kind, chunks=chunks if 0 not in sizes else None).attrs.update(attributes)
    elif thing.name != "/":
        del thing.parent[thing.name]
