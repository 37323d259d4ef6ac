"""The picture of a diagnosis: where a denoiser is stable, and the ladder that suits it."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from biasbound.core.bias import BiasRow
from biasbound.core.diagnose import Diagnosis
from biasbound.report.style import WIDTH, curve, finish

__all__ = ["diagnosis_figure"]


def diagnosis_figure(found: Diagnosis) -> Figure:
    """Own-prediction bias and clean-input error against σ, and the REB along the chains."""
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    own, clean, chain = figure.subplots(1, 3)
    sigma, levels = list(found.levels), list(found.levels.values())
    curve(own, sigma, [v.own.mean for v in levels], "own bias", 0, [v.own.stderr for v in levels])
    own.axhline(found.tau, color="0.4", linewidth=0.9, linestyle=":")
    own.annotate(f"τ = {found.tau:g}", (sigma[0], found.tau), fontsize=8, va="bottom")
    finish(own, x="noise level σ", y="own-prediction bias", log="xy", legend=False)
    curve(clean, sigma, [v.clean.mean for v in levels], "clean input", 0)
    if found.ladder is not None:
        marked = {s: found.levels[s].clean.mean for s in found.ladder.sigma}
        clean.plot(list(marked), list(marked.values()), "kx", label="recommended ladder")
    finish(clean, x="noise level σ", y="clean-input error", log="xy")
    _chain(chain, "schedule in use", found.along_schedule, 1)
    _chain(chain, "recommended ladder", found.along_ladder, 0)
    chain.axhline(1, color="0.4", linewidth=0.9, linestyle=":")
    finish(chain, x="noise level σ", y="REB along the chain", log="xy")
    return figure


def _chain(axes: Axes, name: str, rows: Sequence[BiasRow], index: int) -> None:
    if rows:
        curve(axes, [r.sigma for r in rows], [r.reb.mean for r in rows], name, index)
