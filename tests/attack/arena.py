"""Cases in forked children: what is refused in a sentence is fine; tracebacks, crashes, hangs and greed are findings."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import signal
import sys
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
HANG = 20.0  # seconds of a case's own time; by the clock three times as many, because the machine may be busy
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = {
    "os.rename": 2,
    "os.link": 2,
    "os.symlink": 2,
    "os.remove": 1,
    "os.mkdir": 1,
    "os.rmdir": 1,
    "os.truncate": 1,
}
CODE = ("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen")


@dataclass
class Tally:
    """What came of the cases: counts, and the findings by name."""

    cases: int = 0
    accepted: int = 0
    refused: int = 0
    slowest: float = 0.0
    megabytes: float = 0.0  # the most that a case took
    findings: list[tuple[str, str]] = field(default_factory=list)


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
            tally.megabytes = max(tally.megabytes, answer["megabytes"])
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
        try:
            os.close(reading)
            _limited()
            watch = _Watch(outside / "in")
            with os.fdopen(writing, "w", encoding="utf-8") as answers:
                for case in cases:
                    print(json.dumps(_fought(*case, watch)), file=answers, flush=True)
            os._exit(0)
        finally:
            os._exit(99)  # of the harness itself
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as stream:
        answers = [json.loads(line) for line in stream if line.endswith("\n")]
    _, status = os.waitpid(pid, 0)
    if status == 0:
        return answers, None
    killer = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    how = {signal.SIGPROF: "hang", signal.SIGALRM: "hang, waiting", signal.SIGSYS: "asked for a socket"}
    return answers, how.get(killer, f"died with status {status}")  # type: ignore[call-overload]


def _limited() -> None:
    from biasbound.data.formats import guard

    guard._child = None  # the parent's is not ours
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * GREED, used + 2 * GREED))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class _Watch:
    """Notes every change outside of a folder that Python is asked for, and every try to run code."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.inside, self.seen, self.armed = folder, f"{folder.resolve()}{os.sep}", list[str](), False
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.armed:
            return
        if event == "open":
            changed = arguments[:1] if len(arguments) > 2 and (arguments[2] or 0) & WRITES else ()
        elif event in CODE:
            if "inspector.py" not in str(arguments):  # the child that looks at HDF5 files is ours
                self.seen.append(f"{event} {arguments}"[:300])
            return
        else:
            changed = arguments[: CHANGES.get(event, 0)]
        for path in changed:
            if isinstance(path, str | bytes | os.PathLike) and not self._allowed(os.fsdecode(path)):
                self.seen.append(f"{event} {path!r}"[:300])

    def _allowed(self, path: str) -> bool:
        full = os.path.realpath(path)
        return full == os.devnull or full.startswith(self.inside) or "__pycache__" in full  # of late imports


def _fought(name: str, act: Callable[[Path], Any], watch: _Watch) -> dict[str, Any]:
    folder = watch.folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    signal.setitimer(signal.ITIMER_PROF, HANG)
    signal.setitimer(signal.ITIMER_REAL, 3 * HANG)
    begun, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said, spoken, watch.seen, watch.armed = "", io.StringIO(), [], True
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(spoken):
            act(folder)
        kind = "accepted"
    except FINE as error:
        kind, said = "refused", str(error)
        if not said.strip():
            kind, said = "mute", repr(error)
    except BaseException:  # noqa: BLE001 - that is what is looked for
        kind, said = "traceback", traceback.format_exc()[-1500:]
    watch.armed = False
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024
    if more * (1 << 20) > GREED:
        kind, said = "greed", f"{more:.0f} megabytes"
    if "Traceback" in spoken.getvalue():  # of a thread, or of a library that prints what it met
        kind, said = "traceback", spoken.getvalue()[-1500:]
    if watch.seen:
        kind, said = "outside", "; ".join(watch.seen[:3])
    return {"name": name, "kind": kind, "said": said, "seconds": time.process_time() - begun, "megabytes": more}
