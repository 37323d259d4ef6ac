"""Cases in forked children: what is refused in a sentence is fine; tracebacks, crashes, hangs and greed are findings."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FINE = (ValueError, OSError, ArithmeticError, ImportError)  # what `biasbound.cli.main` says in one sentence
GREED = 1 << 30  # bytes above what the process had
HANG = 20.0  # seconds


@dataclass
class Tally:
    """What came of the cases: counts, and the findings by name."""

    cases: int = 0
    accepted: int = 0
    refused: int = 0
    slowest: float = 0.0
    findings: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.cases, self.accepted = self.cases + other.cases, self.accepted + other.accepted
        self.refused, self.slowest = self.refused + other.refused, max(self.slowest, other.slowest)
        self.findings += other.findings


Case = tuple[str, Callable[[Path], Any]]  # a name from which it can be made again, and what it does in a folder


def fought(cases: Iterable[Case], batch: int = 100, home: Path | None = None) -> Tally:
    """Every case once, `batch` of them per child; after a death the next child goes on behind the case that killed."""
    todo, tally = list(cases), Tally()
    outside = Path(tempfile.mkdtemp(prefix="attack-", dir=home))
    while todo:
        answers, begun = _child(todo[:batch], outside)
        for answer in answers:
            tally.cases += 1
            tally.slowest = max(tally.slowest, answer["seconds"])
            if answer["kind"] in ("accepted", "refused"):
                setattr(tally, answer["kind"], getattr(tally, answer["kind"]) + 1)
            else:
                tally.findings.append((answer["name"], answer["said"]))
        if begun is not None:  # it died in the middle of this one
            tally.cases += 1
            tally.findings.append((todo[len(answers)][0], begun))
        todo = todo[len(answers) + (begun is not None) :]
        strangers = [p.name for p in outside.iterdir() if p.name != "in"]
        if strangers:
            tally.findings.append(("outside", f"wrote {strangers}"))
            for name in strangers:
                _cleared(outside / name)
    shutil.rmtree(outside, ignore_errors=True)
    return tally


def _cleared(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _child(cases: list[Case], outside: Path) -> tuple[list[dict[str, Any]], str | None]:
    """(answers, how it died)"""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _limited()
        with os.fdopen(writing, "w", encoding="utf-8") as answers:
            for case in cases:
                print(json.dumps(_fought(*case, outside)), file=answers, flush=True)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as stream:
        answers = [json.loads(line) for line in stream if line.endswith("\n")]
    _, status = os.waitpid(pid, 0)
    if status == 0:
        return answers, None
    how = "hang" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF else f"died with status {status}"
    return answers, how


def _limited() -> None:
    from biasbound.data.formats import guard

    guard._child = None  # the parent's is not ours
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * GREED, used + 2 * GREED))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _fought(name: str, act: Callable[[Path], Any], outside: Path) -> dict[str, Any]:
    folder = outside / "in"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    signal.setitimer(signal.ITIMER_PROF, HANG)
    begun, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = ""
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            act(folder)
        kind = "accepted"
    except FINE as error:
        kind, said = "refused", str(error)
        if not said.strip():
            kind, said = "mute", repr(error)
    except Exception:  # noqa: BLE001 - that is what is looked for
        kind, said = "traceback", traceback.format_exc()[-1500:]
    signal.setitimer(signal.ITIMER_PROF, 0)
    if (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024 > GREED:
        kind, said = "greed", f"more than {GREED} bytes"
    return {"name": name, "kind": kind, "said": said, "seconds": time.process_time() - begun}
