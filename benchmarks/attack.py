"""The long attack: python benchmarks/attack.py [--files 20000] [--lines 1000] [--kills 1000] [--keep build/attack.jsonl]

Damaged files of every kind, bad option lines made from the parsers' own description, commands killed at chosen touches
of the disk, and odd surroundings. Everything happens in forked children of one process that has imported the package,
and a part of it again in fresh interpreters. The kernel kills whatever asks for a socket to other machines.

Prints every finding, and a table at the end; the exit code is the number of rows that miss their bar. What is done is
kept in a file, so that the same command goes on after a stop; chunks with findings are made again. `--only files` runs
one part; `--case "native HDF5 #17"` makes one file case again; `--table` shows the table of what is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "attack")]
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
Answer = dict[str, Any]  # cases, findings, and what the table says beside


@dataclass
class Part:
    """A row of the table."""

    name: str
    wanted: int
    chunk: int
    act: Callable[[int, int], Answer]
    done: list[Answer] = field(default_factory=list)

    def sum(self, what: str) -> float:
        return sum(answer.get(what, 0) for answer in self.done)


@contextmanager
def home() -> Iterator[Path]:
    """A folder of a chunk's own, which anybody may read."""
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tallied(found: Any) -> Answer:
    told = {name: getattr(found, name) for name in ("cases", "findings", "accepted", "refused")}
    return told | {"slowest": round(found.slowest, 2), "megabytes": round(found.megabytes)}


def files(number: int, count: int) -> Answer:
    from arena import fought
    from files import Shelf

    with home() as folder:
        return _tallied(fought(Shelf(folder).cases(count, 1000 * number)))


def lines(number: int, count: int) -> Answer:
    from arena import fought
    from lines import bad_lines, line_cases

    return _tallied(fought(line_cases(list(bad_lines(count, number)))))


def nonsense(number: int, count: int) -> Answer:
    from arena import fought
    from lines import line_cases
    from lines import nonsense as every

    return _tallied(fought(line_cases(every()[number * count : (number + 1) * count])))


def kills(number: int, count: int) -> Answer:
    from commands import BESIEGED, inputs, with_studies
    from kills import siege
    from warm import looks

    looks()
    command = BESIEGED[number % len(BESIEGED)]
    with home() as folder:
        good = (with_studies if command.studies else inputs)(folder / "good")
        told = siege(command, good, folder / "work", count, number)
    return {"cases": told.kills, "findings": told.findings, "places": {f"{command.name}": told.kills, **told.places}}


def fresh(name: str) -> Callable[[int, int], Answer]:
    def act(number: int, count: int) -> Answer:
        import fresh as every
        from commands import inputs

        with home() as folder:
            (folder / "work").mkdir()
            cases, findings = getattr(every, name)(inputs(folder / "good"), folder / "work", count, number * count)
        return {"cases": cases, "findings": findings}

    return act


def surroundings(name: str) -> Callable[[int, int], Answer]:
    def act(number: int, count: int) -> Answer:
        from commands import inputs
        from odd import ODD
        from warm import looks

        looks()
        with home() as folder:
            (folder / "work").mkdir()
            cases, findings = ODD[name](inputs(folder / "good"), folder / "work")
        return {"cases": cases, "findings": findings}

    return act


def forked(act: Callable[[int, int], Answer], number: int, count: int) -> Answer:
    """One chunk in a child, with its time by the clock and of the processor."""
    reading, writing = os.pipe()
    begun, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    if (pid := os.fork()) == 0:
        os.close(reading)
        chunk = os.getpid()
        try:
            answer: Answer = act(number, count)
        except BaseException as error:  # noqa: BLE001 - of the harness itself
            answer = {"cases": 0, "findings": [("the harness", repr(error))]}
        if os.getpid() != chunk:  # a child of a case that came back here: the chunk alone answers
            os._exit(99)
        with os.fdopen(writing, "w", encoding="utf-8") as stream:
            json.dump(answer, stream)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    found: Answer = json.loads(text) if text else {"cases": 0, "findings": [("the harness", "a chunk died")]}
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return found | {"wall": round(time.monotonic() - begun, 2), "cpu": round(spent, 2)}


def fought(part: Part, kept: Path, commit: str, deadline: float) -> None:
    """All chunks of a part that are not kept yet, until the time is over."""
    have = {answer["number"] for answer in part.done}
    for number in range(-(-part.wanted // part.chunk)):
        count = min(part.chunk, part.wanted - number * part.chunk)
        if number in have or time.monotonic() > deadline:
            continue
        answer = forked(part.act, number, count) | {"part": part.name, "number": number, "commit": commit}
        with kept.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(answer) + "\n")
        part.done.append(answer)
        for name, said in answer["findings"]:
            print(f"FOUND {part.name}: {name}\n      {said[-1200:]}", flush=True)
        print(f"{part.name}: {part.sum('cases'):.0f} of {part.wanted}", file=sys.stderr, flush=True)


def plan(given: argparse.Namespace) -> list[Part]:
    from lines import nonsense as every
    from odd import ODD

    listed = len({tuple(line) for line, _ in every()})
    parts = [
        Part("files", given.files, 400, files),
        Part("nonsense lines", listed, 50, nonsense),
        Part("bad lines", given.lines, 50, lines),
        Part("kills", given.kills, 10, kills),
        *(Part(name, 1, 1, surroundings(name)) for name in ODD),
        Part("fresh files", given.files // 200, 20, fresh("files")),
        Part("fresh lines", given.lines // 25, 10, fresh("lines")),
        Part("fresh kills", given.kills // 25, 4, fresh("kills")),
    ]
    return [part for part in parts if not given.only or part.name.startswith(tuple(given.only.split(",")))]


def recalled(parts: list[Part], kept: Path) -> None:
    """What an earlier call did; the last word on a chunk counts, and one with findings is made again."""
    last: dict[tuple[str, int], Answer] = {}
    for line in kept.read_text(encoding="utf-8").splitlines() if kept.exists() else ():
        answer = json.loads(line)
        last[answer["part"], answer["number"]] = answer
    for part in parts:
        chunks = -(-part.wanted // part.chunk)
        part.done = [a for (name, n), a in last.items() if name == part.name and n < chunks and not a["findings"]]


def table(parts: list[Part]) -> int:
    """Print the table; the number of rows that miss their bar."""
    print(f"\n{'part':<26} {'cases':>7} {'asked':>7} {'findings':>9} {'wall min':>9} {'CPU min':>8}")
    missed = 0
    for part in parts:
        findings = sum(len(answer["findings"]) for answer in part.done)
        asked = part.wanted if part.wanted > 1 else part.sum("cases") or 1
        missed += bool(findings) or part.sum("cases") < asked
        times = f"{part.sum('wall') / 60:>9.1f} {part.sum('cpu') / 60:>8.1f}"
        print(f"{part.name:<26} {part.sum('cases'):>7.0f} {asked:>7.0f} {findings:>9} {times}")
        if part.sum("refused"):
            most = {name: max(answer[name] for answer in part.done) for name in ("slowest", "megabytes")}
            told = f"{part.sum('accepted'):.0f} taken, {part.sum('refused'):.0f} refused in a sentence"
            print(f"{'':<4}{told}; slowest {most['slowest']} s, most memory {most['megabytes']} MB above")
        if places := sum((Counter(answer.get("places", {})) for answer in part.done), Counter[str]()):
            print("    " + ", ".join(f"{name} {n}" for name, n in sorted(places.items())))
    every = f"{sum(p.sum('wall') for p in parts) / 60:>9.1f} {sum(p.sum('cpu') for p in parts) / 60:>8.1f}"
    print(f"{'all':<26} {sum(p.sum('cases') for p in parts):>7.0f} {'':>7} {'':>9} {every}")
    commits = Counter(answer["commit"] for part in parts for answer in part.done)
    print("chunks by commit: " + ", ".join(f"{commit} {n}" for commit, n in commits.items()))
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("files", 20000), ("lines", 1000), ("kills", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing new after so long")
    parser.add_argument(
        "--keep", type=Path, default=ROOT / "build" / "attack.jsonl", help="what is done, line by line"
    )
    parser.add_argument("--only", default="", help="parts whose names begin so, with commas")
    parser.add_argument("--case", default="", help="make one file case again, with its traceback")
    parser.add_argument("--table", action="store_true", help="the table of what is kept")
    given = parser.parse_args()
    if given.case:
        return once(given.case)
    deadline = time.monotonic() + 60 * given.minutes
    if os.access("/dev/shm", os.W_OK):
        tempfile.tempdir = "/dev/shm"  # thousands of cases wait for a disk longer than they compute
    parts = plan(given)
    recalled(parts, given.keep)
    if not given.table:
        from sealed import seal
        from warm import warmed

        given.keep.parent.mkdir(parents=True, exist_ok=True)
        warmed()
        print("sockets to other machines are " + ("deadly" if seal() else "not watched: no seccomp here"), flush=True)
        for part in parts:
            fought(part, given.keep, version(), deadline)
    return table(parts)


def version() -> str:
    """The commit, and whether anything was changed since."""
    called = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=7", "--exclude", "*"]
    told = subprocess.run(called, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "no commit"


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
