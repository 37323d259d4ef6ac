"""Proxy Unrolled Training under the ledger: python benchmarks/proxy_study.py PRESET OUT [METHOD]

One training per share of the budget, fine-tuned in several ways: n, u, detach and share. Every variant is a run of its own
with the same data and the same base training where its share is the same. Prints a table of one- and ten-step errors, with
the same method without fine-tuning, which has all of the budget for its training.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from biasbound.metrics.rows import read_rows, select

VARIANTS = {
    "u = 1, n = 0, share 0.2": {},
    "detached": {"detach": "true"},
    "n = 1": {"proxy_steps": "1"},
    "u = 2": {"unroll": "2"},
    "u = 4": {"unroll": "4"},
    "share 0.4": {"share": "0.4"},
    "rate 1e-3": {"lr": "1e-3"},
}


def evaluated(run: Path, preset: str, methods: str, method: str, options: dict[str, str]) -> Path | None:
    """A run with one method scored, in a process of its own; what is done is skipped. None where it is refused: a chain
    of one level has no n = 1."""
    words = [
        sys.executable,
        "-m",
        "biasbound",
        "evaluate",
        str(run),
        "--preset",
        preset,
        "--jobs",
        "1",
        "--seeds",
        "0",
    ]
    words += ["--methods", methods, "--method", method, "--rollout.steps", "20", "--rollout.trajectories", "16"]
    words += ["--redo"] if options else []
    for name, value in options.items():
        words += [f"--finetune.{name}", value]
    done = subprocess.run(words, check=False, stdout=subprocess.DEVNULL)
    return run / "results.jsonl" if done.returncode == 0 else None


def line(name: str, path: Path, method: str) -> str:
    rows = select(read_rows(path), method=method)
    one, ten = (select(rows, metric=m, step=s)[0].value for m, s in (("one_step_mse_norm", 1), ("mse_norm", 10)))
    return f"| {name} | {one:.3g} | {ten:.3g} | {rows[0].nfe} | {rows[0].ledger:,} | {rows[0].seconds:.0f} |"


def main() -> None:
    preset, out = sys.argv[1], Path(sys.argv[2])
    base = sys.argv[3] if len(sys.argv) > 3 else "adaptive-scaled-residual"
    tuned = f"{base}-proxy"
    both = f"{base},{tuned}"
    first = out / "first"
    evaluated(first, preset, both, both, {})
    print(f"{preset}, {base}, seed 0\n")
    print("| fine-tuning | one step | ten steps | calls | ledger | CPU-seconds |")
    print("| :-- | --: | --: | --: | --: | --: |")
    print(line("none", first / "results.jsonl", base), flush=True)
    for number, (name, options) in enumerate(VARIANTS.items()):
        run = first if not options else out / f"variant-{number}"
        if options and not run.exists():
            shutil.copytree(first, run)
        path = evaluated(run, preset, both, tuned, options) if options else first / "results.jsonl"
        print(f"| {name} | refused | | | | |" if path is None else line(name, path, tuned), flush=True)


if __name__ == "__main__":
    main()
