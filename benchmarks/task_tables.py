"""Scores of tasks whose answer is a distribution, beside the cosine schedule's: the table of docs/results-tasks.md."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

from biasbound.metrics.rows import Row, read_rows, select
from biasbound.models.method import order_of

BESIDE = "cosine-v-residual"
HEAD = (
    "method",
    "seeds",
    "calls",
    "ledger",
    "RMSE of the mean",
    "CRPS",
    "over cosine",
    "spread/skill",
    "high-band energy",
)


def scores(rows: list[Row], label: str, metric: str) -> dict[int, float]:
    """Per seed, at the first frame."""
    found = select(rows, method=label, metric=metric, step=1)
    return {row.seed: math.nan if row.value is None else row.value for row in found}


def line(rows: list[Row], label: str) -> str:
    own = select(rows, method=label)
    crps, beside = scores(rows, label, "crps"), scores(rows, BESIDE, "crps")
    over = [crps[seed] / beside[seed] for seed in sorted(crps.keys() & beside.keys())]
    told = f"{statistics.mean(over):.2f}"
    if len(over) > 1:
        told += f" ({', '.join(f'{one:.2f}' for one in over)})"
    means = [statistics.mean(scores(rows, label, m).values()) for m in ("spread_skill", "energy_high")]
    error = statistics.mean(math.sqrt(one) for one in scores(rows, label, "ensemble_mse").values())
    calls = ", ".join(map(str, sorted({row.nfe for row in own})))
    cells = [
        label,
        len(crps),
        calls,
        f"{own[0].ledger:,}",
        f"{error:.3g}",
        f"{statistics.mean(crps.values()):.3g}",
        told,
    ]
    return f"| {' | '.join(map(str, cells))} | {means[0]:.2f} | {means[1]:.2f} |"


def tasks(folder: Path) -> str:
    """One table per kept run of a folder."""
    parts = []
    for kept in sorted(folder.iterdir()):
        rows = read_rows(kept / "results.jsonl")
        labels = sorted({row.method for row in rows}, key=order_of)
        body = [f"| {' | '.join(HEAD)} |", "| --- " * len(HEAD) + "|", *(line(rows, label) for label in labels)]
        parts.append("\n".join([f"**{kept.name}**", "", *body]))
    return "\n\n".join(parts)
