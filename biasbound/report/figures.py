"""Every figure by its name, and the one function that saves them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from biasbound._io import replacing
from biasbound.report import figures_flow, figures_rows, figures_search
from biasbound.report.study import Study
from biasbound.report.style import Absent

__all__ = ["FIGURES", "OVER_RUNS", "known_figures", "save_figure", "save_figures"]

FIGURES: dict[str, Callable[[Study], Figure]] = {
    **figures_search.FIGURES,
    **figures_rows.FIGURES,
    **figures_flow.FIGURES,
}
OVER_RUNS = tuple(figures_rows.FIGURES)  # those that make sense for several runs at once
KINDS: dict[str, dict[str, Any]] = {"png": {"dpi": 140}, "pdf": {"metadata": {"CreationDate": None}}}


def known_figures(names: Iterable[str]) -> None:
    """Refuse a name that is no figure's."""
    for name in names:
        if name not in FIGURES:
            raise ValueError(f"there is no figure {name!r}; choose one of {', '.join(FIGURES)}")


def save_figures(
    study: Study, folder: Path, names: Sequence[str] | None = None, *, required: bool = True
) -> list[Path]:
    """Save figures as PNG and PDF; without `names` all those that the study has data for.

    A named figure that cannot be drawn is a ValueError, or left out if it is not `required`.
    """
    if required:
        known_figures(names or ())
    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    for name, draw in FIGURES.items():
        if names is not None and name not in names:
            continue
        try:
            figure = draw(study)
        except Absent:
            if names is not None and required:
                raise
            continue
        saved += save_figure(figure, folder / name)
    return saved


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write stem.png and stem.pdf."""
    figure.draw_without_rendering()  # the layout is found once, for both files
    figure.set_layout_engine("none")
    saved = []
    for kind, options in KINDS.items():
        path = stem.with_name(f"{stem.name}.{kind}")
        with replacing(path) as temporary:
            figure.savefig(temporary, format=kind, **options)
        saved.append(path)
    return saved
