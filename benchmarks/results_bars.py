"""What was to be reached, computed from the rows of the record, and what was missed: python benchmarks/results_bars.py [FOLDER]

A bar whose rows are not there yet is left out. What was tried where one was missed stands in the record's tried.json,
{"BAR, FLOW": text}, with the words of the table's first two columns.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from results_rows import FLOWS, RECORD, Quartiles, apebench, best, errors, labels, panel, table_rows, tuned, values

from biasbound.core.denoise import PREDICTIONS
from biasbound.registry import known
from biasbound.report.layout import Cell, Line, Table

SEARCHED = {"ks": (0.3, "0.62"), "kolmogorov": (0.65, "0.65"), "transonic": (0.79, "0.79")}  # and the paper's ratios
RAW = {"one step": 8.8e-8, "ten steps": 9.7e-6}
FEW = 4  # calls of the peers that we are compared with
APEBENCH = 0.131
FRONT = 1.05
LEAST = 2  # of four scores on which ours must be ahead


@dataclass(frozen=True)
class Bar:
    """One figure beside what was to be reached."""

    what: str
    flow: str
    figure: str
    bar: str
    reached: bool
    of: str  # who is compared


def searched(record: Path) -> Iterator[Bar]:
    """A searched ladder over the best fixed or published schedule with the same target and prediction, one step.

    A prediction that no fixed schedule was trained with is compared with all of the same target.
    """
    for flow, (most, paper) in SEARCHED.items():
        rows, one = table_rows(flow, record), errors(flow)["one step"]
        ours, theirs = (
            [m for m in labels(rows, k) if "residual" in m and not tuned(m)] for k in ("ours", "fixed schedule")
        )
        for prediction in dict.fromkeys(map(_prediction, ours)):
            alike = [m for m in theirs if _prediction(m) == prediction]
            own = best(rows, (m for m in ours if _prediction(m) == prediction), *one)
            other = best(rows, alike or theirs, *one)
            if own and other:
                what, ratio = f"searched over fixed schedule, {prediction}, one step", own[1].median / other[1].median
                yield Bar(
                    what, flow, f"{ratio:.2f}", f"≤ {most} (paper {paper})", ratio <= most, f"{own[0]} over {other[0]}"
                )


def _prediction(label: str) -> str:
    return next((p for p in known(PREDICTIONS) if p in label.split("-")), "eps")


def peers(record: Path) -> Iterator[Bar]:
    """Best of ours over the best peer with few calls, on four scores; then on how many ours is ahead."""
    for flow in FLOWS:
        rows = table_rows(flow, record)
        scores = {**errors(flow), "FSD": ("fsd", None), "CRPS": ("crps", 10)}
        for group in (("peer",), ("direct",)):
            name = "peer of at most 4 calls" if group == ("peer",) else "direct model"
            ahead, compared = [], 0
            for score, (metric, step) in scores.items():
                ours = best(rows, labels(rows, "ours"), metric, step)
                theirs = best(rows, labels(rows, *group, calls=FEW), metric, step)
                if ours is None or theirs is None:
                    continue
                compared += 1
                ahead += [score] if ours[1].median < theirs[1].median else []
                yield _beside(f"ours over the best {name}, {score}", flow, ours, theirs)
            if compared == len(scores):
                figure = f"{len(ahead)} of 4" + (f" ({', '.join(ahead)})" if ahead else "")
                yield Bar(f"ahead of the best {name}", flow, figure, f"≥ {LEAST}", len(ahead) >= LEAST, "")


def _beside(what: str, flow: str, ours: tuple[str, Quartiles], theirs: tuple[str, Quartiles]) -> Bar:
    """Not behind by more than quartiles: ours is at most the peer's upper one, or the peer's at least our lower one."""
    (label, own), (other, peer) = ours, theirs
    ratio = own.median / peer.median if peer.median else float("inf")
    holds = own.median <= peer.median or own.low <= peer.high
    return Bar(what, flow, f"{ratio:.2f}", "≤ 1, within quartiles", holds, f"{label} over {other}")


def raw(record: Path) -> Iterator[Bar]:
    """KS in the data's units, below the best figures of the paper."""
    rows = table_rows("ks", record)
    for score, most in RAW.items():
        if (ours := best(rows, labels(rows, "ours"), *errors("ks")[score])) is not None:
            value = ours[1].median
            yield Bar(f"MSE, {score}", "ks", f"{value:.2e}", f"< {most:g}", value < most, ours[0])


def ape(record: Path) -> Iterator[Bar]:
    found = {name: statistics.median(scores) for name, scores in apebench(record).items() if name != "persistence"}
    if found:
        name = min(found, key=lambda n: found[n])
        seeds = len(apebench(record)[name])
        of = f"{name}, {seeds} seed{'s' * (seeds > 1)}"
        yield Bar(
            "APEBench, at most 33,000 parameters",
            "ks",
            f"{found[name]:.3f}",
            f"< {APEBENCH}",
            found[name] < APEBENCH,
            of,
        )


def front(record: Path) -> Iterator[Bar]:
    """The greedy ladder over the exact front at equal calls: the largest ratio."""
    for flow in FLOWS:
        found = {
            row["calls"]: row["ratio"] for row in panel(flow, record) if row["schedule"] == "greedy" and row["ratio"]
        }
        if found:
            worst = max(found, key=lambda k: found[k])
            told = f"at {worst} of {', '.join(map(str, sorted(found)))} calls"
            yield Bar(
                "greedy ladder over the front", flow, f"{found[worst]:.2f}", f"≤ {FRONT}", found[worst] <= FRONT, told
            )


def proxy(record: Path) -> Iterator[Bar]:
    """What Proxy Unrolled Training does to the own error at own states over that at true ones, seed by seed."""
    for flow in FLOWS:
        rows = table_rows(flow, record)
        for label in (m for m in labels(rows, "ours") if m.endswith("-proxy")):
            before = values(rows, label.removesuffix("-proxy"), "split_ratio")
            ratios = [v / before[s] for s, v in values(rows, label, "split_ratio").items() if before.get(s)]
            if ratios:
                change = statistics.median(ratios)
                yield Bar(
                    "exposure bias in time, last frame, with over without proxy",
                    flow,
                    f"{change:.2f}",
                    "< 1",
                    change < 1,
                    label,
                )


BARS: tuple[Callable[[Path], Iterator[Bar]], ...] = (searched, peers, raw, ape, front, proxy)


def every(record: Path = RECORD) -> list[Bar]:
    return [bar for make in BARS for bar in make(record)]


def bars(record: Path = RECORD) -> str:
    lines = tuple(
        Line((Cell(b.what), Cell(b.flow), Cell(b.of), Cell(b.figure), Cell(b.bar), Cell("yes" if b.reached else "no", best=not b.reached)))
        for b in every(record)
    )  # fmt: skip
    head = ("what", "flow", "who", "figure", "bar", "reached")
    return Table("What was to be reached", head, (lines,), (), False, 3).markdown().strip() if lines else ""


def misses(record: Path = RECORD) -> str:
    """The missed bars with what was tried."""
    path = record / "tried.json"
    tried = json.loads(path.read_text()) if path.exists() else {}
    lines = tuple(
        Line((Cell(b.what), Cell(b.flow), Cell(b.figure), Cell(b.bar), Cell(tried.get(f"{b.what}, {b.flow}", "–"))))
        for b in every(record)
        if not b.reached
    )
    head = ("what", "flow", "figure", "bar", "what was tried")
    return Table("Missed", head, (lines,), (), False, 5).markdown().strip() if lines else "Nothing was missed."


def tables(record: Path = RECORD) -> dict[str, Callable[[], str]]:
    return {"bars": partial(bars, record), "misses": partial(misses, record)}


if __name__ == "__main__":
    for made in tables(*(Path(folder) for folder in sys.argv[1:])).values():
        print(made(), end="\n\n")
