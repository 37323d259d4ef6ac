"""Draw the five figures of docs/results.md from results/record: python benchmarks/results_figures.py [NAME ...] [--record DIR]

A figure has a panel for every flow that the record holds; one without any is not drawn.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from results_rows import (
    FLOWS,
    RECORD,
    ROOT,
    best,
    budgets,
    errors,
    kind,
    labels,
    panel,
    quartiles,
    retrained,
    table_rows,
)

from biasbound.core.panel import PANEL
from biasbound.metrics.rows import Row, select
from biasbound.models.method import order_of
from biasbound.report.errors import error_of
from biasbound.report.style import PALETTE, curve, finish, grid_of, look

IMAGES = ROOT / "docs" / "img"
COLOURS = {"first guess": 7, "direct": 6, "fixed schedule": 0, "peer": 2, "ours": 1}
FRONT, SEARCHED = "front", "adaptive-v-residual"
RETRAINED = re.compile(rf"({'|'.join(sorted([*PANEL, FRONT], key=len, reverse=True))})-(\d+)(-|$)")


def units(flow: str) -> str:
    return "MSE (normalised)" if error_of(flow) == "mse_norm" else "MSE"


def _panels(flows: Sequence[str], height: float = 4.2) -> tuple[Figure, list[tuple[Axes, str]]]:
    figure, axes = grid_of(len(flows), height=height, columns=1, share=False)
    return figure, list(zip(axes, flows, strict=True))


def _known(record: Path, has: Callable[[str], object]) -> list[str]:
    return [flow for flow in FLOWS if table_rows(flow, record) and has(flow)]


def calls(record: Path) -> Figure | None:
    """Error over one step against network calls: medians and quartiles over seeds."""
    flows = _known(record, lambda flow: True)
    if not flows:
        return None
    figure, panels = _panels(flows)
    for axes, flow in panels:
        rows = table_rows(flow, record)
        seen: dict[str, int] = {}  # markers count within a kind, which has one colour
        for name, group in _trainings(rows).items():
            of = kind(group[0])
            shown = {**look(seen.setdefault(of, 0)), "color": PALETTE[COLOURS[of]]}
            seen[of] += 1
            _points(axes, rows, group, errors(flow)["one step"], {**shown, "label": name})
        finish(axes, x="network calls a step", y=f"one step, {units(flow)}", title=FLOWS[flow], log="xy", legend=False)
        _at_the_right(axes)
    return figure


def _at_the_right(axes: Axes) -> None:
    """A legend of many methods: two columns at the right of the axes, no longer than they are high."""
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.0, 1.02), ncols=2, fontsize=6.5, frameon=False, columnspacing=1.0,
        handletextpad=0.3, labelspacing=0.35,
    )  # fmt: skip


def _trainings(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Labels by the training and sampler that they share, in the order of a table: they differ in their calls alone."""
    found: dict[str, list[str]] = {}
    for label in sorted((m for m in labels(rows) if kind(m) != "first guess"), key=order_of):
        found.setdefault(re.sub(r"-\d+$", "", label), []).append(label)
    return found


def _points(
    axes: Axes, rows: Sequence[Row], group: Sequence[str], score: tuple[str, int], shown: dict[str, Any]
) -> None:
    """Medians and quartiles of a training against its numbers of calls, joined where there are several."""
    told = [(select(rows, method=m)[0].nfe, q) for m in group if (q := quartiles(rows, m, *score)) is not None]
    told = sorted(((n, q) for n, q in told if np.isfinite(q.median)), key=lambda pair: pair[0])
    if told:
        y = [q.median for _, q in told]
        ends = [[q.median - q.low for _, q in told], [max(0.0, q.high - q.median) for _, q in told]]
        style = {**shown, "linestyle": shown["linestyle"] if len(told) > 1 else "none"}
        axes.errorbar([n for n, _ in told], y, ends, **style)


def curves(record: Path) -> Figure | None:
    """Error against the ledger, for methods that were trained with several."""
    told = {flow: _trained_often(budgets(flow, record)) for flow in FLOWS}
    flows = [flow for flow in FLOWS if told[flow]]
    if not flows:
        return None
    figure, axes = grid_of(2 * len(flows), height=3.4, columns=2, share=False)
    for i, flow in enumerate(flows):
        found = budgets(flow, record)
        for panel_axes, (name, score) in zip(axes[2 * i : 2 * i + 2], errors(flow).items(), strict=True):
            for place, label in enumerate(told[flow]):
                points = [(b, q) for b in sorted(found) if (q := quartiles(found[b], label, *score)) is not None]
                x, y = [b for b, _ in points], [q.median for _, q in points]
                curve(panel_axes, x, y, label, place, markevery=1)
                panel_axes.fill_between(
                    x, [q.low for _, q in points], [q.high for _, q in points], alpha=0.15, color=look(place)["color"]
                )
            finish(
                panel_axes,
                x="ledger (training samples)",
                y=f"{name}, {units(flow)}",
                title=FLOWS[flow],
                log="xy",
                legend=name == "one step",
            )
    return figure


def _trained_often(found: dict[int, tuple[Row, ...]]) -> list[str]:
    """Methods with more than one ledger, in the order of a table."""
    counts: dict[str, int] = {}
    for rows in found.values():
        for label in labels(rows, "direct", "fixed schedule", "peer", "ours"):
            counts[label] = counts.get(label, 0) + 1
    return sorted((m for m, n in counts.items() if n > 1), key=order_of)


def schedules(record: Path) -> Figure | None:
    """Error against calls of schedules by others and ours: on one dense network (left), trained on each (right)."""
    flows = [flow for flow in FLOWS if panel(flow, record)]
    if not flows:
        return None
    figure, axes = grid_of(2 * len(flows), height=4.2, columns=2, share=False)
    for i, flow in enumerate(flows):
        dense, after = axes[2 * i : 2 * i + 2]
        rows = panel(flow, record)
        names = list(dict.fromkeys(row["schedule"] for row in rows))
        for place, name in enumerate(names):
            own = {row["calls"]: row["error"] for row in rows if row["schedule"] == name}
            curve(dense, sorted(own), [own[k] for k in sorted(own)], name, place, markevery=1)
        trained = (*table_rows(flow, record), *retrained(flow, record))
        if not _retrained(after, rows, trained, errors(flow)["one step"]):
            after.set_axis_off()
        finish(dense, x="network calls a step", y="one step, RMSE, one network", title=FLOWS[flow], log="y")
        if after.axison:
            y = f"one step, {units(flow)}, trained on it"
            finish(after, x="network calls a step", y=y, title=FLOWS[flow], log="y")
        for part in (p for p in (dense, after) if p.axison):
            part.xaxis.get_major_locator().set_params(integer=True)
            _below(part, 3)
    return figure


def _below(axes: Axes, columns: int) -> None:
    """A legend where it hides no curve."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=columns, fontsize="small", frameon=False)


def _retrained(axes: Axes, ladders: Sequence[dict[str, Any]], rows: Sequence[Row], score: tuple[str, int]) -> bool:
    """Methods whose label begins with a schedule's name and calls, and the searched ladder; False where there is none.

    Schedules that have the same levels for a number of calls share a training, in which levels are drawn alike. The
    panel's networks have v-prediction, and so has the ladder beside them.
    """
    names = list(dict.fromkeys(row["schedule"] for row in ladders))
    found: dict[str, dict[int, float]] = {}
    for label in labels(rows):
        told, q = RETRAINED.match(label), quartiles(rows, label, *score)
        if told and q and not label.endswith("-focus"):
            found.setdefault(told[1], {})[int(told[2])] = q.median
    if not found:
        return False
    trained = {
        _levels(row): e for row in ladders if (e := found.get(row["schedule"], {}).get(row["calls"])) is not None
    }
    for row in ladders:
        if _levels(row) in trained:
            found.setdefault(row["schedule"], {}).setdefault(row["calls"], trained[_levels(row)])
    ours = best(rows, [SEARCHED], *score)
    if ours is not None:
        found["searched"] = {select(rows, method=ours[0])[0].nfe: ours[1].median}
    for name, own in found.items():
        place = names.index(name) if name in names else len(names)
        curve(axes, sorted(own), [own[k] for k in sorted(own)], name, place, markevery=1)
    return True


def _levels(row: dict[str, Any]) -> tuple[float, ...]:
    return tuple(round(s, 6) for s in row["sigma"])


def split(record: Path) -> Figure | None:
    """Own error and inherited drift over a rollout, and the ratio of own errors: medians over seeds."""
    flows = _known(record, lambda flow: select(table_rows(flow, record), metric="split_own"))
    if not flows:
        return None
    figure, axes = grid_of(2 * len(flows), height=4.2, columns=2, share=False)
    for i, flow in enumerate(flows):
        above, below = axes[2 * i : 2 * i + 2]
        rows = table_rows(flow, record)
        for place, label in enumerate(_telling(rows, flow)):
            for metric, dash in (("split_own", "-"), ("split_drift", (0, (1, 1.3)))):
                x, y = _over_time(rows, label, metric)
                curve(above, x, np.sqrt(y).tolist(), label if dash == "-" else f"_{label}", place, linestyle=dash)
            curve(below, *_over_time(rows, label, "split_ratio"), label, place)
        below.axhline(1.0, color="0.5", linewidth=0.8)
        finish(above, x="predicted frame", y="RMS: own error –, drift ⋯", title=FLOWS[flow], log="y", legend=False)
        _below(above, 2)
        finish(
            below, x="predicted frame", y="own error, own over true state", title=FLOWS[flow], log="y", legend=False
        )
    return figure


def rollouts(record: Path) -> Figure | None:
    """Error and Fréchet spectral distance over the rollout, and the truth's share of the high band."""
    flows = _known(record, lambda flow: select(table_rows(flow, record), metric="fsd"))
    if not flows:
        return None
    figure, axes = grid_of(2 * len(flows), height=3.6, columns=2, share=False)
    for i, flow in enumerate(flows):
        rows = table_rows(flow, record)
        for panel_axes, (metric, name) in zip(
            axes[2 * i : 2 * i + 2], ((error_of(flow), units(flow)), ("fsd", "FSD")), strict=True
        ):
            for place, label in enumerate(_telling(rows, flow)):
                curve(panel_axes, *_over_time(rows, label, metric), label, place)
            finish(panel_axes, x="predicted frame", y=name, title=FLOWS[flow], log="y", legend=metric != "fsd")
    return figure


def _telling(rows: Sequence[Row], flow: str) -> list[str]:
    """The best of each kind by its ten-step error, in short rollouts by that of one; of ours with and without proxy, and
    the one that keeps the spectrum best.
    """
    first, ten = errors(flow).values()
    chosen = ten if any(r.metric == ten[0] and r.step == ten[1] for r in rows) else first
    groups: list[list[str]] = [labels(rows, k) for k in ("direct", "fixed schedule", "peer")]
    ours = labels(rows, "ours")
    groups += [[m for m in ours if not m.endswith("-proxy")], [m for m in ours if m.endswith("-proxy")]]
    found = [one[0] for group in groups if (one := best(rows, group, *chosen))]
    found += [one[0]] if (one := best(rows, ours, "fsd")) else []
    return list(dict.fromkeys(found))


def _over_time(rows: Sequence[Row], label: str, metric: str) -> tuple[list[int], list[float]]:
    """Frames, and medians over seeds there; a lost value ends the line."""
    steps = sorted({r.step for r in select(rows, method=label, metric=metric) if r.step is not None})
    found: list[Any] = [quartiles(rows, label, metric, step) for step in steps]
    return steps, [q.median if np.isfinite(q.median) else float("nan") for q in found]


FIGURES: dict[str, Callable[[Path], Figure | None]] = {
    "calls": calls, "curves": curves, "panel": schedules, "split": split, "rollouts": rollouts,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FIGURES))
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--out", type=Path, default=IMAGES)
    given = parser.parse_args()
    if unknown := set(given.names) - set(FIGURES):
        parser.error(f"there is no figure {unknown.pop()}; there are {', '.join(FIGURES)}")
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.names or FIGURES:
        figure, path = FIGURES[name](given.record), given.out / f"results_{name}.png"
        if figure is None:
            print(f"{name}: the record has nothing to draw")
            continue
        figure.savefig(path, dpi=120)
        print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
