"""The long attack: python benchmarks/attack.py [--files 20000] [--lines 1000] [--kills 1000] [--minutes 60] [--jobs 2]

Damaged files of every kind, bad option lines made from the parsers' own description, commands killed at chosen touches
of the disk, and odd surroundings. Everything happens in forked children of one process that has imported the package.
Prints every finding, and a table at the end; the exit code is the number of rows that miss their bar. `--only files`
runs one part; `--case "native HDF5 #17"` makes one file case again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "attack")]
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
CHUNK = {"files": 400, "lines": 50, "kills": 10}


@dataclass
class Part:
    """A row of the table."""

    name: str
    wanted: int
    cases: int = 0
    findings: list[tuple[str, str]] = field(default_factory=list)
    note: str = ""
    seconds: float = 0.0


def files(number: int, count: int) -> tuple[int, Any, str]:
    from arena import fought
    from files import Shelf

    shelf = Shelf()
    try:
        found = fought(shelf.cases(count, 1000 * number))
    finally:
        shutil.rmtree(shelf.home, ignore_errors=True)
    return found.cases, found.findings, json.dumps([found.accepted, found.refused, found.slowest])


def lines(number: int, count: int) -> tuple[int, Any, str]:
    from arena import fought
    from lines import bad_lines, line_cases

    found = fought(line_cases(list(bad_lines(count, number))))
    return found.cases, found.findings, ""


def nonsense(number: int, count: int) -> tuple[int, Any, str]:
    from arena import fought
    from lines import line_cases
    from lines import nonsense as every

    found = fought(line_cases(every()))
    return found.cases, found.findings, ""


def kills(number: int, count: int) -> tuple[int, Any, str]:
    from commands import QUICK, STUDIES, inputs
    from kills import siege

    home = Path(tempfile.mkdtemp(prefix="attack-kills-"))
    every = [*QUICK[1:], *QUICK, *STUDIES]  # a study takes long, and has many places to be stopped at
    try:
        done, findings = siege(every[number % len(every)], inputs(home / "good"), home / "work", count, number)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return done, findings, ""


def surroundings(name: str) -> Callable[[int, int], tuple[int, Any, str]]:
    def act(number: int, count: int) -> tuple[int, Any, str]:
        from commands import inputs
        from odd import ODD

        home = Path(tempfile.mkdtemp(prefix="attack-odd-"))
        home.chmod(0o755)
        try:
            work = home / "work"
            work.mkdir()
            return *ODD[name](inputs(home / "good"), work), ""
        finally:
            shutil.rmtree(home, ignore_errors=True)

    return act


def forked(act: Callable[[int, int], tuple[int, Any, str]], number: int, count: int) -> tuple[int, int]:
    """(process, where its answer comes) of one chunk."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(reading)
        try:
            answer: Any = act(number, count)
        except BaseException as error:  # noqa: BLE001 - of the harness itself
            answer = (0, [("the harness", repr(error))], "")
        with os.fdopen(writing, "w", encoding="utf-8") as stream:
            json.dump(answer, stream)
        os._exit(0)
    os.close(writing)
    return pid, reading


def fought(part: Part, act: Any, chunk: int, jobs: int, deadline: float) -> None:
    """All chunks of a part, `jobs` at a time, until the time is over."""
    begun, number, given, running = time.monotonic(), 0, 0, []
    while running or (given < part.wanted and time.monotonic() < deadline):
        while len(running) < jobs and given < part.wanted and time.monotonic() < deadline:
            count = min(chunk, part.wanted - given)
            running.append(forked(act, number, count))
            number, given = number + 1, given + count
        pid, reading = running.pop(0)
        with os.fdopen(reading, encoding="utf-8") as stream:
            text = stream.read()
        os.waitpid(pid, 0)
        cases, findings, note = json.loads(text) if text else (0, [("the harness", "a chunk died")], "")
        part.cases += cases
        part.findings += [tuple(f) for f in findings]
        if note:
            told, old = json.loads(note), json.loads(part.note or "[0, 0, 0]")
            part.note = json.dumps([old[0] + told[0], old[1] + told[1], round(max(old[2], told[2]), 2)])
        for name, said in findings:
            print(f"FOUND {part.name}: {name}\n      {said[-1200:]}", flush=True)
        print(
            f"{part.name}: {part.cases} of {part.wanted}, {len(part.findings)} findings", file=sys.stderr, flush=True
        )
    part.seconds = time.monotonic() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("files", 20000), ("lines", 1000), ("kills", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing new after so long")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="parts whose names begin so, with commas")
    parser.add_argument("--case", default="", help="make one file case again, with its traceback")
    given = parser.parse_args()
    if given.case:
        return once(given.case)
    begun = time.monotonic()
    if os.access("/dev/shm", os.W_OK):
        tempfile.tempdir = "/dev/shm"  # thousands of cases wait for a disk longer than they compute
    from odd import ODD

    imported()

    plan: list[tuple[Part, Any, int]] = [
        (Part("files", given.files), files, CHUNK["files"]),
        (Part("nonsense", 1), nonsense, 1),
        (Part("lines", given.lines), lines, CHUNK["lines"]),
        (Part("kills", given.kills), kills, CHUNK["kills"]),
        *((Part(name, 1), surroundings(name), 1) for name in ODD),
    ]
    chosen = [row for row in plan if not given.only or row[0].name.startswith(tuple(given.only.split(",")))]
    for part, act, chunk in chosen:
        fought(part, act, chunk, given.jobs, begun + 60 * given.minutes)
    print(f"\n{'part':<26} {'cases':>7} {'asked':>7} {'findings':>9} {'minutes':>8}")
    for part, _, _ in chosen:
        asked = part.wanted if part.wanted > 1 else part.cases
        print(f"{part.name:<26} {part.cases:>7} {asked:>7} {len(part.findings):>9} {part.seconds / 60:>8.1f}")
        if part.note:
            accepted, refused, slowest = json.loads(part.note)
            print(f"{'':<26} {accepted} read, {refused} refused in a sentence, the slowest took {slowest} s")
    print(
        f"{'all':<26} {sum(p.cases for p, _, _ in chosen):>7} {'':>7} {'':>9} {(time.monotonic() - begun) / 60:>8.1f}"
    )
    return sum(bool(p.findings) or p.cases < p.wanted for p, _, _ in chosen)


def imported() -> None:
    """The whole package, so that no child imports anything."""
    import pkgutil
    from importlib import import_module

    import biasbound

    for module in pkgutil.walk_packages(biasbound.__path__, "biasbound."):
        if not module.name.endswith(("__main__", "inspector")):
            with suppress(ImportError, ValueError):  # of packages that are not here
                import_module(module.name)


def once(name: str) -> int:
    from files import Shelf
    from specimens import SPECIMENS

    kind, _, number = name.rpartition(" #")
    specimen = next(s for s in SPECIMENS if s.name == kind)
    with tempfile.TemporaryDirectory() as folder:
        Shelf(Path(folder)).case(specimen, int(number))[1](Path(tempfile.mkdtemp(dir=folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
