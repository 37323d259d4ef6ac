"""Where the error of a rollout comes from: inherited drift, own error, and what exposure to one's own states costs."""

import numpy as np
from matplotlib.figure import Figure

from biasbound.report.study import Series, Study, told_apart
from biasbound.report.style import curve, finish, grid_of, needed

PARTS = {"split_own": ("own error", "-"), "split_drift": ("inherited drift", (0, (1, 1.3)))}


def split(study: Study) -> Figure:
    """RMS of the own error (solid) and of the drift (dotted) over a rollout, and the ratio of own errors.

    The ratio is of the own error at the emulator's state to that at the true one.
    """
    shown = {name: split_of(study, name) for name in (*PARTS, "split_ratio")}
    needed(list(shown["split_own"]), "rows of the split of errors", "06-evaluate, with evaluate.split")
    figure, (above, below) = grid_of(2, height=3.2, columns=1, share=False)
    for name, (said, dash) in PARTS.items():
        for unit, steps in shown[name].items():
            label = told_apart(unit, shown[name]) if name == "split_own" else f"_{said}"
            values = np.sqrt([s.value for s in steps]).tolist()
            curve(above, [s.step for s in steps], values, label, study.labels.index(unit[1]), linestyle=dash)
    for unit, steps in shown["split_ratio"].items():
        told = told_apart(unit, shown["split_ratio"])
        curve(below, [s.step for s in steps], [s.value for s in steps], told, study.labels.index(unit[1]))
    below.axhline(1.0, color="0.5", linewidth=0.8)
    finish(above, x="predicted frame", y="RMS: own error –, drift ⋯", log="y")
    finish(below, x="predicted frame", y="own error, own over true state", log="y", legend=False)
    return figure


def split_of(study: Study, metric: str) -> Series:
    """The lowest seed of each method that was trained: a first guess has errors of another size."""
    found = study.series(metric)
    lowest = {(d, m): s for d, m, s in sorted(found, key=lambda unit: -unit[2])}
    trained = {row.unit for row in study.rows if row.nfe > 0}
    return {u: found[u] for u in found if lowest[u[0], u[1]] == u[2] and u in trained}


FIGURES = (split,)
