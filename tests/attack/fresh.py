"""Cases in fresh interpreters: the command as a user calls it, without what `warm` keeps."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from arena import FINE, HANG
from commands import QUICK, study
from files import Shelf
from kills import Command, bytes_of, called, orphans
from mutate import damaged
from specimens import SPECIMENS

ROOT = Path(__file__).parents[2]
READ = ("--dt", "0.5", "--dims", "1")
LINES = {  # what reads a file of this kind; of the others, `data info`
    "schedule": ("schedule", "show", "FILE"),
    "emulator": ("predict", "FILE", "--data", "waves.h5", "--steps", "2", "--out", "p.npy"),
    "prediction": ("score", "FILE", "--truth", "waves.h5"),
    "run folder": ("status", "FILE"),
    "config": ("run", "r", "--config", "FILE", "--dry-run", "--jobs", "1"),
}
UNREAD = ("checkpoint", "rows")  # no command reads one alone
Finding = tuple[str, str]


def started(words: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(
        [sys.executable, "-m", "biasbound", *words],
        cwd=folder, env=environment, text=True, errors="replace", start_new_session=True, **quiet,
    )  # fmt: skip


def files(good: Path, work: Path, count: int, seed: int) -> tuple[int, list[Finding]]:
    """Damaged files: exit code 0 or 2, at most one sentence, and refused exactly where the warm process refuses."""
    shelf, findings = Shelf(work), []
    kinds = [specimen for specimen in SPECIMENS if specimen.name not in UNREAD]
    for number in range(seed, seed + count):
        specimen = kinds[number % len(kinds)]
        name, warm = shelf.case(specimen, number)
        folder = _fresh(good, work / "fresh")
        (folder / "given").mkdir()  # apart from the good inputs, which may have its name
        path = damaged(shelf.good[specimen.name], folder / "given", random.Random(f"{specimen.name} {number}"))
        told = READ if path.suffix in (".npy", ".mat") and specimen.name != "prediction" else ()
        line = LINES.get(specimen.name, ("data", "info", "FILE", *told))
        with started([str(path.relative_to(folder)) if word == "FILE" else word for word in line], folder) as process:
            try:
                said = process.communicate(timeout=6 * HANG)[1]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                said = "hang"
        code = process.returncode
        if code not in (0, 2) or "Traceback" in said or (code == 2 and len(said.strip().splitlines()) != 1):
            findings.append((f"{name}, fresh", f"exit code {code}: {said[-600:]}"))
        elif specimen.name not in LINES and (code == 2) != _refuses(warm, work / "warm"):
            findings.append((f"{name}, fresh", f"exit code {code}, unlike the warm process: {said[-600:]}"))
    return count, findings


def _refuses(act: object, folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        act(folder)  # type: ignore[operator]
    except FINE:
        return True
    return False


def lines(good: Path, work: Path, count: int, seed: int) -> tuple[int, list[Finding]]:
    """Bad option lines: exit code 2 and one sentence."""
    from lines import bad_lines, nonsense

    findings, every = [], nonsense()
    random.Random(seed).shuffle(every)
    work.mkdir(exist_ok=True)
    for line, name in (*bad_lines(count - count // 2, seed), *every[: count // 2]):
        words = ["RUN" if word == "RUN" else word for word in line]
        done = started(words, work)
        said = done.communicate()[1]
        if done.returncode != 2 or "Traceback" in said or len(said.strip().splitlines()) != 1:
            findings.append((f"{name}, fresh", f"exit code {done.returncode}: {line}: {said[-400:]}"))
    return count, findings


def kills(good: Path, work: Path, count: int, seed: int) -> tuple[int, list[Finding]]:
    """A command killed at any moment: itself, one of its workers, or all; then given again."""
    rng, findings, done = random.Random(seed), [], 0
    every = [study("evaluate", "direct", "linear", jobs=2), *QUICK]
    command = every[seed % len(every)]
    whole = _fresh(good, work / "whole")
    begun = time.monotonic()
    with started(command.words, whole) as process:
        process.communicate()
    seconds, wanted = time.monotonic() - begun, bytes_of(whole, command.results)
    if process.returncode or not wanted:
        return 0, [(command.name, f"fails unbroken: exit code {process.returncode}")]
    here = _fresh(good, work / "here")
    while done < count:
        process = started(command.words, here)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=rng.random() * seconds)
        if process.poll() is not None:
            findings += _compared(command, here, wanted, seed)
            here = _fresh(good, work / "here")
            continue
        done += 1
        _killed(process.pid, rng)
        process.communicate()
        if left := orphans(set()):
            findings.append((f"{command.name}, fresh, seed {seed}", f"orphans {left}"))
    called(command, here)
    return done, findings + _compared(command, here, wanted, seed)


def _compared(command: Command, here: Path, wanted: dict[str, bytes], seed: int) -> list[Finding]:
    same = bytes_of(here, command.results) == wanted
    return [] if same else [(f"{command.name}, fresh, seed {seed}", "other bytes than unbroken")]


def _killed(leader: int, rng: random.Random) -> None:
    """SIGKILL to the command, to one of its workers, or to all; a worker's death ends the command in a sentence."""
    workers = [pid for pid in _session(leader) if pid != leader]
    how = rng.choice(("leader", "worker", "group"))
    with suppress(ProcessLookupError):
        if how == "group":
            os.killpg(leader, signal.SIGKILL)
        elif how == "worker" and workers:
            os.kill(rng.choice(workers), signal.SIGKILL)
            time.sleep(rng.random())
            os.kill(leader, signal.SIGTERM)
        else:
            os.kill(leader, signal.SIGKILL)


def _session(leader: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if int((entry / "stat").read_text().rpartition(")")[2].split()[3]) == leader:
                found.append(int(entry.name))
    return sorted(found)


def _fresh(good: Path, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    return shutil.copytree(good, place)
