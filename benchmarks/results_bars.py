"""What was to be reached, computed from the rows of the record, and what was missed: python benchmarks/results_bars.py [FOLDER]

A bar whose rows are not there yet is left out. What was tried where one was missed stands in the record's tried.json,
{"BAR, FLOW": text}, with the words of the table's first two columns.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from results_rows import (
    FLOWS,
    RECORD,
    SLACK,
    Quartiles,
    apebench,
    best,
    budgets,
    errors,
    labels,
    panel,
    retrained,
    table_rows,
    tuned,
    values,
)

from biasbound.models.method import GUESSES, method
from biasbound.report.layout import Cell, Line, Table

SEARCHED = {"ks": (0.3, "0.62"), "kolmogorov": (0.65, "0.65"), "transonic": (0.79, "0.79")}  # and the paper's ratios
RAW = {"one step": 8.8e-8, "ten steps": 9.7e-6}
FEW = 4  # calls of the peers that we are compared with
APEBENCH = 0.131
FRONT = 1.05
SAME = 0.9  # of an error that twice the samples must leave of one that has converged
LEAST = 2  # of four scores on which ours must be ahead
OWN = ("greedy", "predicted", "front")  # schedules of the panel that nobody published
GROWN, DIRECT, COSINE = "adaptive-scaled-residual", "direct-residual", "cosine-v-residual"
# (flow, ledger, score, ours, other, most): ratios seed by seed, with the same ledger, network and target.
PAIRS = (
    ("ks", 160_000, "one step", GROWN, DIRECT, 1.2),
    ("ks", 160_000, "ten steps", GROWN, DIRECT, 0.95),
    ("ks", 480_000, "one step", GROWN, DIRECT, 1.0),
    ("ks", 480_000, "ten steps", GROWN, DIRECT, 0.8),
    ("ks", 160_000, "one step", GROWN, COSINE, 0.25),
    ("kolmogorov", 48_000, "one step", GROWN, COSINE, 0.65),
    ("kolmogorov", 48_000, "ten steps", f"{GROWN}-proxy", COSINE, 0.8),
    ("kolmogorov", 48_000, "ten steps", f"{GROWN}-proxy", GROWN, 0.5),
)


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
    """A searched ladder over the best fixed or published schedule with the same network, target and prediction, one step."""
    for flow, (most, paper) in SEARCHED.items():
        rows, one = table_rows(flow, record), errors(flow)["one step"]
        ours, theirs = ([m for m in labels(rows, k) if not tuned(m)] for k in ("ours", "fixed schedule"))
        for way in dict.fromkeys(map(_way, ours)):
            own, other = (best(rows, (m for m in group if _way(m) == way), *one) for group in (ours, theirs))
            if own and other:
                ratio = own[1].median / other[1].median
                what = f"searched over fixed schedule, {', '.join(filter(None, way))}, one step"
                of = f"{own[0]} over {other[0]}"
                yield Bar(what, flow, f"{ratio:.2f}", f"≤ {most} (paper {paper})", ratio <= most, of)


def few(record: Path) -> Iterator[Bar]:
    """The same over published schedules of the panel, each with as few levels as a ladder, that networks were trained on,
    with samples drawn alike over levels or most of them at the lowest, as a ladder that grows has them."""
    for flow, (most, paper) in SEARCHED.items():
        rows, one = retrained(flow, record), errors(flow)["one step"]
        tried = [m for m in labels(rows, "fixed schedule") if m.endswith(("-v-residual", "-v-residual-focus"))]
        published = [m for m in tried if not m.startswith(OWN)]
        ours, theirs = best(table_rows(flow, record), ["adaptive-v-residual"], *one), best(rows, published, *one)
        if ours and theirs:
            ratio = ours[1].median / theirs[1].median
            what, of = "searched over published schedule with few levels, v, one step", f"{ours[0]} over {theirs[0]}"
            yield Bar(what, flow, f"{ratio:.2f}", f"≤ {most} (paper {paper})", ratio <= most, of)


def _way(label: str) -> tuple[str, str, str]:
    """Prediction, network and target; the usual network and the residual target go without saying."""
    made = method(label)
    return made.prediction, made.network, "" if made.residual else "plain target"


def grown(record: Path) -> Iterator[Bar]:
    """The ladder that grows over the direct model and over a fixed schedule: the mean of the ratios of all seeds."""
    for flow, ledger, score, ours, other, most in PAIRS:
        rows = budgets(flow, record).get(ledger, ())
        own, theirs = (values(rows, label, *errors(flow)[score]) for label in (ours, other))
        ratios = [own[seed] / theirs[seed] for seed in own if seed in theirs]
        if ratios:
            mean = statistics.mean(ratios)
            figure = f"{mean:.2f}" + (f" ({', '.join(f'{r:.2f}' for r in ratios)})" if len(ratios) > 1 else "")
            what = f"{score}, {ledger:,} samples"
            yield Bar(what, flow, figure, f"≤ {most}", mean <= most, f"{ours} over {other}")


def peers(record: Path) -> Iterator[Bar]:
    """Best of ours over the best peer with few calls, on four scores, on networks that peers have; then on how many ours is
    ahead. The same beside direct models."""
    for flow in FLOWS:
        rows = table_rows(flow, record)
        scores = {**errors(flow), "FSD": ("fsd", None), "CRPS": ("crps", 10)}
        for group in ("peer", "direct"):
            name = "peer of at most 4 calls" if group == "peer" else "direct model"
            others = labels(rows, group, calls=FEW)
            networks = {method(m).network for m in others}
            own = [m for m in labels(rows, "ours") if method(m).network in networks]
            ahead, compared = [], 0
            for score, (metric, step) in scores.items():
                ours, theirs = (best(rows, group, metric, step) for group in (own, others))
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
            f"{found[name]:.3g}",
            f"< {APEBENCH}",
            found[name] < APEBENCH,
            of,
        )


def front(record: Path) -> Iterator[Bar]:
    """The ladders that biases give over the exact front at equal calls: the largest ratio."""
    names = {"greedy": "greedy ladder", "greedy-free": "greedy ladder with σ_0 free", "predicted": "predicted ladder"}
    for flow, (rule, name) in product(FLOWS, names.items()):
        rows = [row for row in panel(flow, record) if row["schedule"] == rule and row["ratio"]]
        if rows:
            worst = max(rows, key=lambda row: row["ratio"])
            told = f"at {worst['calls']} of {', '.join(str(row['calls']) for row in rows)} calls"
            yield Bar(
                f"{name} over the front", flow, f"{worst['ratio']:.2f}", f"≤ {FRONT}", worst["ratio"] <= FRONT, told
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


def doubled(record: Path) -> Iterator[Bar]:
    """What twice the samples leave of an error, for the largest budget that has a half: converged is near 1."""
    for flow in FLOWS:
        found = budgets(flow, record)
        whole = max((b for b in found if _half(b, found)), default=None)
        if whole is None:
            continue
        rows, before = found[whole], found[_half(whole, found)]
        for score, what in errors(flow).items():
            trained = (m for m in labels(rows) if m not in GUESSES)
            left = {m: r for m in trained if (r := _left(values(rows, m, *what), values(before, m, *what)))}
            least = min(left.values())
            of = ", ".join(f"{m} {r:.2f}" for m, r in left.items())
            yield Bar(
                f"{score}, {whole:,} over half the samples", flow, f"{least:.2f}", f"≥ {SAME}", least >= SAME, of
            )


def _half(ledger: int, found: Iterable[int]) -> int:
    """The budget of half the samples; 0 where there is none."""
    return next((b for b in found if abs(2 * b / ledger - 1) <= SLACK), 0)


def _left(now: Mapping[int, float], before: Mapping[int, float]) -> float | None:
    """The median ratio over seeds; None where no seed has both."""
    ratios = [now[seed] / before[seed] for seed in now if before.get(seed)]
    return statistics.median(ratios) if ratios else None


BARS: tuple[Callable[[Path], Iterator[Bar]], ...] = (searched, few, grown, peers, raw, ape, front, proxy, doubled)


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
    made = Table("Missed", head, (lines,), (), False, 5).markdown().strip() if lines else "No bar with rows is missed."
    absent = [
        *(f for f in FLOWS if not table_rows(f, record)),
        *(name for name, rows in OTHERS.items() if not rows(record)),
    ]
    return made + (f"\n\nWithout rows so far: {', '.join(absent)}." if absent else "")


OTHERS: dict[str, Callable[[Path], object]] = {
    "peers of 2026": lambda record: [
        m for m in labels(table_rows("ks", record), "peer") if not m.startswith("refiner")
    ],
    "the schedule panel": lambda record: panel("ks", record),
    "APEBench": apebench,
}


def tables(record: Path = RECORD) -> dict[str, Callable[[], str]]:
    return {"bars": partial(bars, record), "misses": partial(misses, record)}


if __name__ == "__main__":
    for made in tables(*(Path(folder) for folder in sys.argv[1:])).values():
        print(made(), end="\n\n")
