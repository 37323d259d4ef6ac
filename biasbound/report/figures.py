"""Every figure by its name, and the one function that saves them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from biasbound._io import replacing
from biasbound.report import figures_flow, figures_search
from biasbound.report.study import Study
from biasbound.report.style import Absent

__all__ = ["FIGURES", "save_figure", "save_figures"]

FIGURES: dict[str, Callable[[Study], Figure]] = {**figures_search.FIGURES, **figures_flow.FIGURES}
KINDS: dict[str, dict[str, Any]] = {"png": {"dpi": 140}, "pdf": {"metadata": {"CreationDate": None}}}


def save_figures(study: Study, folder: Path, only: Sequence[str] | None = None) -> list[Path]:
    """Save figures as PNG and PDF; without `only` all those that the study has data for.

    A figure that was asked for by name and cannot be drawn is a ValueError.
    """
    unknown = [name for name in only or () if name not in FIGURES]
    if unknown:
        raise ValueError(f"there is no figure {unknown[0]!r}; there are {', '.join(FIGURES)}")
    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    for name in FIGURES if only is None else only:
        try:
            figure = FIGURES[name](study)
        except Absent:
            if only is not None:
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
