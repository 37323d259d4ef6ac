"""A call whose process is killed the first time; in a module that imports little, because a job elsewhere loads it."""

import os
import signal


def stumbling(path):
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 7


def nothing():
    """Before its first call a process needs nothing here."""
