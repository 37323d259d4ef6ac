"""Fill the tables of README.md and of pages in docs/ from results/: python benchmarks/results_tables.py

A table stands between `<!-- table NAME -->` and `<!-- end -->`; nothing else of a page is touched. tests/test_results.py
asks that the pages are as this script would write them.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from functools import partial

import results_bars
import results_record
from results_rows import ROOT
from task_tables import tasks

from biasbound.metrics.rows import read_rows
from biasbound.report.tables import demo_table

FITTED = (("one_step_mse", 1), ("mse", 10))
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("results", "results-tasks", "studies")))
# What a figure shows, what it says, and what it does not say.
FIGURES = {
    "calls": ("One-step error against network calls", "how many calls a given accuracy costs", "how rollouts behave"),
    "rollouts": (
        "Error and spectral distance over rollouts",
        "who follows the truth for how long, and whose rollouts keep its spectrum",
        "how much of the error is the emulator's own",
    ),
    "curves": (
        "Error against the ledger",
        "who leads at which ledger, and what doubling it still changes",
        "where a method would end: the learning rate falls to zero within each budget",
    ),
    "panel": (
        "Error against calls for schedules by others and ours",
        "which levels are best for a given network, and after training on them",
        "anything about other samplers: all are sampled by re-noising",
    ),
    "split": (
        "Own error and inherited drift over rollouts",
        "whether an emulator is worse on its own states than on true ones",
        "whether drift could be avoided: the flows are chaotic",
    ),
}
MARK = re.compile(r"(<!-- table ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fits() -> str:
    """Every kept fit: root mean square errors on test data in units of persistence's, and who was chosen."""
    lines = ["| data | chosen | one step | ten steps | grown over direct, one step | ten steps | updates | ledger |"]
    lines += ["| :-- | :-- | --: | --: | --: | --: | --: | --: |"]
    for folder in sorted((ROOT / "results" / "fit").iterdir()):
        rows, told = read_rows(folder / "results.jsonl"), json.loads((folder / "fit.json").read_text())
        error = {(r.method, r.metric): r.value for r in rows if (r.metric, r.step) in FITTED}
        grown, direct = (next(m for m in told["standings"] if m.startswith(k)) for k in ("adaptive", "direct"))
        own = [(error[told["chosen"], m] / error["persistence", m]) ** 0.5 for m, _ in FITTED]
        ratios = [error[grown, m] / error[direct, m] for m, _ in FITTED]
        ledger = max(r.ledger for r in rows)
        figures = " | ".join(f"{value:.3g}" for value in (*own, *ratios))
        lines.append(
            f"| {folder.name} | `{told['chosen']}` | {figures} | {told['choice']['updates']:,} | {ledger:,} |"
        )
    return "\n".join(lines)


def figure(name: str) -> str:
    """A figure with its two sentences; nothing where `results_figures.py` had nothing to draw."""
    if not (ROOT / "docs" / "img" / f"results_{name}.png").exists():
        return ""
    shows, says, lacks = FIGURES[name]
    words = textwrap.fill(f"*What it says*: {says}. *What it does not say*: {lacks}.", 100)
    return f"![{shows}](img/results_{name}.png)\n\n{words}"


TABLES: dict[str, Callable[[], str]] = {
    **results_record.tables(),
    **results_bars.tables(),
    **{f"figure-{name}": partial(figure, name) for name in FIGURES},
    "fits": fits,
    "demo": lambda: demo_table(read_rows(ROOT / "results" / "demo" / "results.jsonl")).markdown(),
    "tasks": lambda: tasks(ROOT / "results" / "tasks"),
}


def _placed(made: str) -> str:
    return f"{made.strip()}\n" if made else ""


def filled(text: str) -> str:
    """The page with its tables written anew."""
    return MARK.sub(lambda m: f"{m[1]}{_placed(TABLES[m[2]]())}{m[3]}", text)


def main() -> None:
    for page in PAGES:
        text = page.read_text()
        page.write_text(filled(text))
        print(f"{page.relative_to(ROOT)}: {len(MARK.findall(text))} tables")


if __name__ == "__main__":
    main()
