"""Grown ladders with one option changed at a time: python benchmarks/grown_studies.py STUDY PRESET OUT [--like RUN] [--seeds 0 1] [--variants NAME] [OPTION …]

- proxy: Proxy Unrolled Training under the ledger. One training per share of the budget, fine-tuned in several ways: n, u,
  detach, share and rate, beside the same method without fine-tuning, which has all of the budget for its training;
- statistic: what τ bounds, mean, pooled or q95;
- rule: how the final ladder is chosen, greedy, best or paired;
- tax: what the search takes from the top level: its time, and the samples of the band and of the levels that are tried.

Every variant is a run of its own in OUT, with the data of `--like`, or of the first variant. Further options, such as
`--data.held_out`, go to every run. What is done is skipped. Prints
a table of one- and ten-step errors on test data, in units of the spread; several seeds as mean ± standard deviation.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from biasbound.cli.wish import wish_of
from biasbound.metrics.rows import read_rows, select
from biasbound.study.folder import open_run

BASE = "adaptive-scaled-residual"
TUNED = f"{BASE}-proxy"
Options = dict[str, str]
# Study → (the method that is varied, {variant: what it changes}).
STUDIES: dict[str, tuple[str, dict[str, Options]]] = {
    "proxy": (
        TUNED,
        {
            "as in the preset": {},
            "detached": {"finetune.detach": "true"},
            "n = 1": {"finetune.proxy_steps": "1"},
            "u = 1": {"finetune.unroll": "1"},
            "u = 4": {"finetune.unroll": "4"},
            "rate 1e-3": {"finetune.lr": "1e-3"},
            "u = 2": {"finetune.unroll": "2"},
            "u = 4, rate 1e-3": {"finetune.unroll": "4", "finetune.lr": "1e-3"},
            "share 0.4": {"finetune.share": "0.4"},
            "share 0.4, u = 4": {"finetune.share": "0.4", "finetune.unroll": "4"},
        },
    ),
    "statistic": (BASE, {name: {"search.statistic": name} for name in ("mean", "pooled", "q95")}),
    "rule": (BASE, {name: {"search.rule": name} for name in ("greedy", "best", "paired")}),
    "tax": (
        BASE,
        {
            "as in the preset": {},
            "warm 0.4, band 0.15, tried 0.8": {"search.warm": "0.4", "search.band": "0.15", "search.tried": "0.8"},
            "warm 0.3, share 0.4": {"search.warm": "0.3", "search.share": "0.4"},
        },
    ),
}


def evaluated(run: Path, options: list[str], method: str) -> bool:
    """Score one method of a run, in a process of its own; what is done is skipped."""
    words = [sys.executable, "-m", "biasbound", "evaluate", str(run), *options, "--method", method, "--redo"]
    return subprocess.run(words, check=False, stdout=subprocess.DEVNULL).returncode == 0


def begun(run: Path, like: Path | None, options: list[str]) -> Path:
    """The run's folder: a copy of another run, or of its data alone where the settings of the trainings differ."""
    if like is not None and not (run / "01-data" / "stage.json").exists():
        shutil.rmtree(run, ignore_errors=True)
        open_run(run, wish_of("evaluate", [str(run), *options]).config)
        for stage in ("01-data", "03-train"):
            if (like / stage).exists():
                shutil.copytree(like / stage, run / f"{stage}.copied")
                (run / f"{stage}.copied").rename(run / stage)
    return run


def shown(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.1g}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3g}{spread}"


def line(name: str, run: Path, method: str) -> str:
    rows = select(read_rows(run / "results.jsonl"), method=method)
    errors = [[row.value or float("nan") for row in select(rows, metric=m, step=s)] for m, s in ERRORS]
    calls, seconds = sorted({row.nfe for row in rows}), statistics.mean({row.seconds for row in rows})
    cells = [name, *map(shown, errors), ", ".join(map(str, calls)), f"{rows[0].ledger:,}", f"{seconds:.0f}"]
    return f"| {' | '.join(cells)} |"


ERRORS = (("one_step_mse_norm", 1), ("mse_norm", 10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("preset")
    parser.add_argument("out", type=Path)
    parser.add_argument("--like", type=Path, help="a run of the same preset whose data (and trainings) are used")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--variants", nargs="+", help="names of some of the variants; by default all")
    given, further = parser.parse_known_args()
    method, variants = STUDIES[given.study]
    if given.variants:
        variants = {name: variants[name] for name in given.variants}
    methods = sorted({BASE, method})
    common = ["--preset", given.preset, "--jobs", "1", "--seeds", ",".join(map(str, given.seeds))]
    common += ["--methods", ",".join(methods), "--rollout.steps", "20", "--rollout.members", "1", *further]
    print(f"{given.preset}, {method}, seeds {given.seeds}\n")
    print("| variant | one step | ten steps | calls | ledger | CPU-seconds |")
    print("| :-- | --: | --: | --: | --: | --: |")
    like = given.like
    if method == TUNED:
        like = begun(given.out / "none", like, common)
        evaluated(like, common, BASE)
        print(line("none", like, BASE), flush=True)
    for number, (name, changed) in enumerate(variants.items()):
        options = [*common, *(word for field, value in changed.items() for word in (f"--{field}", value))]
        run = begun(given.out / f"variant-{number}", like, options)
        done = evaluated(run, options, method)
        print(
            line(name, run, method) if done else f"| {name} | refused | | | | |", flush=True
        )  # one level has no n = 1
        like = run if number == 0 else like  # the others take its data, and its training where it is theirs too


if __name__ == "__main__":
    main()
