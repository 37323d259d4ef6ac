"""Every figure by its name, and the one function that saves them."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from biasbound._io import replacing
from biasbound.report import figures_flow, figures_growth, figures_rows, figures_search, figures_split
from biasbound.report.study import Study
from biasbound.report.style import Absent

FIGURES: dict[str, Callable[..., Figure]] = {  # of a study, and of the number that OPTIONS names
    draw.__name__: draw
    for module in (figures_search, figures_growth, figures_rows, figures_split, figures_flow)
    for draw in module.FIGURES
}
OPTIONS = {"thresholds": "width"}
# those that make sense for several runs at once
OVER_RUNS = (*(draw.__name__ for draw in figures_rows.FIGURES), "thresholds", "contributions", "front")
KINDS: dict[str, dict[str, Any]] = {"png": {"dpi": 140}, "pdf": {"metadata": {"CreationDate": None}}}


def known_figures(wishes: Iterable[str]) -> dict[str, dict[str, float]]:
    """{name: options} of figures as they are asked for: `ladder`, or `thresholds=0.05` with its width."""
    found: dict[str, dict[str, float]] = {}
    for wish in wishes:
        name, equals, value = wish.partition("=")
        if name not in FIGURES:
            raise ValueError(f"there is no figure {name!r}; choose one of {', '.join(FIGURES)}")
        if equals and name not in OPTIONS:
            raise ValueError(f"the figure {name} has no option; leave out {equals + value!r}")
        found[name] = {OPTIONS[name]: _positive(value, f"{OPTIONS[name]} of the figure {name}")} if equals else {}
    return found


def _positive(value: str, what: str) -> float:
    with suppress(ValueError):
        if math.isfinite(number := float(value)) and number > 0:
            return number
    raise ValueError(f"the {what} must be a positive number, not {value!r}; give for instance 0.05")


def save_figures(
    study: Study, folder: Path, wishes: Sequence[str] | None = None, *, required: bool = True
) -> list[Path]:
    """Save figures as PNG and PDF; without `wishes` all those that the study has data for.

    A figure that is asked for and cannot be drawn is a ValueError, or left out if it is not `required`.
    """
    names = FIGURES if wishes is None else wishes
    wanted = known_figures(name for name in names if required or name in FIGURES)
    folder.mkdir(parents=True, exist_ok=True)
    saved = []
    for name, draw in FIGURES.items():
        if name not in wanted:
            continue
        try:
            figure = draw(study, **wanted[name])
        except Absent:
            if wishes is not None and required:
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
