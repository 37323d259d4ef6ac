"""Several runs in one table and one page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from biasbound.rows import Row

from .page import write_page
from .study import Study, read_study
from .write import write_tables

__all__ = ["merged", "write_comparison"]


def write_comparison(runs: Sequence[Path], out: Path) -> list[Path]:
    """Write table.md, table.tex and index.html of all these runs."""
    study = merged([read_study(run) for run in runs])
    out.mkdir(parents=True, exist_ok=True)
    return [*write_tables(study, out), write_page(study, out / "index.html")]


def merged(studies: Sequence[Study]) -> Study:
    """All rows, searches and models of several runs as one study.

    A method that several runs have (with the same dataset and seed) is named after its run. Rollouts are shown beside
    the truth of the first run, so only those of runs with the same test data are kept.
    """
    first = studies[0]
    had = Counter((row.dataset, row.method, row.seed) for s in studies for row in _one_each(s))
    clash = {method for (_, method, _), count in had.items() if count > 1}
    rows, searches, models, stages = [], [], [], []
    for study in studies:

        def named(label: str, run: str = study.folder.name) -> str:
            return f"{label} @ {run}" if label in clash else label

        same = _test_key(study) is not None and _test_key(study) == _test_key(first)
        rows += [replace(row, method=named(row.method)) for row in study.rows]
        searches += [replace(s, label=named(s.label)) for s in study.searches]
        models += [
            replace(m, label=named(m.label), rollout=m.rollout if same else None)
            for m in study.models
        ]
        stages += [{**stage, "run": study.folder.name} for stage in study.provenance]
    return replace(
        first,
        title=" · ".join(dict.fromkeys(s.folder.name for s in studies)),
        config="\n".join(f"# {s.folder.name}\n{s.config}" for s in studies),
        rows=tuple(rows),
        searches=tuple(searches),
        models=tuple(models),
        provenance=tuple(stages),
    )


def _one_each(study: Study) -> list[Row]:
    """One row a method, dataset and seed."""
    return list({row.unit: row for row in study.rows}.values())


def _test_key(study: Study) -> str | None:
    """What tells the test data of two runs apart."""
    for stage in study.provenance:
        if stage.get("stage") == "data":
            return str(stage.get("key"))
    return None
