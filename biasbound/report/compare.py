"""Several runs in one table and one page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from biasbound.metrics.rows import Row
from biasbound.report.page import write_page
from biasbound.report.study import Study, read_study
from biasbound.report.write import write_tables

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
    first, runs = studies[0], _run_names([s.folder for s in studies])
    had = Counter((row.dataset, row.method, row.seed) for s in studies for row in _one_each(s))
    clash = {(dataset, method) for (dataset, method, _), n in had.items() if n > 1}
    rows, searches, models, stages = [], [], [], []
    for study, run in zip(studies, runs, strict=True):

        def named(label: str, dataset: str = study.dataset, run: str = run) -> str:
            return f"{label} @ {run}" if (dataset, label) in clash else label

        same = _test_key(study) is not None and _test_key(study) == _test_key(first)
        rows += [replace(row, method=named(row.method, row.dataset)) for row in study.rows]
        searches += [replace(s, label=named(s.label), dataset=study.dataset) for s in study.searches]
        models += [
            replace(m, label=named(m.label), dataset=study.dataset, rollout=m.rollout if same else None)
            for m in study.models
        ]
        stages += [{**stage, "run": run} for stage in study.provenance]
    return replace(
        first,
        dataset=" · ".join(dict.fromkeys(s.dataset for s in studies)),
        title=" · ".join(runs),
        config="\n".join(f"# {run}\n{s.config}" for run, s in zip(runs, studies, strict=True)),
        rows=tuple(rows),
        searches=tuple(searches),
        models=tuple(models),
        provenance=tuple(stages),
    )


def _run_names(folders: Sequence[Path]) -> list[str]:
    """The end of each path, as much of it as tells the run from the others."""
    places = [folder.resolve().parts for folder in folders]
    twice = [str(f) for f, place in zip(folders, places, strict=True) if places.count(place) > 1]
    if twice:
        raise ValueError(f"{twice[0]} is given twice: compare a run with others")

    def end(place: tuple[str, ...]) -> str:
        others = [other for other in places if other != place]
        length = next(n for n in count(1) if all(other[-n:] != place[-n:] for other in others))
        return "/".join(place[-length:])

    return [end(place) for place in places]


def _one_each(study: Study) -> list[Row]:
    """One row a method, dataset and seed."""
    return list({row.unit: row for row in study.rows}.values())


def _test_key(study: Study) -> str | None:
    """What tells the test data of two runs apart."""
    for stage in study.provenance:
        if stage.get("stage") == "data":
            return str(stage.get("key"))
    return None
