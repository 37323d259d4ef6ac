"""Accuracy, spread and sharpness of one task as τ and σ_0 vary: python benchmarks/task_study.py PRESET OUT [--like RUN]

The paper's discussion asks for this balance. Every value is a run of its own in OUT, with the data of `--like`, or of the
first run. First τ varies, then σ_0 (search.sigma_min) at the τ of `--at`. The search is the paper's, which leads the ladder
down to the lowest stable level: a ladder that grows takes a level only where it lowers the error, and so hardly depends on
either. What is done is skipped. Further options of `biasbound evaluate` follow --. Writes OUT/study.png and prints a table.
Errors are in the data's units; the dashed lines are those of `--beside`, trained once.
"""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt

from biasbound.cli.wish import wish_of
from biasbound.core.schedule import Schedule
from biasbound.metrics.rows import read_rows, select
from biasbound.study.folder import open_run

SCORES = {
    "RMSE of the mean": "ensemble_mse",
    "CRPS": "crps",
    "spread/skill": "spread_skill",
    "high-band energy/truth": "energy_high",
}


@dataclass(frozen=True)
class Found:
    """One run: what varied, the ladder, and its scores."""

    value: float
    levels: tuple[float, ...]
    scores: dict[str, float]

    def line(self, name: str) -> str:
        numbers = [f"{number:.3g}" for number in self.scores.values()]
        lowest = f"{self.levels[0]:.3g}" if self.levels else ""
        return f"| {' | '.join([name, f'{self.value:g}', str(len(self.levels)), lowest, *numbers])} |"


def begun(run: Path, like: Path | None, options: list[str]) -> Path:
    """The run's folder, with the data of another run where there is one."""
    if like is not None and not (run / "01-data" / "stage.json").exists():
        shutil.rmtree(run, ignore_errors=True)
        open_run(run, wish_of("evaluate", [str(run), *options]).config)
        shutil.copytree(like / "01-data", run / "01-data.copied")
        (run / "01-data.copied").rename(run / "01-data")
    return run


def evaluated(run: Path, options: list[str], method: str) -> None:
    """Score one method of a run, in a process of its own; what is done is skipped."""
    words = [sys.executable, "-m", "biasbound", "evaluate", str(run), *options, "--method", method, "--redo"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def found(run: Path, method: str, value: float = math.nan) -> Found:
    rows = select(read_rows(run / "results.jsonl"), method=method)
    numbers = {name: select(rows, metric=metric, step=1)[0].value for name, metric in SCORES.items()}
    scores = {name: math.nan if number is None else number for name, number in numbers.items()}
    scores["RMSE of the mean"] = math.sqrt(scores["RMSE of the mean"])
    place = run / "03-train" / method / "seed-0" / "emulator" / "schedule.json"
    return Found(value, tuple(Schedule.load(place).sigma) if place.exists() else (), scores)


def draw(sweeps: dict[str, list[Found]], beside: dict[str, Found], title: str, path: Path) -> None:
    """One row per sweep, one column per score."""
    figure, axes = plt.subplots(
        len(sweeps), len(SCORES), figsize=(3.1 * len(SCORES), 2.7 * len(sweeps)), squeeze=False
    )
    for row, (name, runs) in zip(axes, sweeps.items(), strict=True):
        for axis, score in zip(row, SCORES, strict=True):
            axis.plot([r.scores[score] for r in runs], "o-", label="searched")
            for number, (label, other) in enumerate(beside.items(), 1):
                axis.axhline(other.scores[score], color=f"C{number}", linestyle="--", linewidth=1, label=label)
            axis.set_xticks(range(len(runs)), [f"{r.value:g}" for r in runs])
            axis.set(xlabel=name, title=score)
            if score in ("spread/skill", "high-band energy/truth"):
                axis.axhline(1, color="0.7", linewidth=0.8, zorder=0)
    axes[0, 0].legend(fontsize=7)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("out", type=Path)
    parser.add_argument("--like", type=Path, help="a run of the same preset whose data are used")
    parser.add_argument("--method", default="adaptive-v-residual")
    parser.add_argument("--beside", nargs="*", default=["cosine-v-residual", "direct-residual", "interpolation"])
    parser.add_argument("--taus", type=float, nargs="+", default=[1.02, 1.05, 1.1, 1.2, 1.5, 2.0])
    parser.add_argument("--sigmas", type=float, nargs="+", default=[0.03, 0.1, 0.3, 0.6, 0.8, 0.95])
    parser.add_argument("--at", type=float, default=2.0, help="τ while σ_0 varies")
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    given, more = parser.parse_args(words[:cut]), words[cut + 1 :]
    trained = [label for label in (given.method, *given.beside) if label != "interpolation"]
    common = ["--preset", given.preset, "--jobs", "1", "--methods", ",".join(trained), *more]
    updates = wish_of("evaluate", [str(given.out / "beside"), *common]).config.train.updates or 1000
    common += f"--search.mode separate --search.start sigma --search.updates {updates // 3}".split()
    first = begun(given.out / "beside", given.like, common)
    for label in trained[1:] or trained:
        evaluated(first, common, label)
    beside = {label: found(first, label) for label in given.beside}
    print("| varied | value | calls | lowest level | " + " | ".join(SCORES) + " |")
    print("| :-- | --: | --: | --: " + "| --: " * len(SCORES) + "|")
    for label, other in beside.items():
        print(other.line(label).replace("nan", ""), flush=True)
    sweeps: dict[str, list[Found]] = {"τ": [], "σ_0": []}
    for name, values in (("τ", given.taus), ("σ_0", given.sigmas)):
        for value in values:
            changed = {"search.tau": value} if name == "τ" else {"search.tau": given.at, "search.sigma_min": value}
            options = [*common, *(word for field, number in changed.items() for word in (f"--{field}", str(number)))]
            run = begun(given.out / f"{'tau' if name == 'τ' else 'sigma'}-{value:g}", first, options)
            evaluated(run, options, given.method)
            sweeps[name].append(found(run, given.method, value))
            print(sweeps[name][-1].line(name), flush=True)
    draw(sweeps, beside, f"{given.preset}, {given.method}", given.out / "study.png")


if __name__ == "__main__":
    main()
