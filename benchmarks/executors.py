"""One study through every executor: python benchmarks/executors.py FOLDER [--preset ks-smoke]

Runs it here, through submitit (as SLURM would, by processes of this machine) and over a Dask cluster of two worker
processes, one of which is killed in the middle of a training. Then compares every row: they must agree to the last bit.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from biasbound.cli import main as biasbound
from biasbound.metrics.rows import Row, read_rows
from biasbound.study import view
from biasbound.study.follow import Event


def killing(shown: view._Lines, event: Event, killed: list[object] = []) -> None:  # noqa: B006 - one for all calls
    """Kill the worker that has worked most, once a training has begun."""
    import psutil

    if event.unit.startswith("03-train") and event.kind == "move" and event.done > 0 and not killed:
        children = psutil.Process().children(recursive=True)
        workers = [p for p in children if "spawn_main" in " ".join(p.cmdline())]
        killed.append(max(workers, key=lambda p: sum(p.cpu_times()[:2])))
        killed[0].kill()
        print(f"killed a worker at update {event.done} of {event.unit}")


def rows_of(run: Path) -> list[Row]:
    return [replace(row, seconds=0.0) for row in read_rows(run / "results.jsonl")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--preset", default="ks-smoke")
    given = parser.parse_args()
    ways = {
        "local": ["--executor", "local", "--jobs", "2"],
        "submitit": ["--executor", "submitit"],
        "dask": ["--executor", "dask", "--jobs", "2"],
    }
    for name, how in ways.items():
        if name == "dask":
            view._Lines.__call__ = killing  # type: ignore[method-assign]
        begun = time.perf_counter()
        if biasbound(["evaluate", str(given.folder / name), "--preset", given.preset, *how]):
            sys.exit(f"{name} failed")
        print(f"{name}: {time.perf_counter() - begun:.0f} s", flush=True)
    here = rows_of(given.folder / "local")
    for name in ("submitit", "dask"):
        same = sum(a == b for a, b in zip(rows_of(given.folder / name), here, strict=True))
        print(f"{name}: {same} of {len(here)} rows equal those of local")


if __name__ == "__main__":
    main()
