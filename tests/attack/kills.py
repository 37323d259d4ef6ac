"""Commands that are stopped at a chosen touch of the disk, and then given again: the bytes are those of an unbroken call.

A child that has everything imported calls `main` and counts its openings, renames and removals; at the chosen one it
sends itself, or its group, a signal. So a kill hits the moments that matter, and every one of them can be tried. A few
are stopped after a chosen time of their own instead, in the middle of what libraries write.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree")
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP, signal.SIGPROF)
ORPHANS = 5.0  # seconds in which all that a killed command started must be gone
MARK = "BIASBOUND_ATTACK"  # in the environment of all that a case starts


@dataclass(frozen=True)
class Command:
    """What is called in a folder, and what it leaves there."""

    name: str
    words: tuple[str, ...]
    results: tuple[str, ...]  # files whose bytes are compared
    resumes: bool = False  # whether the next call goes on where the last one was stopped
    studies: bool = False  # whether it needs finished studies among its inputs


@dataclass(frozen=True)
class Stop:
    """When and how a command is stopped: at touch number `at`, or by SIGPROF after `seconds` of its own."""

    at: int = 0
    how: int = 0
    group: bool = False
    seconds: float = 0.0

    def __str__(self) -> str:
        where = f"after {self.seconds:.3f} s" if self.seconds else f"at touch {self.at}"
        return f"{where} by {signal.Signals(self.how).name}{' of the group' if self.group else ''}"


@dataclass
class Ended:
    """How a call ended."""

    status: int
    touches: int
    seconds: float
    stopped: str  # at which stage of a study, or elsewhere; "" where it was not


def called(command: Command, folder: Path, stop: Stop | None = None) -> Ended:
    """One call in a child of its own."""
    stop = stop or Stop()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            _perform(command, folder, writing, stop)
        finally:
            os._exit(99)  # of the harness itself
    os.close(writing)
    if stop.how == signal.SIGSTOP:
        _continue_or_kill(pid, signal.SIGCONT if stop.at % 2 else signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    with os.fdopen(reading, "rb") as stream:
        told = stream.read().decode().split()
    stopped = next((word[1:] for word in told if word[0] == "@"), "")
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        stopped = "by its time"
    touches = int(told[-1]) if told and told[-1].isdecimal() else 0
    return Ended(status, touches, used.ru_utime + used.ru_stime, stopped)


def _perform(command: Command, folder: Path, writing: int, stop: Stop) -> None:
    os.setsid()
    os.chdir(folder)
    quiet = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(quiet, number)
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    touched, armed = 0, [True]

    def count(event: str, arguments: Any) -> None:
        nonlocal touched
        if event not in EVENTS or not armed[0]:
            return
        if event == "open" and not _writes(arguments):
            return
        touched += 1
        if touched == stop.at:
            armed[0] = False
            os.write(writing, f" @{_stage(arguments)}".encode())
            (os.killpg if stop.group else os.kill)(os.getpid(), stop.how)

    from biasbound.cli import main
    from biasbound.data.formats import guard

    guard._child = None
    sys.addaudithook(count)
    signal.setitimer(signal.ITIMER_PROF, stop.seconds)
    try:
        code = main(list(command.words))
    except SystemExit as left:
        code = int(left.code or 0)
    armed[0] = False
    os.write(writing, f" {touched}".encode())
    os._exit(code)


def _stage(arguments: Any) -> str:
    """The stage of a study whose folder is touched."""
    found = re.search(r"(0[1-7]-[a-z]+)", str(arguments[0]) if arguments else "")
    return found[1] if found else "elsewhere"


def _writes(arguments: Any) -> bool:
    """Whether an `open` may change the disk."""
    flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _continue_or_kill(pid: int, then: int) -> None:
    """What is done with a stopped command and all that it started."""
    for _ in range(12000):
        found = os.waitid(os.P_PID, pid, os.WNOHANG | os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if found is not None and found.si_code == os.CLD_STOPPED:
            os.killpg(pid, then)
            return
        if found is not None:
            return
        time.sleep(0.005)


def orphans(before: set[int]) -> list[int]:
    """Processes of ours that were not there before and do not end in time."""
    deadline = time.monotonic() + ORPHANS
    while (left := _children() - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    return sorted(left)


def _children() -> set[int]:
    """All living processes that descend from this one, or were left to init by one that did."""
    found, mark = set(), f"{MARK}={os.environ.setdefault(MARK, str(os.getpid()))}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            told = (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if mark in told and state != "Z" and int(entry.name) != os.getpid():
            found.add(int(entry.name))
    return found


def bytes_of(folder: Path, results: Sequence[str]) -> dict[str, bytes]:
    """The results by name; of rows and records what does not tell the time."""
    found: dict[str, bytes] = {}
    for pattern in results:
        for path in sorted(folder.glob(pattern)):
            if path.is_dir():
                continue
            data = path.read_bytes()
            if path.suffix == ".jsonl":
                rows = [json.loads(line) for line in data.splitlines()]
                data = json.dumps([{k: v for k, v in row.items() if k != "seconds"} for row in rows]).encode()
            found[str(path.relative_to(folder))] = data
    return found


@dataclass
class Siege:
    """What came of it."""

    kills: int = 0
    findings: list[tuple[str, str]] = field(default_factory=list)
    places: Counter[str] = field(default_factory=Counter)


def siege(command: Command, good: Path, work: Path, kills: int, seed: int) -> Siege:
    """Stop the command again and again; in the end its results are those of an unbroken call."""
    rng, told = random.Random(f"{command.name} {seed}"), Siege()
    whole = work / "whole"
    shutil.copytree(good, whole)
    unbroken = called(command, whole)
    wanted = bytes_of(whole, command.results)
    if unbroken.status or not wanted:
        told.findings = [(command.name, f"fails unbroken: status {unbroken.status}, {len(wanted)} results")]
        return told
    before = _children()
    while told.kills < kills:
        broken = work / "broken"
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(good, broken)
        half = _broken(command, broken, unbroken, kills, told, rng, wanted)
        ended = called(command, broken)
        there = half == wanted  # stopped after its work: a folder that is whole is not replaced, and that is refused
        if (ended.status and not there) or bytes_of(broken, command.results) != wanted:
            said = f"status {ended.status}, or other bytes than unbroken"
            told.findings.append((f"{command.name} of seed {seed} after {told.kills} kills", said))
        if left := orphans(before):
            told.findings.append((f"{command.name} of seed {seed}", f"orphans {left}"))
    shutil.rmtree(work, ignore_errors=True)
    return told


def _broken(
    command: Command,
    folder: Path,
    unbroken: Ended,
    kills: int,
    told: Siege,
    rng: random.Random,
    wanted: dict[str, bytes],
) -> dict[str, bytes]:
    """Kill the command in a folder, once or, if it resumes, until it is done; what stands there then."""
    half: dict[str, bytes] = {}
    while told.kills < kills:
        reach = max(2, unbroken.touches // 6) if command.resumes else unbroken.touches
        stop = Stop(1 + rng.randrange(reach), rng.choice(SIGNALS), rng.random() < 0.3)
        if stop.how == signal.SIGPROF:
            stop = Stop(how=stop.how, seconds=max(0.001, rng.random() * unbroken.seconds))
        ended = called(command, folder, stop)
        half = bytes_of(folder, command.results)
        if ended.stopped:
            told.kills += 1
            told.places[ended.stopped] += 1
        if not command.resumes and any(half[name] != wanted.get(name) for name in half):
            told.findings.append((f"{command.name} {stop}", "half a result under its name"))
        if ended.status == 0 or not command.resumes:
            break
    return half
