"""Worker processes that end with their parent, however it ends."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["cores", "obey", "workers"]


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def obey(listening: Connection, first: Callable[..., None] | None = None, *arguments: Any) -> None:
    """In a worker: leave interrupts to the parent, end when its end of the pipe closes; then do `first`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait() -> None:
        with suppress(EOFError, OSError):
            listening.recv()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    if first is not None:
        first(*arguments)


@contextmanager
def workers(count: int, first: Callable[..., None] | None = None, *arguments: Any) -> Iterator[ProcessPoolExecutor]:
    """`count` fresh processes, each of which begins with `first(*arguments)`.

    On an error or an interrupt their work is given up, so that nobody waits for it.
    """
    context = multiprocessing.get_context("spawn")
    listening, speaking = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(count, context, initializer=obey, initargs=(listening, first, *arguments))
    try:
        yield pool
    except BrokenProcessPool:
        raise ValueError(
            "a worker process died, perhaps for lack of memory; run the same command again to go "
            "on, with fewer workers"
        ) from None
    except BaseException:
        speaking.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        speaking.close()
        listening.close()
