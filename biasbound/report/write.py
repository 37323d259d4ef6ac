"""The whole report of a run: tables, figures and the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from biasbound._io import write_text
from biasbound.report.figures import known_figures, save_figures
from biasbound.report.page import write_page
from biasbound.report.study import Study, read_study
from biasbound.report.tables import table1


def write_report(run: Path, out: Path, *, figures: Sequence[str] | None = None, page: bool = True) -> list[Path]:
    """Write table.md, table.tex, figures/ and index.html of a run into `out`; returns their paths.

    `figures` names those to draw, () none; without it all that the run has data for are drawn.
    """
    known_figures(figures or ())  # before anything is written
    study = read_study(run)
    out.mkdir(parents=True, exist_ok=True)
    made = write_tables(study, out)
    if figures is None or figures:
        made += save_figures(study, out / "figures", figures)
    if page:
        made.append(write_page(study, out / "index.html"))
    return made


def write_tables(study: Study, out: Path) -> list[Path]:
    """Table 1 of the run's rows."""
    if not study.rows:
        return []
    table, paths = table1(study.rows), [out / "table.md", out / "table.tex"]
    write_text(paths[0], table.markdown())
    write_text(paths[1], table.latex())
    return paths
