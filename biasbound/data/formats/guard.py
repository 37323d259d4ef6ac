"""HDF5 files of strangers are looked at in a child process first (`inspector`); what kills it, does not kill us.

The child starts with the first file (about 0.2 s) and serves all later ones in milliseconds. A file that was looked at
is not looked at again while its inode, size and times are the same.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from biasbound._io import backed

__all__ = ["looked_at"]

PATIENCE = 120.0  # seconds by the clock, for a busy machine or slow storage: a loop ends by the child's own time
WORK = 2.0  # seconds of the child's own time, after which it dies
_known: set[tuple[Any, ...]] = set()
_turn = threading.Lock()
_child: tuple[int, subprocess.Popen[bytes]] | None = None  # with the process that started it: a fork has none


def looked_at(path: Path) -> Path:
    """The same path, once its metadata proved harmless; else one sentence."""
    told = path.stat()
    mark = (str(path), told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns)
    with _turn:
        if mark not in _known:
            for name, shape, size in _asked(path):
                backed(f"{path}, {name}", shape, size, path)
            _known.add(mark)
    return path


def _asked(path: Path) -> list[Any]:
    """The arrays of a file as the child describes them."""
    child = _running()
    assert child.stdin is not None
    assert child.stdout is not None
    answer = b""
    try:
        child.stdin.write(json.dumps(os.path.abspath(path)).encode() + b"\n")
        child.stdin.flush()
        while not answer.endswith(b"\n"):
            if not select.select([child.stdout], [], [], PATIENCE)[0]:
                break
            part = os.read(child.stdout.fileno(), 1 << 16)
            answer += part
            if not part:
                break
    except OSError:
        answer = b""
    except BaseException:  # an interrupt: the answer would be that of the next file
        _end()
        raise
    if not answer.endswith(b"\n"):
        _end()
        raise _refused(path, "looking at it does not end, or crashes the HDF5 library")
    told = json.loads(answer)
    if "error" in told:
        raise _refused(path, f"looking at it {told['error']}")
    arrays: list[Any] = told["arrays"]
    return arrays


def _refused(path: Path, why: str) -> ValueError:
    return ValueError(f"{path}: found damaged HDF5 ({why}); copy it again")


def _running() -> subprocess.Popen[bytes]:
    global _child
    if _child is None or _child[0] != os.getpid() or _child[1].poll() is not None:
        program = Path(__file__).with_name("inspector.py")
        quiet = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        # -P: nothing in the current folder may take the place of a package.
        child = subprocess.Popen([sys.executable, "-P", str(program), str(WORK)], env=environment, **quiet)  # type: ignore[call-overload]
        _child = os.getpid(), child
    return _child[1]


@atexit.register
def _end() -> None:
    """Without its parent's end of the pipe the child ends by itself; one that hangs is killed."""
    global _child
    if _child is not None and _child[0] == os.getpid():
        child = _child[1]
        for stream in (child.stdin, child.stdout):
            with suppress(OSError):
                stream.close()  # type: ignore[union-attr]
        child.kill()
        child.wait()
    _child = None
