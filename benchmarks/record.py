"""What a measured figure needs beside it: the commit, the machine and the versions."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["circumstances"]


def _processor() -> str:
    lines = Path("/proc/cpuinfo")
    if lines.exists():
        for line in lines.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    root = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "..", ":!../results")
        return git("rev-parse", "--short", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def circumstances(*packages: str) -> dict[str, Any]:
    """Commit, processor, Python and the versions of `packages`, as JSON values."""
    versions = {}
    for name in packages:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return {"commit": _commit(), "processor": _processor(), "python": platform.python_version(), **versions}
