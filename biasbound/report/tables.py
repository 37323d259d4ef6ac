"""The paper's Table 1 from rows, and a short one.

Methods are ordered as in the paper, then by the alphabet. What became non-finite is shown as ∞ and
never averaged away.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from biasbound.metrics.rows import Row, over_seeds, select
from biasbound.models.method import GUESSES, order_of, title_of
from biasbound.report.errors import NORMALISED, at_step, one_step
from biasbound.report.layout import Cell, Line, Table

DATASETS = {"kolmogorov": "Kolmo", "transonic": "Tra", "ks": "KS"}  # in the paper's order
SEARCHED = order_of("adaptive")[0]  # the family of the searched schedules
LEDGER_SLACK = 0.01  # the last update of a budget may go a little beyond it
NONE = Cell("–")
LONGEST = "High-correlation time / final MSE"  # one column in the paper


@dataclass(frozen=True)
class Entry:
    """A cell, and by which number it competes in its column: the lowest is best."""

    cell: Cell
    rank: float | None = None


Fill = Callable[[Sequence[Row], int], Entry]  # rows of one method on one dataset, the last step


def _dataset_order(dataset: str) -> tuple[int, str]:
    known = list(DATASETS)
    return known.index(dataset) if dataset in known else len(known), dataset


def power(value: float, digits: int) -> str:
    """9.53e-7, as the paper writes it."""
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _tenths(value: float, digits: int) -> str:
    return f"{value:.{digits}f}"


def _entry(rows: Sequence[Row], write: Callable[[float, int], str] = power, digits: int = 2, better: int = 1) -> Entry:
    """Mean ± spread over seeds; ∞ as soon as one seed has no finite value."""
    found = over_seeds(rows)
    if found is None:
        return Entry(NONE)
    if found.mean is None:
        return Entry(Cell("∞", f"({found.lost} of {found.seeds} seeds)" if found.seeds > 1 else ""))
    rest = f"± {write(found.spread, 1)}" if found.seeds > 1 else ""
    return Entry(Cell(write(found.mean, digits), rest), better * found.mean)


def _time(rows: Sequence[Row]) -> Entry:
    """Mean (worst 10 %, best 10 %); longer is better."""
    entry = _entry(select(rows, metric="correlation_time"), _tenths, 1, better=-1)
    ends = [over_seeds(select(rows, metric=f"correlation_time_{e}")) for e in ("worst", "best")]
    means = [e.mean for e in ends if e is not None and e.mean is not None]
    if entry.rank is None or len(means) < 2:
        return entry
    rest = f"{entry.cell.rest} ({means[0]:.1f}, {means[1]:.1f})".strip()
    return replace(entry, cell=replace(entry.cell, rest=rest))


def _near_one(rows: Sequence[Row]) -> Entry:
    """A ratio that should be 1."""
    entry = _entry(rows, _tenths, 2)
    return entry if entry.rank is None else replace(entry, rank=abs(entry.rank - 1))


def _range(values: set[int]) -> Entry:
    if not values:
        return Entry(NONE)
    low, high = min(values), max(values)
    return Entry(Cell(f"{low:,}" if low == high else f"{low:,}–{high:,}"))


def _seconds(rows: Sequence[Row]) -> Entry:
    """The mean over seeds."""
    of_seed = {row.seed: row.seconds for row in rows}
    mean = sum(of_seed.values()) / len(of_seed)
    return Entry(Cell(f"{mean:,.0f}" if mean >= 10 else f"{mean:.2g}"))


def _broken(rows: Sequence[Row]) -> Entry:
    """Trajectories that became non-finite, over all seeds."""
    counts = [row.value or 0.0 for row in select(rows, metric="broken")]
    if not counts:
        return Entry(NONE)
    hit = sum(c > 0 for c in counts)
    rest = f"({hit} of {len(counts)} seeds)" if hit and len(counts) > 1 else ""
    return Entry(Cell(f"{sum(counts):.0f}", rest))


COLUMNS: dict[str, Fill] = {
    "1-step MSE": lambda rows, last: _entry(one_step(rows)),
    "10-step MSE": lambda rows, last: _entry(at_step(rows, 10)),
    LONGEST: lambda rows, last: (
        _entry(at_step(rows, last)) if rows[0].dataset in NORMALISED else _time(rows)  # as in the paper
    ),
    "Correlation time": lambda rows, last: _time(rows),
    "MSE of the mean": lambda rows, last: _entry(select(rows, metric="ensemble_mse", step=last)),
    "CRPS": lambda rows, last: _entry(select(rows, metric="crps", step=last)),
    "Spread/skill": lambda rows, last: _near_one(select(rows, metric="spread_skill", step=last)),
    "High-band energy": lambda rows, last: _near_one(select(rows, metric="energy_high", step=last)),
    "Last-step FSD": lambda rows, last: _entry(select(rows, metric="fsd", step=last), digits=1),
    "NFE": lambda rows, last: _range({row.nfe for row in rows}),
    "Updates": lambda rows, last: _range({row.updates for row in rows}),
    "Ledger": lambda rows, last: _range({row.ledger for row in rows if row.ledger}),
    "Seconds": lambda rows, last: _seconds(rows),
    "Seeds": lambda rows, last: Entry(Cell(str(len({row.seed for row in rows})))),
    "Broken": lambda rows, last: _broken(rows),
}
AHEAD = ("10-step MSE", LONGEST, "Correlation time")  # of frames that follow one another
ENSEMBLE = ("MSE of the mean", "CRPS", "Spread/skill", "High-band energy")  # where every frame stands alone
PAPER = tuple(name for name in COLUMNS if name != "Correlation time" and name not in ENSEMBLE)
DEMO = ("1-step MSE", "10-step MSE", "Correlation time", "NFE", "Ledger", "Seconds", "Broken")


def _with_best(entries: list[list[Entry]], beside: int) -> list[list[Cell]]:
    """The cells, with the lowest rank of each column marked where several compete; the first `beside` lines do not."""
    cells = [[e.cell for e in line] for line in entries]
    for i in range(len(entries[0])):
        ranks = [line[i].rank for line in entries[beside:]]
        known = [r for r in ranks if r is not None]
        for line, rank in zip(cells[beside:], ranks, strict=True):
            if len(known) > 1 and rank == min(known):
                line[i] = replace(line[i], best=True)
    return cells


def _group(rows: Sequence[Row], columns: Sequence[str], named: bool) -> tuple[Line, ...]:
    """The lines of one dataset."""
    dataset = rows[0].dataset
    last = max((r.step for r in rows if r.metric.startswith("mse") and r.step), default=1)
    labels = sorted({row.method for row in rows}, key=order_of)
    own = [select(rows, method=label) for label in labels]
    entries = [[COLUMNS[name](part, last) for name in columns] for part in own]
    lines: list[Line] = []
    for i, (label, cells) in enumerate(zip(labels, _with_best(entries, len({*labels} & {*GUESSES})), strict=True)):
        first = [Cell(DATASETS.get(dataset, dataset) if i == 0 else "")] if named else []
        ruled = i > 0 and _searched(label) != _searched(labels[i - 1])
        lines.append(Line((*first, Cell(title_of(label)), *cells), ruled))
    return tuple(lines)


def _searched(label: str) -> bool:
    return bool(order_of(label)[0] == SEARCHED)


def _repeated(rows: Sequence[Row]) -> bool:
    """Whether any method has several seeds."""
    units = {(row.dataset, row.method, row.seed) for row in rows}
    return len(units) > len({unit[:2] for unit in units})


def alone(rows: Sequence[Row]) -> bool:
    """Whether these are ensembles of single answers, none of which follows from another."""
    known = {row.metric for row in rows}
    return (
        "crps" in known
        and not known & {"correlation_time"}
        and not any(r.metric == "mse" and r.step != 1 for r in rows)
    )


def unequal(rows: Sequence[Row]) -> dict[str, float]:
    """{dataset: largest ledger over the least}, where they differ by more than LEDGER_SLACK."""
    known: dict[str, list[int]] = {}
    for row in rows:
        if row.ledger:
            known.setdefault(row.dataset, []).append(row.ledger)
    ratio = {d: max(counts) / min(counts) for d, counts in known.items()}
    return {d: ratio[d] for d in sorted(ratio, key=_dataset_order) if ratio[d] > 1 + LEDGER_SLACK}


def _notes(rows: Sequence[Row], lost: bool) -> tuple[str, ...]:
    """What the reader of these rows must know."""
    known = {row.metric for row in rows}
    normalised = {row.dataset for row in rows} & NORMALISED
    units = ", ".join(sorted(DATASETS.get(d, d) for d in normalised))
    gaps = ", ".join(f"{DATASETS.get(d, d)} {ratio:.3g}" for d, ratio in unequal(rows).items())
    notes = {
        "Best of each dataset in bold or starred.": True,
        "± is the standard deviation over seeds.": _repeated(rows),
        "1-step MSE: from states at all times of the test trajectories.": "one_step_mse" in known,
        "High-correlation time: mean (worst 10 %, best 10 %).": "correlation_time" in known,
        f"Errors in normalised units: {units}.": bool(normalised),
        "Ledger: training samples passed through the network.": any(row.ledger for row in rows),
        f"Ledgers differ, so the methods were not trained equally; largest over least: {gaps}.": bool(gaps),
        "CRPS is fair; spread/skill and high-band energy over the truth's should be 1.": alone(rows),
        "∞: a trajectory became non-finite or its error overflowed.": lost,
        "Broken: trajectories that became non-finite.": "broken" in known,
    }
    return tuple(note for note, holds in notes.items() if holds)


def _heading(name: str, datasets: set[str]) -> str:
    """The paper's column of two quantities, by the one that these datasets have."""
    if name != LONGEST or (datasets & NORMALISED and datasets - NORMALISED):
        return name
    return "Final MSE" if datasets & NORMALISED else "High-correlation time"


def _table(rows: Sequence[Row], names: Sequence[str], title: str, named: bool) -> Table:
    if not rows:
        raise ValueError("there are no rows to make a table of; run an evaluation first")
    if alone(rows):
        names = [
            n for name in names if name not in AHEAD for n in ((name, *ENSEMBLE) if name == "1-step MSE" else (name,))
        ]
    empty = {"Seeds": not _repeated(rows), "Ledger": not any(row.ledger for row in rows)}
    columns = [name for name in names if not empty.get(name)]
    datasets = sorted({row.dataset for row in rows}, key=_dataset_order)
    groups = tuple(_group(select(rows, dataset=d), columns, named) for d in datasets)
    columns = [_heading(name, {*datasets}) for name in columns]
    lost = any(cell.value == "∞" for group in groups for line in group for cell in line.cells)
    words = ("Dataset", "Method") if named else ("Method",)
    return Table(title, (*words, *columns), groups, _notes(rows, lost), named, len(words))


def table1(rows: Sequence[Row]) -> Table:
    """Table 1 in the paper's layout, with the cost that it lacks: calls, updates, ledger and seconds.

    Mean ± standard deviation over seeds; `biasbound.report.errors` says which error a dataset is shown with.
    """
    return _table(rows, PAPER, "Accuracy and cost of the methods", named=True)


def demo_table(rows: Sequence[Row]) -> Table:
    """The short one: errors, correlation time, calls per step, ledger and seconds."""
    several = len({row.dataset for row in rows}) > 1
    return _table(rows, DEMO, "Results", named=several)
