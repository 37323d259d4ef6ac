"""A study that is stopped again and again: python benchmarks/kill_study.py [10] [--preset ks-smoke] [--jobs 2]

Starts `biasbound run`, stops it at a random moment, alternately by SIGKILL and by an interrupt, starts the same command again,
and so on; then lets it finish and compares it with a run that nobody stopped: every row of results.jsonl (times aside), the
names of all files, and the weights of every emulator. A finished stage must never be made again.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def rows(run: Path) -> list[dict]:
    lines = (run / "results.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def weights(run: Path) -> dict[str, bytes]:
    found = sorted(run.rglob("emulator/model.safetensors"))
    return {str(p.relative_to(run)): p.read_bytes() for p in found}


def files(run: Path) -> set[Path]:
    return {p.relative_to(run) for p in run.rglob("*") if p.is_file()}


def done(run: Path) -> dict[str, int]:
    return {str(p.relative_to(run)): p.stat().st_mtime_ns for p in run.rglob("stage.json")}


def interruptible() -> None:
    """What a shell starts in the background ignores interrupts, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stops", type=int, nargs="?", default=10)
    parser.add_argument("--preset", default="ks-smoke")
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    random.seed(given.seed)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        command = [sys.executable, "-m", "biasbound", "run", "--preset", given.preset]
        command += ["--jobs", given.jobs]
        started = time.perf_counter()
        subprocess.run([*command, str(home / "whole")], check=True, capture_output=True)
        whole = time.perf_counter() - started
        print(f"unbroken: {whole:.1f} s, {len(done(home / 'whole'))} units")
        run, kept, again = home / "broken", {}, 0
        for stop in range(given.stops):
            how = (signal.SIGKILL, signal.SIGINT)[stop % 2]
            process = subprocess.Popen(
                [*command, str(run)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                preexec_fn=interruptible,  # noqa: PLW1509 - it takes no lock
            )
            wait = random.uniform(0, 2 * whole / given.stops) + 4  # imports take the first seconds
            try:
                process.wait(wait)
            except subprocess.TimeoutExpired:
                process.send_signal(how)
                process.wait()
            time.sleep(0.5)  # its workers notice that it is gone
            now = done(run)
            again += sum(now.get(name) != mark for name, mark in kept.items())
            kept = now
            print(f"{how.name} after {wait:.1f} s: exit {process.returncode}, {len(now)} units done")
        subprocess.run([*command, str(run)], check=True, capture_output=True)
        now = done(run)
        again += sum(now.get(name) != mark for name, mark in kept.items())
        same_files = files(home / "whole") == files(run)
        same_rows, same_weights = (rows(run) == rows(home / "whole"), weights(run) == weights(home / "whole"))
        print(f"units made again: {again}")
        print(f"rows equal: {same_rows} ({len(rows(run))}); weights equal: {same_weights} ({len(weights(run))} emulators); files equal: {same_files}")  # fmt: skip
        sys.exit(not (same_rows and same_weights and same_files and again == 0))


if __name__ == "__main__":
    main()
