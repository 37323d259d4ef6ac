"""The pictures of a diagnosis: where a denoiser is stable, the ladder that suits it, and the paper's appendices."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from biasbound.core.appendix import Appendices
from biasbound.core.bias import BiasRow
from biasbound.core.diagnose import Diagnosis
from biasbound.core.noise import alpha_bar
from biasbound.report.style import WIDTH, curve, finish, look


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


def appendix_figure(found: Appendices) -> Figure:
    """Appendix B: the bound beside the REB. Appendix C: predicted and measured own bias, and E_θ(k) beside the noise."""
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    bound, own, spectra = figure.subplots(1, 3)
    sigma = [row.sigma for row in found.bound]
    if sigma:
        curve(bound, sigma, [row.bound.mean for row in found.bound], "bound", 0)
        curve(bound, sigma, [row.aligned.mean for row in found.bound], "if aligned", 1)
        curve(bound, sigma, [row.reb.mean for row in found.bound], "measured", 2)
    else:
        bound.text(0.5, 0.5, "only for renoise chains", ha="center", transform=bound.transAxes, fontsize=8)
    finish(bound, x="noise level σ", y="REB and its bound (B)", log="xy")
    _predicted(own, "", found, 0)
    if found.against:
        _predicted(own, ", other", found, 2)
    finish(own, x="noise level σ", y="own bias, squared norms (C)", log="xy")
    _spectra(spectra, found)
    return figure


def _predicted(axes: Axes, name: str, found: Appendices, index: int) -> None:
    levels = found.predicted if index == 0 else found.against
    curve(axes, list(levels), [v.predicted.mean for v in levels.values()], f"predicted{name}", index)
    curve(axes, list(levels), [v.measured.mean for v in levels.values()], f"measured{name}", index + 1)


def _spectra(axes: Axes, found: Appendices) -> None:
    """E_θ(k) at the lowest, the middle and the highest level, each with the power σ²/ᾱ of its noise."""
    every = list(found.predicted)
    for index, sigma in enumerate(dict.fromkeys((every[0], every[len(every) // 2], every[-1]))):
        power = found.predicted[sigma].spectrum[1:]  # the mean has no place on a logarithmic axis
        curve(axes, range(1, len(power) + 1), power, f"σ = {sigma:.3g}", index)
        axes.axhline(sigma**2 / alpha_bar(sigma), color=look(index)["color"], linewidth=0.8, linestyle=":")
    finish(axes, x="wavenumber", y="error per mode, and σ²/ᾱ", log="xy")
