"""Kill each generator with SIGKILL in the middle, give the same command again, compare with an uninterrupted run.

python benchmarks/kill_resume.py [--jobs 2]         prints one line per flow; fails where bytes differ
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Settings that make a handful of blocks, some seconds in all.
FLOWS = {
    "ks": ["--size", "small", "--set", "batch=32"],
    "kolmogorov": ["--size", "smoke", "--trajectories", "12", "--set", "points=64"],
    "transonic": ["--size", "smoke", "--set", "mach=[0.55,0.6,0.7,0.8]"],
}


def command(flow: str, out: Path, jobs: int) -> list[str]:
    start = [sys.executable, "-m", "biasbound", "data", flow]
    return [*start, *FLOWS[flow], "--jobs", str(jobs), "--out", str(out)]


def blocks(out: Path) -> int:
    return len(list(out.with_name(f"{out.name}.part").glob("block_*.npz")))


def killed_midway(arguments: list[str], out: Path) -> int:
    """Run and kill as soon as one block is done; the number of finished blocks that are left."""
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    while blocks(out) == 0:
        if process.poll() is not None:
            raise SystemExit(f"{out.stem}: ended before it could be killed")
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    if out.exists():
        raise SystemExit(f"{out.stem}: was complete before it could be killed")
    return blocks(out)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    jobs = parser.parse_args().jobs
    with tempfile.TemporaryDirectory() as folder:
        for flow in FLOWS:
            whole, cut = Path(folder, f"{flow}.h5"), Path(folder, f"{flow}_cut.h5")
            subprocess.run(command(flow, whole, 1), check=True, stdout=subprocess.DEVNULL)
            arguments = command(flow, cut, jobs)
            left = killed_midway(arguments, cut)
            subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
            if digest(whole) != digest(cut):
                raise SystemExit(f"{flow}: the resumed file differs from the uninterrupted one")
            print(
                f"{flow:11} killed with {left} blocks done and {jobs} processes, resumed: the same "
                f"{whole.stat().st_size} bytes as uninterrupted with 1 worker, "
                f"sha256 {digest(whole)[:16]}"
            )


if __name__ == "__main__":
    run()
