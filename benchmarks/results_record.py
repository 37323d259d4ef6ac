"""The tables of the record: methods of a flow with all their scores, KS beside the paper's own figures, APEBench.

`results_tables.py` writes them into the pages; python benchmarks/results_record.py [FOLDER] prints them, for a record in
another place than results/record.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from results_rows import (
    FLOWS,
    KINDS,
    RECORD,
    Quartiles,
    apebench,
    best,
    budgets,
    errors,
    kind,
    labels,
    members,
    parameters,
    quartiles,
    speeds,
    table_rows,
)

from biasbound.metrics.rows import Row, select
from biasbound.metrics.spectra import BANDS
from biasbound.models.method import method, order_of, title_of
from biasbound.report.layout import Cell, Line, Table

NONE = Cell("–")
ENSEMBLE_STEP = 10  # at which members are compared: later all are far from the truth
# Table 1 of the paper on KS: one step, ten steps, correlation time. 0.96 million parameters and 272 updates an epoch are
# computed from its text; hours are not told.
PAPER = {
    "U-Net TF": (1.60e-7, 1.50e-5, 68.4, 1),
    "Cosine TF": (2.79e-7, 1.43e-5, 74.9, 1),
    "Sigmoid TF": (1.55e-7, 1.57e-5, 78.4, 1),
    "PDE-Refiner": (8.99e-8, 1.19e-5, 88.0, 1),
    "Adaptive": (9.55e-8, 9.74e-6, 85.8, 2),
    "Adaptive + Proxy UT": (8.83e-8, 1.04e-5, 86.1, 2.2),
}
PAPER_SIZE, PAPER_UPDATES = 960_000, 272_000  # of 1,000 epochs; a searched method has two or more times as many
PUBLISHED = {  # APEBench's own networks: median, quartiles, parameters
    "dilated ResNet": (0.156, 0.131, 0.191, 31_777),
    "U-Net": (0.193, 0.168, 0.213, 27_193),
    "ResNet": (0.260, None, None, 32_943),
    "convolutions": (0.269, None, None, 31_757),
    "FNO": (0.539, None, None, 32_527),
}


def scientific(value: float, digits: int = 2) -> str:
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "∞"
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def fixed(value: float, digits: int = 2) -> str:
    if not math.isfinite(value):
        return "∞"
    return f"{value:.{digits}f}" if abs(value) < 1e4 else scientific(value, 1)  # of a rollout that has escaped


def significant(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}g}" if math.isfinite(value) else "∞"


@dataclass(frozen=True)
class Column:
    """How a number is read from the rows of a method, and written; the least of `rank` is best."""

    read: Callable[[Sequence[Row], str], Quartiles | None]
    write: Callable[[float], str] = scientific
    rank: Callable[[float], float] | None = float

    def cell(self, rows: Sequence[Row], label: str) -> tuple[Cell, float]:
        """The median with its quartiles, and by which number it competes."""
        found = self.read(rows, label)
        if found is None:
            return NONE, math.inf
        low, median, high = (self.write(v) for v in (found.low, found.median, found.high))
        return Cell(median, f"({low}, {high})" if low != high else ""), self.rank(
            found.median
        ) if self.rank else math.inf


def _of(metric: str, step: int | None = None) -> Callable[[Sequence[Row], str], Quartiles | None]:
    return lambda rows, label: quartiles(rows, label, metric, step)


def _fact(name: str) -> Callable[[Sequence[Row], str], Quartiles | None]:
    """A cost that all rows of a seed share."""

    def read(rows: Sequence[Row], label: str) -> Quartiles | None:
        found = {row.seed: float(getattr(row, name)) for row in select(rows, method=label)}
        return Quartiles.of(found.values()) if any(found.values()) else None

    return read


def columns(flow: str, milliseconds: dict[str, float]) -> dict[str, Column]:
    """All columns of a flow's table; those without a single value are left out of it."""
    steps = errors(flow)
    two, one = partial(fixed, digits=2), partial(fixed, digits=1)
    whole = "{:,.0f}".format

    def speed(rows: Sequence[Row], label: str) -> Quartiles | None:
        return Quartiles.of([milliseconds[label]]) if label in milliseconds else None

    return {
        "one step": Column(_of(*steps["one step"])),
        "ten steps": Column(_of(*steps["ten steps"])),
        "nRMSE to 100": Column(_of("nrmse_gmean"), significant),
        "correlation time": Column(_of("correlation_time"), one, lambda v: -v),
        **{f"{band} band": Column(_of(f"energy_{band}"), two, lambda v: abs(v - 1)) for band in BANDS},
        "FSD": Column(_of("fsd"), partial(scientific, digits=1)),
        "CRPS": Column(_of("crps", ENSEMBLE_STEP)),
        "spread/skill": Column(_of("spread_skill", ENSEMBLE_STEP), two, lambda v: abs(v - 1)),
        "calls": Column(_fact("nfe"), whole, None),
        "ms a step": Column(speed, significant, None),
        "ledger": Column(_fact("ledger"), whole, None),
        "seconds": Column(_fact("seconds"), whole, None),
        "broken": Column(_of("broken"), whole, None),
        "escaped": Column(_of("escaped"), whole, None),
    }


def table1(flow: str, record: Path = RECORD) -> str:
    """Every method of a flow with an equal ledger, in groups: first guess, direct, fixed schedules, peers, ours."""
    rows = table_rows(flow, record)
    if not rows:
        return ""
    every = columns(flow, speeds(flow, record))
    names = [n for n, c in every.items() if any(c.read(rows, m) is not None for m in labels(rows))]
    ordered = sorted(labels(rows), key=lambda m: (KINDS.index(kind(m)), order_of(m)))
    told = {m: [every[n].cell(rows, m) for n in names] for m in ordered}
    competing = [m for m in ordered if kind(m) != "first guess"]
    least = [min((told[m][i][1] for m in competing), default=math.inf) for i in range(len(names))]
    groups: dict[str, list[Line]] = {}
    for m in ordered:
        cells = [
            replace(cell, best=m in competing and rank == low < math.inf and len(competing) > 1)
            for (cell, rank), low in zip(told[m], least, strict=True)
        ]
        seeds = Cell(str(len({r.seed for r in select(rows, method=m)})))
        group = groups.setdefault(kind(m), [])
        group.append(Line((Cell("" if group else kind(m)), Cell(title_of(m)), *cells, seeds)))
    units = "normalised" if flow == "transonic" else "in the data's units"
    notes = (
        f"Medians (quartiles) over seeds; best in bold. One and ten steps: MSE {units}.",
        "nRMSE to 100: geometric mean over 100 steps. Bands: energy at the last frame over the truth's.",
        f"FSD: of the last frame. CRPS (fair) and spread/skill: at frame {ENSEMBLE_STEP}, of {members(flow, record)} members.",
        "ms a step: CPU time of one trajectory on one core. Ledger: training samples passed through the network.",
    )
    head = ("", "method", *names, "seeds")
    return Table(FLOWS[flow], head, tuple(tuple(g) for g in groups.values()), notes).markdown().strip()


def eight(flow: str = "ks", record: Path = RECORD) -> str:
    """The best method of each of eight families by its ten-step error, for the front page, all with the same network."""
    rows = table_rows(flow, record)
    alike = [m for m in labels(rows) if not method(m).network]
    ten = errors(flow)["ten steps"]
    families: tuple[Callable[[str], bool], ...] = (
        lambda m: kind(m) == "first guess",
        lambda m: kind(m) == "direct",
        lambda m: kind(m) == "fixed schedule" and method(m).prediction != "scaled",
        lambda m: kind(m) == "fixed schedule" and method(m).prediction == "scaled",
        lambda m: m.startswith(("edm", "flow-", "recfm", "meanflow")),
        lambda m: m.startswith(("refiner", "flowrefiner")),
        lambda m: m.startswith("member"),
        lambda m: kind(m) == "ours",
    )
    chosen = [found[0] for of in families if (found := best(rows, filter(of, alike), *ten))]
    if not chosen:
        return ""
    every = columns(flow, speeds(flow, record))
    names = ["one step", "ten steps", "correlation time", "CRPS", "calls", "ledger", "seconds"]
    told = {m: [every[n].cell(rows, m) for n in names] for m in chosen}
    least = [min((told[m][i][1] for m in chosen[1:]), default=math.inf) for i in range(len(names))]
    lines = []
    for m in chosen:
        cells = [
            replace(c, best=m != chosen[0] and r == low < math.inf) for (c, r), low in zip(told[m], least, strict=True)
        ]
        lines.append(Line((Cell(title_of(m)), *cells)))
    seeds = sorted({len({r.seed for r in select(rows, method=m)}) for m in chosen[1:]})
    over = f"Medians (quartiles) over {' to '.join(map(str, sorted({seeds[0], seeds[-1]})))} seeds"
    notes = (f"{over}. Ledger: training samples passed through the network.",)
    return Table(f"{FLOWS[flow]}, 64 points", ("method", *names), (tuple(lines),), notes, False, 1).markdown().strip()


def absolute(record: Path = RECORD) -> str:
    """KS in the data's units beside the paper's Table 1: every ledger of the record, its best direct model and best ladder."""
    head = ("", "method", "parameters", "updates", "one step", "ten steps", "correlation time", "hours")
    paper = [
        Line((
            Cell("" if i else "paper"), Cell(name), Cell(f"{PAPER_SIZE:,}"), Cell(f"{times * PAPER_UPDATES:,.0f}"),
            Cell(scientific(one)), Cell(scientific(ten)), Cell(f"{time:.1f}"), NONE,
        ))
        for i, (name, (one, ten, time, times)) in enumerate(PAPER.items())
    ]  # fmt: skip
    groups = [tuple(paper)]
    for ledger, rows in sorted(budgets("ks", record).items()):
        lines: list[Line] = []
        for of in ("direct", "ours"):
            found = best(rows, labels(rows, of), *errors("ks")["ten steps"])
            if found is not None:
                lines.append(_absolute_line(f"{ledger:,} samples" if not lines else "", found[0], rows, record))
        groups.append(tuple(lines))
    notes = (
        "MSE in the data's units, 64 points, step 0.8; medians (quartiles) over seeds, hours of one CPU core.",
        "The paper's ten-step error is that of the eleventh frame in its code, and its test set is its validation set.",
    )
    return Table("Kuramoto–Sivashinsky in absolute figures", head, tuple(groups), notes).markdown().strip()


def _absolute_line(group: str, label: str, rows: Sequence[Row], record: Path) -> Line:
    every, count = columns("ks", {}), parameters("ks", label, record)
    updates, seconds = (_fact(name)(rows, label) for name in ("updates", "seconds"))
    told = [every[name].cell(rows, label)[0] for name in ("one step", "ten steps", "correlation time")]
    return Line((
        Cell(group), Cell(title_of(label)), Cell(f"{count:,}") if count else NONE,
        Cell(f"{updates.median:,.0f}") if updates else NONE, *told,
        Cell(f"{seconds.median / 3600:.2g}") if seconds else NONE,
    ))  # fmt: skip


def ape(record: Path = RECORD) -> str:
    """APEBench's Kuramoto–Sivashinsky: the geometric mean nRMSE over 100 steps beside the published ones."""
    lines = [
        Line((
            Cell("" if i else "published"), Cell(name),
            Cell(f"{median:.3f}", f"({low:.3f}, {high:.3f})" if low else ""), Cell(f"{size:,}"), NONE,
        ))
        for i, (name, (median, low, high, size)) in enumerate(PUBLISHED.items())
    ]  # fmt: skip
    ours: list[Line] = []
    for name, scores in apebench(record).items():
        q = Quartiles.of(scores)
        assert q is not None  # every name has a score
        low, median, high = map(significant, (q.low, q.median, q.high))
        ends = f"({low}, {high})" if q.seeds > 1 else ""
        cells = Cell(name), Cell(median, ends), Cell("0" if name == "persistence" else "≤ 33,000")
        ours.append(Line((Cell("" if ours else "here"), *cells, Cell(str(q.seeds)))))
    if not ours:
        return ""
    head, notes = ("", "method", "score", "parameters", "seeds"), ("Medians (quartiles) over seeds; lower is better.",)
    return Table("APEBench, Kuramoto–Sivashinsky", head, (tuple(lines), tuple(ours)), notes).markdown().strip()


def tables(record: Path = RECORD) -> dict[str, Callable[[], str]]:
    """Every table of the record by its name."""
    return {
        "record": lambda: "\n\n".join(filter(None, (table1(flow, record) for flow in FLOWS))),
        "eight": partial(eight, record=record),
        "absolute": partial(absolute, record),
        "apebench": partial(ape, record),
    }


if __name__ == "__main__":
    for made in tables(*(Path(folder) for folder in sys.argv[1:])).values():
        print(made(), end="\n\n")
