"""Generation in parallel processes, which can be killed and resumed.

FILE.part/ holds every finished block as a file of its own, beside the configuration that the blocks belong to. When
all are there, they are joined in order to form FILE. A block is computed from the source alone and on one thread, so
the bytes of FILE depend neither on the number of processes nor on interruptions.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from biasbound._io import lock, plain, read_json, remove, workers, write_json
from biasbound.data.columns import Array
from biasbound.data.formats.native import Piece, write_pieces
from biasbound.data.formats.well import stored_fingerprint
from biasbound.data.layout import Layout, Source
from biasbound.data.trajectories import Trajectories
from biasbound.flows.blocks import Task, make

Progress = Callable[[int, int], None]  # trajectories done, trajectories in all
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def generate(
    source: Source,
    path: Path,
    *,
    jobs: int = 1,
    dtype: str = "float32",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> bool:
    """Write all trajectories of a source to a native file, in `jobs` processes; False if it was there already.

    An unfinished FILE.part of the same configuration is continued. One of another configuration is refused, as is an
    existing FILE, unless `overwrite`. Only one process can work on a FILE at a time.
    """
    if jobs < 1:
        raise ValueError(f"the number of jobs must be at least 1, got {jobs}")
    if not path.parent.is_dir():
        raise ValueError(f"{path}: the folder {path.parent} does not exist")
    configuration = _configuration(source, dtype)
    mark = hashlib.sha256(json.dumps(configuration, sort_keys=True).encode()).hexdigest()
    part = path.with_name(f"{path.name}.part")
    with lock(path.with_name(f".{path.name}.generating")):
        if path.exists() and not overwrite:
            if stored_fingerprint(path) != mark:
                raise ValueError(
                    f"{path} exists already and was not made by this configuration; choose another "
                    "name or allow it with --force"
                )
            remove(part)
            return False
        _prepare(part, configuration, overwrite)
        blocks = _blocks(source.layout, part)
        _compute(source, blocks, dtype, jobs, progress or (lambda done, total: None))
        _assemble(source.layout, blocks, path, configuration, mark, overwrite)
        remove(part)
    return True


def _configuration(source: Source, dtype: str) -> dict[str, Any]:
    """All that the bytes of a file depend on, as JSON values."""
    try:
        version = importlib.metadata.version("biasbound")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    provenance = source.provenance() | {"generator": type(source).__name__, "biasbound": version}
    told: dict[str, Any] = plain({"layout": source.layout, "provenance": provenance, "dtype": dtype})
    return told


def _prepare(part: Path, configuration: dict[str, Any], overwrite: bool) -> None:
    """Create FILE.part, or continue the one that is there if it has the same configuration."""
    told = part / "configuration.json"
    if told.exists():
        there: dict[str, Any] = read_json(told, dict[str, Any], f"remove {part}")
        if there == configuration:
            return
        if not overwrite:
            raise ValueError(
                f"{part} holds an unfinished file of another configuration "
                f"({_difference(there, configuration)}); remove it, choose another name, or give "
                "the options that began it"
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


def _blocks(layout: Layout, part: Path) -> dict[Path, tuple[int, int]]:
    """File → trajectories [start, stop), in order."""
    total, size = layout.trajectories, layout.block
    starts = range(0, total, size)
    return {part / f"block_{s:08d}.npz": (s, min(s + size, total)) for s in starts}


def _finished(path: Path) -> bool:
    return path.exists() and zipfile.is_zipfile(path)


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread in this process and in those started from it: sums depend on the number of threads."""
    before, threads = {name: os.environ.get(name) for name in THREADS}, torch.get_num_threads()
    os.environ.update(dict.fromkeys(THREADS, "1"))
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _compute(source: Source, blocks: dict[Path, tuple[int, int]], dtype: str, jobs: int, progress: Progress) -> None:
    """Compute the blocks that are missing, each into its file."""
    total = source.layout.trajectories
    missing = {file: ends for file, ends in blocks.items() if not _finished(file)}
    done = total - sum(stop - start for start, stop in missing.values())
    progress(done, total)
    tasks = [(source, file, *ends, dtype) for file, ends in missing.items()]
    with _one_thread():
        results = map(make, tasks) if jobs == 1 else _pool(tasks, min(jobs, len(tasks)))
        for made in results:
            done += made
            progress(done, total)


def _pool(tasks: list[Task], count: int) -> Iterator[int]:
    """`make` in processes that end with this one, however it ends."""
    if not tasks:
        return
    with workers(count) as pool:
        for future in as_completed([pool.submit(make, task) for task in tasks]):
            yield future.result()


def _assemble(
    layout: Layout,
    blocks: dict[Path, tuple[int, int]],
    path: Path,
    configuration: dict[str, Any],
    mark: str,
    overwrite: bool,
) -> None:
    """Join the finished blocks, with one in memory at a time."""
    facts: dict[str, dict[str, list[np.ndarray]]] = {"parameters": {}, "series": {}, "static": {}}
    for file in blocks:
        with np.load(file, allow_pickle=False) as arrays:
            for key in arrays:
                kind, _, name = key.partition(".")
                if name:
                    facts[kind].setdefault(name, []).append(arrays[key])
    for name, fields in facts["static"].items():
        if not all(np.array_equal(field, fields[0]) for field in fields):
            raise ValueError(f"{layout.name}: the static field {name} differs between blocks")

    def pieces() -> Iterator[Piece]:
        for file, (start, stop) in blocks.items():
            with np.load(file, allow_pickle=False) as arrays:
                store = Array(arrays["fields"])
            part = replace(layout, trajectories=stop - start)
            for s, k, fields in Trajectories.open(part, store, name=str(file)).pieces():
                yield start + s, k, fields

    write_pieces(
        path,
        layout,
        pieces(),
        parameters={n: np.concatenate(v) for n, v in facts["parameters"].items()},
        series={n: np.concatenate(v) for n, v in facts["series"].items()},
        static={n: v[0] for n, v in facts["static"].items()},
        provenance=configuration["provenance"],
        dtype=configuration["dtype"],
        origin=mark,
        overwrite=overwrite,
    )
