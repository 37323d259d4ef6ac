"""Commands that are stopped at a chosen touch of the disk, and then given again: the bytes are those of an unbroken call.

A child that has everything imported calls `main` and counts its openings, renames and removals; at the chosen one it
sends itself, or its group, a signal. So a kill hits the moments that matter, and every one of them can be tried.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree")
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP)
ORPHANS = 5.0  # seconds in which all that a killed command started must be gone


@dataclass(frozen=True)
class Command:
    """What is called in a folder, and what it leaves there."""

    name: str
    words: tuple[str, ...]
    results: tuple[str, ...]  # files whose bytes are compared
    resumes: bool = False  # whether the next call goes on where the last one was stopped


def called(command: Command, folder: Path, at: int = 0, how: int = 0, group: bool = False) -> tuple[int, int]:
    """(exit status, touches of the disk) of one call in a child of its own, stopped at touch number `at`."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _perform(command, folder, writing, at, how, group)
    os.close(writing)
    if how == signal.SIGSTOP:
        _continue_or_kill(pid)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(reading, "rb") as stream:
        told = stream.read()
    return status, int(told.split()[-1]) if told.strip() else 0


def _perform(command: Command, folder: Path, writing: int, at: int, how: int, group: bool) -> None:
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
        if touched == at:
            armed[0] = False
            (os.killpg if group else os.kill)(os.getpid(), how)

    from biasbound.cli import main
    from biasbound.data.formats import guard

    guard._child = None
    sys.addaudithook(count)
    try:
        code = main(list(command.words))
    except SystemExit as stop:
        code = int(stop.code or 0)
    armed[0] = False
    os.write(writing, f" {touched}".encode())
    os._exit(code)


def _writes(arguments: Any) -> bool:
    """Whether an `open` may change the disk."""
    flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _continue_or_kill(pid: int) -> None:
    """A stopped command is continued where its number is even, and killed where it is odd."""
    for _ in range(4000):
        found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if found and os.WIFSTOPPED(status):
            os.kill(pid, signal.SIGCONT if pid % 2 == 0 else signal.SIGKILL)
            return
        if found:
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


MARK = "BIASBOUND_ATTACK"  # in the environment of all that a case starts


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


def siege(command: Command, good: Path, work: Path, kills: int, seed: int) -> tuple[int, list[tuple[str, str]]]:
    """(kills, findings): stop the command again and again; in the end its results are those of an unbroken call."""
    rng, findings = random.Random(f"{command.name} {seed}"), []
    whole = work / "whole"
    shutil.copytree(good, whole)
    status, touches = called(command, whole)
    wanted = bytes_of(whole, command.results)
    if status or not wanted:
        return 0, [(command.name, f"fails unbroken: status {status}, {len(wanted)} results")]
    done, before = 0, _children()
    while done < kills:
        broken = work / "broken"
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(good, broken)
        for _ in range(min(kills - done, 40 if command.resumes else 1)):
            at, how, group = 1 + rng.randrange(max(1, touches)), rng.choice(SIGNALS), rng.random() < 0.3
            if command.resumes:
                at = 1 + rng.randrange(max(2, touches // 6))
            status, _ = called(command, broken, at, how, group)
            done += 1
            half = bytes_of(broken, command.results)
            if not command.resumes and any(half[name] != wanted.get(name) for name in half):
                findings.append((f"{command.name} at {at} by {how}", "half a result under its name"))
            if status == 0:
                break
        status, _ = called(command, broken)
        there = half == wanted  # stopped after its work: a folder that is whole is not replaced, and that is refused
        if (status and not there) or bytes_of(broken, command.results) != wanted:
            findings.append((f"{command.name} after {done} kills", f"status {status}, or other bytes than unbroken"))
        if left := orphans(before):
            findings.append((command.name, f"orphans {left}"))
    shutil.rmtree(work, ignore_errors=True)
    return done, findings
