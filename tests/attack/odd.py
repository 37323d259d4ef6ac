"""Odd surroundings: full disks, other users, little memory, two writers, moved runs, odd names, clocks, streams, sockets."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from commands import QUICK, study
from kills import Command, Stop, bytes_of, called, orphans

Finding = tuple[str, str]
NAMES = ("with space", "ünïcode-σ", "new\nline", "x" * 200, "-dash", "quote'\"", "$(touch owned)", "\x1b[31m")


def child(words: tuple[str, ...], folder: Path, prepare: Callable[[], Any] = lambda: None) -> tuple[int, str]:
    """(exit code, stderr) of a command in a child; killed by a signal: minus its number.

    What it says goes through a pipe: a limit on files would silence it. Whatever happens, the child ends here.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            os._exit(_called(words, folder, prepare, writing))
        finally:
            os._exit(99)  # of the harness itself
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        text = said.read().decode(errors="replace")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


def _called(words: tuple[str, ...], folder: Path, prepare: Callable[[], Any], writing: int) -> int:
    os.setsid()
    os.chdir(folder)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0), os.dup2(null, 1), os.dup2(writing, 2)
    os.close(writing)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from biasbound.cli import main
    from biasbound.data.formats import guard

    guard._child = None
    try:
        prepare()
        code = main(list(words))
    except SystemExit as stop:
        code = int(stop.code or 0)
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.flush()
    return code


def _judged(name: str, code: int, said: str, fine: tuple[int, ...]) -> list[Finding]:
    if code in fine and "Traceback" not in said:
        return []
    return [(name, f"exit code {code}: {said[-400:]}")]


def _fresh(good: Path, work: Path) -> Path:
    shutil.rmtree(work, ignore_errors=True)
    return shutil.copytree(good, work)


def full_disk(good: Path, work: Path) -> tuple[int, list[Finding]]:
    """A limit on the size of files stands for a full disk: no half result, and the next call makes a whole one."""
    cases, findings = 0, []
    for command in (*QUICK, study("evaluate", "direct")):
        whole = _fresh(good, work / "whole")
        called(command, whole)
        wanted = bytes_of(whole, command.results)
        for size in (0, 100, 3000):
            here = _fresh(good, work / "full")

            def prepare(size: int = size) -> None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

            code, said = child(command.words, here, prepare)
            cases += 1
            findings += _judged(f"{command.name}, files of {size} bytes", code, said, (0, 2))
            if code == 2 and not command.resumes and bytes_of(here, command.results):
                findings.append((f"{command.name}, files of {size} bytes", "half a result under its name"))
            called(command, here)
            if bytes_of(here, command.results) != wanted:
                findings.append((f"{command.name}, files of {size} bytes", "the next call makes other bytes"))
    return cases, findings


def another_user(good: Path, work: Path) -> tuple[int, list[Finding]]:
    """Somebody who may read and not write: refused in a sentence, and nothing changes."""
    if os.getuid() != 0:
        return 0, []
    findings: list[Finding] = []
    here = _fresh(good, work / "other")
    for path in (work, here, *here.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for command in QUICK:
        code, said = child(command.words, here, lambda: os.setuid(65534))
        findings += _judged(f"{command.name} of another user", code, said, (2,))
    return len(QUICK), findings


def little_memory(good: Path, work: Path) -> tuple[int, list[Finding]]:
    """Limits from a few megabytes on: done, or a sentence."""
    cases, findings = 0, []
    for command in QUICK:
        for megabytes in (2, 16):
            here = _fresh(good, work / "memory")

            def prepare(megabytes: int = megabytes) -> None:
                used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20), used + (megabytes << 20)))

            code, said = child(command.words, here, prepare)
            cases += 1
            findings += _judged(f"{command.name} in {megabytes} MB", code, said, (0, 2))
    return cases, findings


def two_writers(good: Path, work: Path) -> tuple[int, list[Finding]]:
    """The same command twice at once: each is done or refused, and the result is whole."""
    findings: list[Finding] = []
    for command in QUICK:
        whole = _fresh(good, work / "whole")
        called(command, whole)
        here, codes = _fresh(good, work / "two"), []

        def run(command: Command = command, here: Path = here, codes: list[int] = codes) -> None:
            codes.append(child(command.words, here)[0])

        both = [threading.Thread(target=run) for _ in range(2)]
        for one in both:
            one.start()
        for one in both:
            one.join()
        if not {*codes} <= {0, 2} or bytes_of(here, command.results) != bytes_of(whole, command.results):
            findings.append((f"{command.name} twice at once", f"exit codes {codes}, or other bytes"))
    return len(QUICK), findings


def moved_run(good: Path, work: Path) -> tuple[int, list[Finding]]:
    """A study that was killed is moved, copied, and goes on: the bytes are those of an unbroken one."""
    command, findings = study("evaluate", "direct"), []
    whole = _fresh(good, work / "whole")
    called(command, whole)
    here = _fresh(good, work / "here")
    called(command, here, Stop(25, signal.SIGKILL))
    shutil.copytree(here, work / "copy")
    here.rename(work / "there")
    for place in ("copy", "there"):
        status = called(command, work / place).status
        if status or bytes_of(work / place, command.results) != bytes_of(whole, command.results):
            findings.append((f"a run in {place}", f"status {status}, or other bytes"))
    return 2, findings


def odd_paths(good: Path, work: Path) -> tuple[int, list[Finding]]:
    """Folders with any name: done or refused, never a traceback, never a stranger's file."""
    findings: list[Finding] = []
    for name in NAMES:
        here = _fresh(good, work / name)
        for command in QUICK[::3]:
            code, said = child(command.words, here)
            findings += _judged(f"{command.name} in {name!r}", code, said, (0, 2))
            if "\x1b" in said or list(work.rglob("owned")):
                findings.append((f"{command.name} in {name!r}", "steers the terminal, or ran the name"))
        code, said = child(("schedule", "make", "linear", "--out", f"{name}.json"), here)
        findings += _judged(f"a file {name!r}", code, said, (0, 2))
    return len(NAMES) * (len(QUICK[::3]) + 1), findings


def interrupts(good: Path, work: Path) -> tuple[int, list[Finding]]:
    """Ctrl-C twice within moments: exit code 130 or the signal's own, no traceback, no orphan."""
    cases, findings = 0, []
    for command in (*QUICK[::2], study("evaluate", "direct")):
        for wait in (0.02, 0.3):
            here = _fresh(good, work / "twice")

            def prepare(wait: float = wait) -> None:
                pid = os.getpid()

                def press() -> None:
                    for _ in range(2):
                        time.sleep(wait)
                        os.kill(pid, signal.SIGINT)

                threading.Thread(target=press, daemon=True).start()

            code, said = child(command.words, here, prepare)
            cases += 1
            findings += _judged(f"{command.name}, Ctrl-C twice", code, said, (0, 130, -2))
    if left := orphans(set()):
        findings.append(("Ctrl-C twice", f"orphans {left}"))
    return cases, findings


def clock_jumps(good: Path, work: Path) -> tuple[int, list[Finding]]:
    """A clock that is years off, or jumps back at every look: the bytes are the same."""
    findings: list[Finding] = []
    real = time.time
    for command in QUICK[:9]:
        whole = _fresh(good, work / "whole")
        called(command, whole)
        for name, clock in {"years ahead": lambda: real() + 1e9, "backwards": lambda: 2e9 - real()}.items():
            here = _fresh(good, work / "clock")

            def prepare(clock: Callable[[], float] = clock) -> None:
                time.time = clock

            code, said = child(command.words, here, prepare)
            findings += _judged(f"{command.name}, clock {name}", code, said, (0,))
            if code == 0 and bytes_of(here, command.results) != bytes_of(whole, command.results):
                findings.append((f"{command.name}, clock {name}", "other bytes"))
    return 18, findings


def closed_streams(good: Path, work: Path) -> tuple[int, list[Finding]]:
    """Without stdin, stdout and stderr no file becomes one of them."""
    findings: list[Finding] = []
    for command in QUICK:
        whole, here = _fresh(good, work / "whole"), _fresh(good, work / "closed")
        called(command, whole)

        def prepare() -> None:
            for number in range(3):
                os.close(number)
            sys.stdout = sys.stderr = None

        code, said = child(command.words, here, prepare)
        findings += _judged(f"{command.name}, closed streams", code, said, (0,))
        if bytes_of(here, command.results) != bytes_of(whole, command.results):
            findings.append((f"{command.name}, closed streams", "other bytes"))
    return len(QUICK), findings


def sockets(good: Path, work: Path) -> tuple[int, list[Finding]]:
    """No command opens a connection, listens, or asks for an address."""
    findings: list[Finding] = []
    for command in (*QUICK, study("run", "direct")):
        here, told = _fresh(good, work / "net"), work / "sockets.txt"

        def prepare(told: Path = told) -> None:
            def hook(event: str, arguments: Any) -> None:
                if event.startswith("socket.") and event not in ("socket.__new__", "socket.gethostname"):
                    descriptor = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                    os.write(descriptor, f"{event} {arguments}\n".encode())
                    os.close(descriptor)

            sys.addaudithook(hook)

        code, said = child(command.words, here, prepare)
        findings += _judged(f"{command.name}, watched", code, said, (0,))
        if told.exists():
            findings.append((f"{command.name}, watched", told.read_text()[:300]))
            told.unlink()
    return len(QUICK) + 1, findings


ODD = {
    "disk full": full_disk,
    "another user, read-only": another_user,
    "little memory": little_memory,
    "two writers": two_writers,
    "moved and copied runs": moved_run,
    "odd paths": odd_paths,
    "double Ctrl-C": interrupts,
    "clock jumps": clock_jumps,
    "closed streams": closed_streams,
    "sockets opened": sockets,
}
