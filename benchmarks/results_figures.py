"""Draw the figures of docs/results.md from results/mini: python benchmarks/results_figures.py [NAME ...]"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from results_tables import FLOWS, MINI, ROOT, error, rows_of

from biasbound.core.schedule import Schedule
from biasbound.metrics.rows import Row, read_rows, select
from biasbound.report import figures_rows, figures_search
from biasbound.report.study import Study, read_study
from biasbound.report.style import MARKERS, PALETTE, WIDTH, curve, finish, name_ends

STUDIES = MINI / "studies"
FAMILIES = ("unet", "linear", "cosine", "sigmoid", "refiner", "adaptive")
METHODS = [
    "unet", "unet-residual", "unet-ut1", "unet-ut7", "linear", "cosine", "sigmoid", "refiner", "adaptive", "adaptive-v",
    "adaptive-v-residual", "adaptive-v-focus", "adaptive-x0-residual-focus", "adaptive-proxy",
    "adaptive-v-proxy", "adaptive-v-focus-proxy", "adaptive-v-residual-proxy",
]  # fmt: skip
TITLES = {"ks": "Kuramoto–Sivashinsky", "kolmogorov": "Kolmogorov flow", "transonic": "transonic cylinder"}
IMAGES = ROOT / "docs" / "img"
TARGETS = (
    ("base", "adaptive", "ε, plain"),
    ("target-eps", "adaptive-residual", "ε, residual"),
    ("target-x0", "adaptive-x0", "x₀, plain"),
    ("target-x0", "adaptive-x0-residual", "x₀, residual"),
    ("base", "adaptive-v", "v, plain"),
    ("base", "adaptive-v-residual", "v, residual"),
)


def _pair(height: float = 3.6) -> tuple[Figure, Axes, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    left, right = figure.subplots(1, 2)
    return figure, left, right


def _of_seed(study: Study, seed: int = 0) -> Study:
    return replace(
        study,
        searches=tuple(s for s in study.searches if s.seed == seed),
        models=tuple(m for m in study.models if m.seed == seed),
    )


def _marker(label: str) -> dict[str, object]:
    """A colour a family, a shape within it; fine-tuned models are hollow."""
    family = next(i for i, f in enumerate(FAMILIES) if label.startswith(f))
    within = [m for m in METHODS if m.startswith(FAMILIES[family])]
    shape = MARKERS[within.index(label.removesuffix("-proxy"))]
    colour = PALETTE[(6, 0, 0, 0, 7, 1)[family]]
    hollow = label.endswith("-proxy")
    return {
        "marker": MARKERS[family] if family in (1, 2, 3) else shape, "color": colour,
        "markerfacecolor": "none" if hollow else colour, "markersize": 10 if hollow else 7,
        "markeredgewidth": 1.6, "linestyle": "none", "label": label,
    }  # fmt: skip


def calls() -> Figure:
    """One-step error against network calls, every method and seed."""
    figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
    panels = figure.subplots(1, len(FLOWS))
    shown: dict[str, object] = {}
    for axes, flow in zip(panels, FLOWS, strict=True):
        rows = rows_of(flow)
        for label in sorted({row.method for row in rows}, key=METHODS.index):
            own = select(rows, method=label, metric="one_step_mse_norm")
            (drawn,) = axes.plot([r.nfe for r in own], [r.value or np.nan for r in own], **_marker(label))  # type: ignore[arg-type]
            shown.setdefault(label, drawn)
        finish(
            axes,
            x="network calls a step",
            y="one-step MSE (normalised)" if axes is panels[0] else "",
            title=TITLES[flow],
            log="xy",
            legend=False,
        )
    ordered = sorted(shown, key=METHODS.index)
    figure.legend([shown[m] for m in ordered], ordered, loc="outside lower center", ncols=5, fontsize=8, frameon=False)  # type: ignore[call-overload]
    return figure


def updates() -> Figure:
    """Error on validation pairs against updates, all methods of the record."""
    figure = Figure(figsize=(WIDTH, 3.6 * len(FLOWS)), layout="constrained")
    for axes, flow in zip(figure.subplots(len(FLOWS), 1), FLOWS, strict=True):
        study = read_study(MINI / flow)
        for model in study.first_seeds():
            points = [(r["update"], r["valid_mse_norm"]) for r in model.log if r.get("valid_mse_norm")]
            if points and not model.label.endswith("-proxy"):
                look = _marker(model.label) | {"linestyle": "-", "markersize": 5}
                axes.plot(*zip(*points, strict=True), **look)  # type: ignore[arg-type]
        finish(axes, x="updates", y="one-step MSE, validation", title=TITLES[flow], log="y", legend=False)
        name_ends(axes)
    return figure


def thresholds() -> Figure:
    """Stability thresholds of the record's searches on KS."""
    return figures_search.thresholds(_of_seed(read_study(MINI / "ks")))


def gradients() -> Figure:
    return figures_search.gradients(read_study(STUDIES / "base"))


def contributions() -> Figure:
    return figures_search.contributions(_of_seed(read_study(MINI / "ks")))


def targets() -> Figure:
    """Exploration curves and ladders for every parameterisation and target; a bias excess below 1e-4 is drawn there."""
    figure = Figure(figsize=(WIDTH, 5.6), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True, sharey=True).ravel()
    for axes, (place, label, name) in zip(panels, TARGETS, strict=True):
        unit = STUDIES / place / "02-search" / label / "seed-0"
        found = json.loads((unit / "exploration.json").read_text())
        last = max(p["round"] for p in found["points"])
        points = sorted((p["sigma"], p["clean"], p["own"]) for p in found["points"] if p["round"] == last)
        sigma, clean, own = (list(v) for v in zip(*points, strict=True))
        curve(axes, sigma, clean, "E_clean", 0)
        curve(axes, sigma, [max(o - 1, 1e-4) for o in own], "own bias − 1", 1)
        ladder = Schedule.load(unit / "schedule.json").sigma
        axes.plot(
            ladder, np.interp(np.log(ladder), np.log(sigma), clean), linestyle="none", marker="o",
            markersize=10, markerfacecolor="none", markeredgecolor=PALETTE[6], label="ladder",
        )  # fmt: skip
        finish(axes, x="noise level σ", y="", title=f"{name}: {len(ladder)} calls", log="xy", legend=axes is panels[0])
    return figure


def tau() -> Figure:
    """What τ buys: calls, and errors of one and ten steps."""
    places = {float(p.name[4:]): p for p in STUDIES.glob("tau-*")} | {1.04: STUDIES / "base"}
    values = sorted(places)
    rows = [select(read_rows(places[v] / "results.jsonl"), method="adaptive") for v in values]
    figure, left, right = _pair(3.4)
    curve(left, values, [select(r, method="adaptive")[0].nfe for r in rows], "network calls", 0, markevery=1)
    largest = [max(x.value or np.nan for x in select(r, metric="reb")) for r in rows]
    beside = left.twinx()
    curve(beside, values, largest, "largest REB", 1, markevery=1)
    finish(left, x="τ", y="network calls a step", legend=False)
    left.yaxis.set_major_locator(MaxNLocator(integer=True))
    beside.set_ylabel("largest REB along the chain", color=PALETTE[1])
    curve(right, values, [error(r, "adaptive") for r in rows], "1 step", 2, markevery=1)
    curve(right, values, [error(r, "adaptive", 10) for r in rows], "10 steps", 3, markevery=1)
    finish(right, x="τ", y="MSE (normalised)", log="y")
    return figure


def ratios() -> Figure:
    """Adaptive over U-Net and over cosine, against learning rate and width."""
    figure, *panels = _pair(3.4)
    wanted: tuple[tuple[str, str, float], ...] = (
        ("lr", "learning rate", 0.004), ("width", "width of the network", 32.0),
    )  # fmt: skip
    for axes, (prefix, name, base) in zip(panels, wanted, strict=True):
        found: dict[float, list[Row]] = {base: read_rows(STUDIES / "base/results.jsonl")}
        for place in STUDIES.glob(f"{prefix}-*"):
            found[float(place.name.partition("-")[2])] = read_rows(place / "results.jsonl")
        x = sorted(found)
        for i, label in enumerate(("unet", "cosine", "adaptive-v")):
            curve(axes, x, [error(found[v], label) for v in x], label, i, markevery=1)
        finish(axes, x=name, y="one-step MSE (normalised)", log="xy")
    return figure


def _fsd(flow: str) -> Callable[[], Figure]:
    return lambda: figures_rows.fsd(read_study(MINI / flow))


FIGURES: dict[str, Callable[[], Figure]] = {
    "calls": calls,
    "updates": updates,
    "thresholds": thresholds,
    "contributions": contributions,
    "gradients": gradients,
    "targets": targets,
    "tau": tau,
    "ratios": ratios,
    **{f"fsd_{flow}": _fsd(flow) for flow in FLOWS},
}


def draw(names: Iterable[str], folder: Path) -> None:
    for name in names:
        path = folder / f"results_{name}.png"
        FIGURES[name]().savefig(path, dpi=120)
        print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FIGURES))
    given = parser.parse_args()
    if unknown := set(given.names) - set(FIGURES):
        parser.error(f"there is no figure {unknown.pop()}; there are {', '.join(FIGURES)}")
    draw(given.names or FIGURES, IMAGES)


if __name__ == "__main__":
    main()
