"""Ratios of errors at an equal ledger, from the rows of runs: python benchmarks/equal_ledger.py results/grown/ks-5000 …

Each run is a folder with results.jsonl. For one and ten steps the mean over seeds of every method is divided by that of the
direct model with a residual target, seed by seed; ledgers must agree within 1 %.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from biasbound.metrics.rows import Row, read_rows, select

AGAINST = "direct-residual"
SCORES = {"one step": ("one_step_mse_norm", 1), "ten steps": ("mse_norm", 10)}


def values(rows: list[Row], label: str, score: str) -> dict[int, float]:
    """The score of each seed."""
    metric, step = SCORES[score]
    found = select(rows, method=label, metric=metric, step=step)
    return {row.seed: float("inf") if row.value is None else row.value for row in found}


def line(rows: list[Row], label: str) -> str:
    told = select(rows, method=label)
    cells = [
        label,
        str(len({r.seed for r in told})),
        str(max(r.nfe for r in told)),
        f"{max(r.ledger for r in told):,}",
    ]
    for score in SCORES:
        own, other = values(rows, label, score), values(rows, AGAINST, score)
        ratios = [own[seed] / other[seed] for seed in own if seed in other]
        spread = f" ({', '.join(f'{r:.2f}' for r in ratios)})" if len(ratios) > 1 else ""
        cells += [f"{statistics.mean(own.values()):.2e}", f"{statistics.mean(ratios):.2f}{spread}" if ratios else "–"]
    rebs = [r.value for r in told if r.metric == "reb" and r.value is not None]
    return "| " + " | ".join([*cells, f"{max(rebs):.3f}" if rebs else "–"]) + " |"


def table(folder: Path) -> str:
    rows = [r for r in read_rows(folder / "results.jsonl") if r.ledger]  # persistence is trained on nothing
    ledgers = {r.ledger for r in rows}
    if max(ledgers) > 1.01 * min(ledgers):
        raise ValueError(f"{folder}: the ledgers differ, {sorted(ledgers)}")
    head = ["method", "seeds", "calls", "ledger", "one step", "over direct", "ten steps", "over direct", "largest REB"]
    lines = [line(rows, label) for label in dict.fromkeys(r.method for r in rows)]
    return "\n".join([f"**{folder.name}**", "", f"| {' | '.join(head)} |", "|" + " --- |" * len(head), *lines])


if __name__ == "__main__":
    for place in map(Path, sys.argv[1:]):
        print(table(place), end="\n\n")
