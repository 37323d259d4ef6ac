"""The rows of the record, as the tables and figures of docs/results.md read them. What is not there yet is left out.

    results/record/FLOW              what `keep_run.py` kept of a run: rows, config, emulators, speed.json
    results/record/FLOW-ANYTHING     more of the same flow: other methods or seeds, or another ledger
    results/record/panel-FLOW.jsonl  what `schedule_panel.py` wrote
    results/record/panel-FLOW        trainings on its ladders, whose levels cost a training more than the ledger says
    results/record/apebench/         what `apebench.py` kept
    results/record/tried.json        {"BAR, FLOW": what was tried where it was missed}

A flow's table has all rows whose ledger is that of the folder FLOW, from whichever folder; rows with other ledgers are
points of its learning curves. A method and seed may be there only once for a ledger.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from biasbound._io import read_lines
from biasbound.core.panel import PANEL
from biasbound.core.schedule import SCHEDULES
from biasbound.metrics.rows import Row, read_rows, select
from biasbound.models.method import ADAPTIVE, FINETUNES, GUESSES
from biasbound.report.errors import error_of
from biasbound.study.parsing import read_config

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "results" / "record"
FLOWS = {"ks": "Kuramoto–Sivashinsky", "kolmogorov": "Kolmogorov flow", "transonic": "transonic cylinder"}
SLACK = 0.02  # the last update may go a little beyond a budget, and the passes of MeanFlow are drawn
KINDS = ("first guess", "direct", "fixed schedule", "peer", "ours")


@dataclass(frozen=True)
class Quartiles:
    """Median and quartiles over seeds; +∞ stands for a seed that was lost."""

    median: float
    low: float
    high: float
    seeds: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Quartiles | None:
        """None where there is no value."""
        known = sorted(math.inf if v is None else v for v in values)
        if not known:
            return None
        how = "linear" if math.isfinite(known[-1]) else "higher"  # nothing lies between a number and ∞
        low, median, high = (float(v) for v in np.quantile(known, [0.25, 0.5, 0.75], method=how))
        return cls(median, low, high, len(known))


def folders(flow: str, record: Path = RECORD) -> list[Path]:
    """The flow's own folder first."""
    found = [p.parent for p in record.glob("*/results.jsonl") if re.fullmatch(rf"{flow}(-.+)?", p.parent.name)]
    return sorted(found, key=lambda p: (p.name != flow, p.name))


@cache
def budgets(flow: str, record: Path = RECORD) -> dict[int, tuple[Row, ...]]:
    """Ledger → rows; first guesses, which have none, are in all. The first is that of the flow's table."""
    found: dict[int, dict[tuple[Any, ...], tuple[Row, Path]]] = {}
    guesses: dict[tuple[Any, ...], Row] = {}
    for folder in folders(flow, record):
        for row in read_rows(folder / "results.jsonl"):
            key = (row.method, row.seed, row.metric, row.step)
            if not row.ledger:
                guesses[key] = row
                continue
            at = next((b for b in found if abs(row.ledger / b - 1) <= SLACK), row.ledger)
            other = found.setdefault(at, {}).setdefault(key, (row, folder))[1]
            if other != folder:
                raise ValueError(f"{row.method}, seed {row.seed}, is both in {other} and in {folder}")
    return {b: (*guesses.values(), *(row for row, _ in rows.values())) for b, rows in found.items()}


def table_rows(flow: str, record: Path = RECORD) -> tuple[Row, ...]:
    """The rows of the flow's table; none where there is no record of it."""
    return next(iter(budgets(flow, record).values()), ())


def values(rows: Iterable[Row], label: str, metric: str, step: int | None = None) -> dict[int, float]:
    """Value of each seed, +∞ where it was lost; without a step, the last that there is."""
    found = select(rows, method=label, metric=metric)
    last = max((r.step for r in found if r.step is not None), default=None) if step is None else step
    return {r.seed: math.inf if r.value is None else r.value for r in found if r.step == last}


def quartiles(rows: Iterable[Row], label: str, metric: str, step: int | None = None) -> Quartiles | None:
    return Quartiles.of(values(rows, label, metric, step).values())


def errors(flow: str) -> dict[str, tuple[str, int]]:
    """What "one step" and "ten steps" are on a flow: metric and step, in the units of the paper."""
    return {"one step": (f"one_step_{error_of(flow)}", 1), "ten steps": (error_of(flow), 10)}


def kind(label: str) -> str:
    """One of KINDS: a schedule that others find and a network that learned it count as fixed."""
    base = label.split("-")[0]
    if label in GUESSES:
        return "first guess"
    if base == ADAPTIVE:
        return "ours"
    if base in ("direct", "unet"):
        return "direct"
    return "fixed schedule" if any(label == s or label.startswith(f"{s}-") for s in (*SCHEDULES, *PANEL)) else "peer"


def tuned(label: str) -> bool:
    return bool({*label.split("-")} & {*FINETUNES})


def labels(rows: Sequence[Row], *kinds: str, calls: int | None = None) -> list[str]:
    """Methods of these kinds, in their order, with at most so many calls."""
    known = {r.method: r.nfe for r in rows}
    return [m for m, nfe in known.items() if kind(m) in (kinds or KINDS) and (calls is None or nfe <= calls)]


def best(
    rows: Sequence[Row], among: Iterable[str], metric: str, step: int | None = None
) -> tuple[str, Quartiles] | None:
    """The method of least median, and that; None where none has the metric."""
    found = [(m, q) for m in among if (q := quartiles(rows, m, metric, step)) is not None]
    return min(found, key=lambda pair: pair[1].median) if found else None


def speeds(flow: str, record: Path = RECORD) -> dict[str, float]:
    """Milliseconds of a step of one trajectory, for each method; the median over folders where several tell."""
    told: dict[str, list[float]] = {}
    for folder in folders(flow, record):
        if (path := folder / "speed.json").exists():
            for label, ms in json.loads(path.read_text())["milliseconds"].items():
                told.setdefault(label, []).append(ms)
    return {label: float(np.median(found)) for label, found in told.items()}


def members(flow: str, record: Path = RECORD) -> str:
    """Of the ensembles that were scored, of every folder of the flow: "2", or "2 to 8"."""
    found = {
        c.evaluate.members or c.rollout.members
        for c in (read_config(f / "config.yaml") for f in folders(flow, record))
    }
    return " to ".join(map(str, sorted({min(found), max(found)})))


def panel(flow: str, record: Path = RECORD) -> list[dict[str, Any]]:
    """Rows of `schedule_panel.py`; none where there is no file."""
    path = record / f"panel-{flow}.jsonl"
    return read_lines(path, dict[str, Any]) if path.exists() else []


def retrained(flow: str, record: Path = RECORD) -> tuple[Row, ...]:
    """Rows of networks that were trained on the panel's ladders."""
    path = record / f"panel-{flow}" / "results.jsonl"
    return tuple(read_rows(path)) if path.exists() else ()


def apebench(record: Path = RECORD) -> dict[str, list[float]]:
    """Scores of every method and optimiser on APEBench's scenario, one per seed; first persistence."""
    path, found = record / "apebench" / "scores.json", {}
    for row in json.loads(path.read_text()) if path.exists() else []:
        found.setdefault(row["name"].rpartition("-")[0] or row["name"], []).append(row["score"])
    return found


def parameters(flow: str, label: str, record: Path = RECORD) -> int | None:
    """Of a kept emulator of this method; None where none is kept."""
    from safetensors import safe_open

    for folder in folders(flow, record):
        for path in sorted(folder.glob(f"0[34]-*/{label}/seed-*/emulator/model.safetensors")):
            with safe_open(path, "np") as file:
                return sum(math.prod(file.get_slice(k).get_shape()) for k in file.keys() if k.startswith("net."))  # noqa: SIM118
    return None
