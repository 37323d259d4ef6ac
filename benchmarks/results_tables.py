"""Fill the tables of README.md and docs/results.md from results/mini: python benchmarks/results_tables.py

A table stands between `<!-- table NAME -->` and `<!-- end -->`; nothing else of a page is touched. tests/test_results.py
asks that the pages are as this script would write them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from equal_ledger import table
from task_tables import tasks

from biasbound.core.schedule import Schedule
from biasbound.metrics.rows import Row, over_seeds, read_rows, select
from biasbound.models.method import method, title_of
from biasbound.report.tables import demo_table, table1

ROOT = Path(__file__).resolve().parents[1]
MINI = ROOT / "results" / "mini"
GROWN = ROOT / "results" / "grown"
FITTED = (("one_step_mse", 1), ("mse", 10))
FLOWS = ("ks", "kolmogorov", "transonic")
LOOSE = "kolmogorov, τ = 1.10, three seeds"
PLACES = {**{flow: flow for flow in FLOWS}, LOOSE: "studies/kolmogorov-tau-1.10"}
PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md", ROOT / "docs" / "studies.md")
FIXED = ("linear", "cosine", "sigmoid")
PLAIN = ("adaptive", "adaptive-v", "adaptive-v-focus")
RESIDUAL = ("adaptive-v-residual", "adaptive-x0-residual-focus")
ADAPTIVE = (*PLAIN, *RESIDUAL)
COLUMNS = ("Method", "σ_0", "NFE", "Forced", "Largest REB", "1-step MSE (normalised)", "10-step MSE (normalised)")
BREAK = 10  # a rollout breaks if its last frames are so many times farther from the truth's than the best method's
MARK = re.compile(r"(<!-- table ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rows_of(name: str) -> list[Row]:
    return read_rows(MINI / name / "results.jsonl")


def error(rows: Iterable[Row], label: str, step: int = 1, metric: str = "mse_norm") -> float:
    """Mean over seeds, infinite if one was lost; the one-step error is that over all times."""
    name = f"one_step_{metric}" if step == 1 and metric.startswith("mse") else metric
    found = over_seeds(select(rows, method=label, metric=name, step=step))
    if found is None:
        raise KeyError(f"no {name} of {label} at step {step}")
    return float("inf") if found.mean is None else found.mean


def best(rows: Sequence[Row], labels: Iterable[str], step: int = 1) -> tuple[float, str]:
    known = {row.method for row in rows}
    return min((error(rows, label, step), label) for label in labels if label in known)


def markdown(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    body = [" | ".join(map(str, line)) for line in lines]
    return "\n".join([f"| {' | '.join(head)} |", f"|{' :-- |' * len(head)}", *(f"| {b} |" for b in body)])


def power(value: float) -> str:
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def bars() -> str:
    """What was to be reached, as ratios within one table."""
    lines: list[tuple[str, str, str, str, str]] = []

    def line(what: str, flow: str, figure: float, bar: float, paper: str = "–") -> None:
        reached = "yes" if figure <= bar else "**no**"
        shown = f"{figure:.2f}" if figure >= 0.005 else f"{figure:.1g}"
        lines.append((what, flow, shown, f"≤ {bar:g} ({paper})", reached))

    for flow in FLOWS:
        rows, bar = rows_of(flow), {"ks": 0.6, "kolmogorov": 0.65, "transonic": 0.79}[flow]
        ours, label = best(rows, ADAPTIVE)
        theirs, other = best(rows, FIXED)
        paper = {"ks": "0.62", "kolmogorov": "0.65", "transonic": "0.79"}[flow]
        line(f"1-step MSE, {label} over {other}", flow, ours / theirs, bar, paper)
        calls = max(row.nfe for row in select(rows, method=label))
        line(f"network calls a step of {label}", flow, calls, 8)
    for flow, paper in (("ks", "0.60"), ("kolmogorov", "0.85"), (LOOSE, "0.85")):
        rows = rows_of(PLACES[flow])
        for labels, direct in ((PLAIN, ("unet", "unet-ut1", "unet-ut7")), (RESIDUAL, ("unet-residual",))):
            (ours, label), (theirs, other) = best(rows, labels), best(rows, direct)
            line(f"1-step MSE, {label} over {other}", flow, ours / theirs, 1.0, paper)
    for flow, place in PLACES.items():
        rows = rows_of(place)
        found = [r for r in rows if r.metric == "reb" and r.method in ADAPTIVE]
        far = max(abs((r.value or float("inf")) - 1) for r in found)
        line("largest distance of REB from 1, searched schedules", flow, far, 0.05)
    for flow, place in PLACES.items():
        rows = rows_of(place)
        last = max(r.step or 0 for r in rows if r.metric == "fsd")
        known = {row.method for row in rows}
        nearest = min(error(rows, m, last, "fsd") for m in known)
        for label in (m for m in ADAPTIVE if f"{m}-proxy" in known):
            tuned = f"{label}-proxy"
            after = error(rows, tuned, 10) / error(rows, label, 10)
            bar, paper = (0.5, "0.08") if flow.startswith("kolmogorov") else (1.0, "–")
            line(f"10-step MSE, {tuned} over {label}", flow, after, bar, paper)
            once = error(rows, tuned) / error(rows, label)
            line(f"1-step MSE, {tuned} over {label}", flow, once, 1.05)
            after, before = (error(rows, m, last, "fsd") for m in (tuned, label))
            if before >= BREAK * nearest:
                line(f"FSD of the last frame, {tuned} over {label}", flow, after / before, 0.1)
    halved, full, warm = (rows_of(f"studies/{name}") for name in ("warm-0", "search-2500", "base"))
    for how, rows in (("anew", halved), ("from the search's network", warm)):
        loss = error(rows, "adaptive-v") / error(full, "adaptive-v")
        what = f"1-step MSE, training {how} after a search of half its updates, over anew after one of as many"
        line(what, "ks", loss, 1.0)
    return markdown(("What", "Flow", "Figure", "Bar (paper)", "Reached"), lines)


def _levels(schedule: Schedule) -> str:
    return ", ".join(f"{s:.2g}" if s < 0.95 else f"{s:.4f}" for s in schedule.sigma)


def found() -> str:
    """Every searched schedule of the record."""
    lines = []
    for flow in FLOWS:
        for path in sorted((MINI / flow).glob("02-search/*/seed-*/schedule.json")):
            schedule, label, seed = Schedule.load(path), path.parts[-3], path.parts[-2][5:]
            forced = len(schedule.meta["forced"])
            lines.append((flow, title_of(label), seed, _levels(schedule), len(schedule), forced))
    return markdown(("Flow", "Search", "Seed", "Levels", "NFE", "Forced"), lines)


def ladders() -> str:
    """The searched schedule of every parameterisation and target, with its final error."""
    places = [MINI / "studies" / name for name in ("base", "target-eps", "target-x0")]
    lines = []
    for place in places:
        rows = read_rows(place / "results.jsonl")
        for path in sorted(place.glob("02-search/*/seed-0/schedule.json")):
            schedule, label = Schedule.load(path), path.parts[-3]
            reb = [r.value for r in select(rows, method=label, seed=0, metric="reb")]
            one = error(select(rows, seed=0), label)
            worst = max((v for v in reb if v is not None), key=lambda v: abs(v - 1))
            lines.append((title_of(label), _levels(schedule), len(schedule), power(one), f"{worst:.3f}"))
    return markdown(("Method", "Levels", "NFE", "1-step MSE (normalised)", "REB farthest from 1"), lines)


def studied(prefix: str, head: str, base: str, labels: Sequence[str], place: str = "base") -> Callable[[], str]:
    """One line for every study `prefix-…` and method; `base` is the value that the study `place` has."""

    def table() -> str:
        folder = MINI / "studies"
        places = {p.name.removeprefix(f"{prefix}-"): p for p in folder.glob(f"{prefix}-*")}
        places[base] = folder / place
        lines = [(value, *_line(places[value], label)) for value in sorted(places, key=float) for label in labels]
        return markdown((head, *COLUMNS), lines)

    return table


def _line(place: Path, label: str, seed: int = 0) -> tuple[object, ...]:
    rows = select(read_rows(place / "results.jsonl"), method=label, seed=seed)
    lowest, forced = "–", "–"
    file = place / "02-search" / method(label).explored.label / f"seed-{seed}" / "schedule.json"
    if file.exists():
        schedule = Schedule.load(file)
        lowest, forced = f"{schedule.sigma[0]:.3g}", str(len(schedule.meta["forced"]))
    reb = [r.value or float("inf") for r in select(rows, metric="reb")]
    largest = f"{max(reb):.3f}" if reb else "–"
    errors = power(error(rows, label)), power(error(rows, label, 10))
    return title_of(label), lowest, rows[0].nfe, forced, largest, *errors


def doubled() -> str:
    """What twice the updates do: the record's first seed over the studies, which have half of them."""
    half, whole = rows_of("studies/base"), select(rows_of("ks"), seed=0)
    labels = list(dict.fromkeys(r.method for r in half))
    return markdown(
        ("Method", "1-step MSE, half the updates", "1-step MSE, record (seed 0)", "Ratio"),
        [
            (
                title_of(m), power(error(half, m)), power(error(whole, m)),
                f"{error(whole, m) / error(half, m):.2f}",
            )
            for m in labels
        ],
    )  # fmt: skip


THREE = ("unet", "cosine", "adaptive-v")


def totals() -> str:
    """The U-Net with as many updates as an adaptive row has with its search, beside the best of those; seed 0."""
    ours, theirs = select(rows_of("ks"), seed=0), rows_of("studies/total-7500")
    labels = [(theirs, "unet"), (theirs, "unet-residual"), (ours, "adaptive-v-focus"), (ours, "adaptive-x0-residual-focus")]  # fmt: skip
    lines = []
    for rows, label in labels:
        updates = select(rows, method=label)[0].updates
        time = over_seeds(select(rows, method=label, metric="correlation_time"))
        assert time is not None
        errors = [power(error(rows, label, step, "mse")) for step in (1, 10)]
        lines.append((title_of(label), f"{updates:,}", *errors, f"{time.mean:.1f}"))
    return markdown(("Method", "Updates in all", "1-step MSE", "10-step MSE", "Correlation time"), lines)


def unrolled(flow: str, label: str, studies: Sequence[int], metric: str = "mse") -> str:
    """Fine-tuning over u frames beyond the first: two in the record, others in studies."""
    record = rows_of(flow)
    places = sorted([(2, flow), *((u, f"studies/{flow}-unroll-{u}") for u in studies)])
    last = max(r.step or 0 for r in record if r.metric == "fsd")
    tuned, lines = f"{label}-proxy", [("none", label, 0, record)]
    for u, place in places:
        rows = rows_of(place)
        extra = select(rows, method=tuned)[0].updates - select(record, method=label)[0].updates
        lines.append((str(u), tuned, extra, rows))
    return markdown(
        ("u", "Updates more", "1-step MSE", "10-step MSE", "MSE of the last frame", "FSD of the last frame"),
        [
            (u, f"{extra:,}", *(power(error(rows, m, k, metric)) for k in (1, 10, last)), f"{error(rows, m, last, 'fsd'):.0f}")
            for u, m, extra, rows in lines
        ],
    )  # fmt: skip


def ways() -> str:
    """Three ways to a searched schedule on Kolmogorov flow, beside the U-Net with the same target and seed."""
    cold, loose = (MINI / "studies" / f"kolmogorov-{name}" for name in ("cold", "tau-1.10"))
    three = ("adaptive-v", "adaptive-v-focus", "adaptive-v-residual")
    tried = [
        ("all levels at once, trained anew", "1.04", cold, three[::2], (0,)),
        ("record", "1.04", MINI / "kolmogorov", three, (0,)),
        ("looser bound", "1.10", loose, (three[1], f"{three[1]}-proxy", three[2]), (0, 1, 2)),
    ]
    direct = read_rows(loose / "results.jsonl")  # has the U-Nets of all three seeds
    lines: list[Sequence[object]] = []
    for how, tau, place, labels, seeds in tried:
        rows = read_rows(place / "results.jsonl")
        for label, seed in ((label, seed) for label in labels for seed in seeds):
            plain = "unet-residual" if method(label).residual else "unet"
            own = select(rows, seed=seed)
            ratio = error(own, label) / error(select(direct, seed=seed), plain)
            distance = error(own, label, max(r.step or 0 for r in own if r.metric == "fsd"), "fsd")
            shown = f"{ratio:.2f}", f"{distance:.0f}"
            lines.append((how, tau, seed, *_line(place, label, seed), *shown))
    return markdown(("Way", "τ", "Seed", *COLUMNS, "1-step MSE over the U-Net's", "FSD of the last frame"), lines)  # fmt: skip


def _table1(flow: str) -> str:
    return table1(rows_of(flow)).markdown()


def grown() -> str:
    """Ratios at an equal ledger, from the records of ladders that grew."""
    return "\n\n".join(table(GROWN / name) for name in ("ks-5000", "ks-15000", "kolmogorov"))


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


TABLES: dict[str, Callable[[], str]] = {
    "fits": fits,
    **{flow: partial(_table1, flow) for flow in FLOWS},
    "demo": lambda: demo_table(read_rows(ROOT / "results" / "demo" / "results.jsonl")).markdown(),
    "ks-grown": lambda: demo_table(read_rows(GROWN / "ks-5000" / "results.jsonl")).markdown(),
    "grown": grown,
    "tasks": lambda: tasks(ROOT / "results" / "tasks"),
    "bars": bars,
    "totals": totals,
    "found": found,
    "ladders": ladders,
    "doubled": doubled,
    "tau": studied("tau", "τ", "1.04", ("adaptive",)),
    "lr": studied("lr", "Learning rate", "0.004", THREE),
    "width": studied("width", "Width", "32", THREE),
    "ahead": studied("ahead", "Levels ahead", "4", ("adaptive-v",)),
    "warm": studied("warm", "Warm start", "1", ("adaptive-v",)),
    "unrolled": partial(unrolled, "kolmogorov", "adaptive-v-residual", (1, 3)),
    "unrolled-transonic": partial(unrolled, "transonic", "adaptive-v", (4,), "mse_norm"),
    "ways": ways,
    "search": studied("search", "Updates of the search", "1250", ("adaptive-v",), "warm-0"),
}


def filled(text: str) -> str:
    """The page with its tables written anew."""
    return MARK.sub(lambda m: f"{m[1]}{TABLES[m[2]]().strip()}\n{m[3]}", text)


def main() -> None:
    for page in PAGES:
        text = page.read_text()
        page.write_text(filled(text))
        print(f"{page.relative_to(ROOT)}: {len(MARK.findall(text))} tables")


if __name__ == "__main__":
    main()
