"""The child that looks at foreign HDF5 files first: a program of its own, which imports h5py and nothing of ours.

One path per line comes in, as JSON; one line of JSON goes out: the arrays that the file declares, or why it was given
up. Damaged metadata make the HDF5 library loop for ever, crash or allocate gigabytes. Here that ends this process, by
an alarm, by the crash itself or by the limit on memory, and the parent has a sentence to say.
"""

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

import h5py

SECONDS = 2.0  # of this process's time per file; a good one takes milliseconds
MEMORY = 1 << 30  # bytes beyond what the imports took
OBJECTS = 20_000  # looked at per file
SMALL = 1 << 20  # bytes of an array that is read as a whole


def limit() -> None:
    """Bound memory, ignore the terminal's interrupts, die by the alarm: no Python code runs inside a loop of HDF5."""
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, AttributeError):  # on Linux: end with the parent, even when a signal has stopped us
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)


@contextmanager
def tolerated() -> Iterator[None]:
    """What cannot be read is for the reader to say; what never returns, kills or fills the memory is told here."""
    try:
        yield
    except (OSError, TypeError, ValueError, KeyError, RuntimeError) as error:
        if "alloc" in str(error):
            raise MemoryError from error


def look(path: str) -> list[Any]:
    """[name, shape, bytes per value] of every array, after a look at each attribute and at values of each array."""
    arrays: list[Any] = []
    with h5py.File(path, "r") as file:
        for thing in islice(_objects(file), OBJECTS):
            for name in thing.attrs:
                with tolerated():
                    thing.attrs[name]  # texts stand in a heap, whose sizes a file may lie about
            if isinstance(thing, h5py.Dataset):
                with tolerated():
                    shape, size = thing.shape or (), thing.dtype.itemsize
                    arrays.append([thing.name, [int(n) for n in shape], size])
                    _read(thing, shape, size)
    return arrays


def _objects(file: h5py.File) -> Any:
    """Every group and array once, links followed as a reader would."""
    todo, seen = [file], set()
    while todo:
        thing = todo.pop()
        told = h5py.h5o.get_info(thing.id)
        if (told.fileno, told.addr) in seen:
            continue
        seen.add((told.fileno, told.addr))
        yield thing
        if isinstance(thing, h5py.Group):
            for name in islice(thing, OBJECTS):
                with tolerated():
                    todo.append(thing[name])


def _read(array: Any, shape: tuple[int, ...], size: int) -> None:
    """All of a small array; of a large one its first and last values, by way of the index of its chunks."""
    count = 1
    for n in shape:
        count *= int(n)
    if count * size <= SMALL:
        array[()]
    elif shape:
        array[(0,) * len(shape)]
        array[tuple(int(n) - 1 for n in shape)]


def main() -> None:
    limit()
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints is no answer
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            told: dict[str, Any] = {"arrays": look(json.loads(line))}
        except MemoryError:
            told = {"error": "takes more than a gigabyte of memory"}
        except Exception as error:  # noqa: BLE001 - the reader meets it again, and has better words
            told = {"arrays": [], "said": str(error)[:200]}
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(json.dumps(told) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
