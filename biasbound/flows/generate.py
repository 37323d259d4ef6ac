"""Generation in parallel processes, which can be killed and resumed.

FILE.part/ holds every finished block as a file of its own, beside the configuration that the blocks belong to. When
all are there, they are joined in order to form FILE. A block is computed from the source alone and on one thread, so
the bytes of FILE depend neither on the number of processes nor on interruptions.
"""

import hashlib
import json
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from biasbound import __version__
from biasbound._io import damaged, lock, plain, read_json, remove, require_room, workers, write_json
from biasbound.data.formats.native import Piece, write_pieces
from biasbound.data.formats.well import stored_fingerprint
from biasbound.data.layout import Layout, Source
from biasbound.data.trajectories import Trajectories
from biasbound.flows.blocks import Task, make, make_alone

Progress = Callable[[int, int], None]  # trajectories done, trajectories in all
Spread = Callable[[Mapping[str, Callable[[], int]]], Iterator[int]]  # calls by name → their results, as they come
Blocks = dict[Path, tuple[int, int]]  # file → its trajectories [start, stop), in order
AGAIN = "remove it, and the same command makes it again"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def generate(
    source: Source,
    path: Path,
    *,
    jobs: int = 1,
    spread: Spread | None = None,
    dtype: str = "float32",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> bool:
    """Write all trajectories of a source to a native file, in `jobs` processes; False if it was there already.

    With `spread` blocks are computed elsewhere: it takes calls by name and gives their results as they come.

    An unfinished FILE.part of the same configuration is continued. One of another configuration is refused, as is an
    existing FILE, unless `overwrite`. Only one process can work on a FILE at a time.
    """
    if jobs < 1:
        raise ValueError(f"the number of jobs must be at least 1, got {jobs}")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: the folder {path.parent} does not exist")
    size = math.prod(source.layout.shape) * np.dtype(dtype).itemsize
    require_room(path, size, "ask for fewer or smaller trajectories")
    # All that the bytes of the file depend on, as JSON values.
    provenance = source.provenance() | {"generator": type(source).__name__, "biasbound": __version__}
    configuration: dict[str, Any] = plain({"layout": source.layout, "provenance": provenance, "dtype": dtype})
    mark = hashlib.sha256(json.dumps(configuration, sort_keys=True).encode()).hexdigest()
    part = path.with_name(f"{path.name}.part")
    with lock(path.with_name(f".{path.name}.generating")):
        if path.exists() and not overwrite:
            if stored_fingerprint(path) != mark:
                other = "was not made by this configuration; choose another name or allow it with --force"
                raise ValueError(f"{path} exists already and {other}")
            remove(part)
            return False
        _prepare(part, configuration, overwrite)
        size, total = source.layout.block, source.layout.trajectories
        blocks = {part / f"block_{s:08d}.npz": (s, min(s + size, total)) for s in range(0, total, size)}
        tasks = [(source, file, *ends, dtype) for file, ends in blocks.items() if not zipfile.is_zipfile(file)]
        elsewhere = None if spread is None else spread({task[1].stem: partial(make_alone, task) for task in tasks})
        _compute(tasks, total, jobs, progress or (lambda done, total: None), elsewhere)
        facts = _facts(source.layout.name, blocks) | {"provenance": configuration["provenance"], "dtype": dtype}
        pieces = _pieces(source.layout, blocks)
        write_pieces(path, source.layout, pieces, origin=mark, overwrite=overwrite, **facts)
        remove(part)
    return True


@dataclass(frozen=True)
class _Begun:
    """What configuration.json holds."""

    layout: dict[str, Any]
    provenance: dict[str, Any]
    dtype: str


def _prepare(part: Path, configuration: dict[str, Any], overwrite: bool) -> None:
    """Create FILE.part, or continue the one that is there if it has the same configuration."""
    told = part / "configuration.json"
    if part.exists() and not part.is_dir():
        raise ValueError(f"{part} is in the way: unfinished files are kept in a folder of that name; move it")
    if told.exists():
        there: dict[str, Any] = plain(read_json(told, _Begun, f"remove {part}"))
        if there == configuration:
            return
        if not overwrite:
            differs = f"an unfinished file of another configuration ({_difference(there, configuration)})"
            raise ValueError(
                f"{part} holds {differs}; remove it, choose another name, or give the options that began it"
            )
    strangers = [p.name for p in part.glob("*") if not re.match(r"\.?(block_|configuration)", p.name)]
    if strangers:
        raise ValueError(f"{part} is in the way and holds {strangers[0]}; remove it")
    remove(part)
    part.mkdir()
    write_json(told, configuration)


def _difference(there: dict[str, Any], here: dict[str, Any]) -> str:
    """The first setting that two configurations do not share."""
    for kind in ("provenance", "layout"):
        for name in sorted({*there[kind], *here[kind]}):
            old, new = there[kind].get(name), here[kind].get(name)
            if old != new:
                return f"{name} is {old} there and {new} here"
    return f"dtype is {there['dtype']} there and {here['dtype']} here"


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread in this process and in those started from it: sums depend on the number of threads."""
    before, threads = {name: os.environ[name] for name in THREADS if name in os.environ}, torch.get_num_threads()
    os.environ.update(dict.fromkeys(THREADS, "1"))
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        for name in THREADS:
            del os.environ[name]
        os.environ.update(before)


def _compute(tasks: list[Task], total: int, jobs: int, progress: Progress, elsewhere: Iterator[int] | None) -> None:
    """Compute the blocks that are missing, each into its file."""
    done = total - sum(stop - start for _, _, start, stop, _ in tasks)
    progress(done, total)
    with _one_thread():
        here = map(make, tasks) if jobs == 1 or not tasks else _pool(tasks, min(jobs, len(tasks)))
        for made in here if elsewhere is None else elsewhere:
            done += made
            progress(done, total)


def _pool(tasks: list[Task], count: int) -> Iterator[int]:
    """`make` in processes that end with this one, however it ends."""
    with workers(count) as pool:
        for future in as_completed([pool.submit(make, task) for task in tasks]):
            yield future.result()


def _facts(name: str, blocks: Blocks) -> dict[str, Any]:
    """Parameters, series and static fields of the finished blocks, joined."""
    facts: dict[str, dict[str, list[np.ndarray]]] = {"parameters": {}, "series": {}, "static": {}}
    for file in blocks:
        with damaged(file, AGAIN), np.load(file, allow_pickle=False) as arrays:
            for key in arrays:
                kind, _, fact = key.partition(".")
                if fact:
                    facts[kind].setdefault(fact, []).append(arrays[key])
    for fact, fields in facts["static"].items():
        if not all(np.array_equal(field, fields[0]) for field in fields):
            raise ValueError(f"{name}: the static field {fact} differs between blocks")
    static = {n: v[0] for n, v in facts.pop("static").items()}
    return {kind: {n: np.concatenate(v) for n, v in held.items()} for kind, held in facts.items()} | {"static": static}


def _pieces(layout: Layout, blocks: Blocks) -> Iterator[Piece]:
    """The fields of the finished blocks, with one block in memory at a time."""
    for file, (start, _) in blocks.items():
        with damaged(file, AGAIN), np.load(file, allow_pickle=False) as arrays:
            fields = arrays["fields"]
        for s, k, piece in Trajectories.from_array(fields, dt=layout.dt, name=str(file)).pieces():
            yield start + s, k, piece
