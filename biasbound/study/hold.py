"""A run folder held against a second writer, on this machine or on another one that sees the folder.

On one machine the system's lock decides, which dies with its owner. Not every file system carries that lock to other
machines, so the holder also leaves a sign with its name, and touches it every few seconds. Another machine is refused
while the sign is fresh, and takes over when it has stood still for a minute. Times are those of the file server, because
the clocks of machines differ.
"""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from biasbound._io import lock

HOST = socket.gethostname()
BEAT = 10.0  # seconds between touches
DEAD = 60.0  # seconds without one after which the holder is gone


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold `path` as a lock file with a sign beside it, or refuse in one sentence."""
    sign = path.with_name(f"{path.name}.by")
    with lock(path) as locked:
        _clear(sign, bool(locked))
        _put(sign)
        ended = threading.Event()
        threading.Thread(target=_beat, args=(sign, ended), daemon=True).start()
        try:
            yield
        finally:
            ended.set()
            sign.unlink(missing_ok=True)


def _put(sign: Path) -> None:
    """The sign of this process, whole or not at all; of two that put theirs one wins, also over NFS."""
    own = _own(sign)
    own.write_text(json.dumps({"host": HOST, "process": os.getpid(), "launch": _launch()}), encoding="utf-8")
    try:
        try:
            os.link(own, sign)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            with open(sign, "x", encoding="utf-8") as stream:
                stream.write(own.read_text(encoding="utf-8"))
    except FileExistsError:
        raise ValueError(f"another process has just begun to write here ({sign}); choose another place") from None
    finally:
        own.unlink(missing_ok=True)


def _own(sign: Path) -> Path:
    """A name beside the sign that no other process uses."""
    return sign.with_name(f"{sign.name}.{HOST}.{os.getpid()}")


def _beat(sign: Path, ended: threading.Event) -> None:
    with suppress(OSError):
        while not ended.wait(BEAT):
            os.utime(sign)


def _clear(sign: Path, locked: bool) -> None:
    """Remove the sign of a holder that is gone; refuse where it is another's and fresh.

    Who has this machine's lock knows that the last holder here has ended.
    """
    for left in sign.parent.glob(f"{sign.name}.{HOST}.*"):  # of processes that were killed between two lines
        if left.suffix[1:].isdecimal() and not _alive(int(left.suffix[1:])):
            left.unlink(missing_ok=True)
    try:
        said = sign.read_text(encoding="utf-8")
        still = _now(sign) - sign.stat().st_mtime
    except FileNotFoundError:
        return
    try:
        told = json.loads(said)
        host, process, launch = str(told["host"]), int(told["process"]), told["launch"]
    except (ValueError, KeyError, TypeError):  # killed while it wrote, where there are no hard links
        host, process, launch = "another machine", 0, None
    restarted = launch is not None and launch == _launch()
    if still < DEAD and not restarted and (host != HOST or (not locked and _alive(process))):
        raise ValueError(
            f"process {process} of {host} is writing here ({sign} was touched {max(still, 0):.0f} s ago); wait until it "
            f"ends, or {DEAD:.0f} s if that machine went down"
        )
    gone = _own(sign)
    with suppress(FileNotFoundError):
        os.replace(sign, gone)  # of two that take over only one finds it
        gone.unlink()


def _launch() -> str | None:
    """Which torchrun started this process: it ends all that it started before it starts them again, perhaps elsewhere."""
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    return None if name == "none" else name  # as torchrun calls one without --rdzv_id


def _alive(process: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return True


def _now(sign: Path) -> float:
    """The file server's time."""
    probe = _own(sign)
    probe.touch()
    now = probe.stat().st_mtime
    probe.unlink()
    return now
