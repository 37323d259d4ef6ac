"""The whole report of a run, or of several as one: tables, figures and the page."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from biasbound._io import write_text
from biasbound.report.figures import OVER_RUNS, known_figures, save_figures
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


def write_comparison(runs: Sequence[Path], out: Path) -> list[Path]:
    """Write table.md, table.tex, figures/ and index.html of all these runs; returns their paths.

    Figures are those of `OVER_RUNS` that the runs have data for.
    """
    study = merged([read_study(run) for run in runs])
    out.mkdir(parents=True, exist_ok=True)
    return [
        *write_tables(study, out),
        *save_figures(study, out / "figures", OVER_RUNS, required=False),
        write_page(study, out / "index.html"),
    ]


def merged(studies: Sequence[Study]) -> Study:
    """All rows, searches and models of several runs as one study.

    A method that several runs have (with the same dataset and seed) is named after its run.
    Rollouts are shown beside the truth of the first run, so only those of runs with the same test
    data are kept.
    """
    first, runs = studies[0], _run_names([s.folder for s in studies])
    had = Counter(unit for s in studies for unit in {row.unit for row in s.rows})
    clash = {(dataset, label) for (dataset, label, _), n in had.items() if n > 1}
    named = [_renamed(s, run, clash) for s, run in zip(studies, runs, strict=True)]
    shown = [s.folder == first.folder or _same_test(s, first) for s in named]
    return replace(
        first,
        dataset=" · ".join(dict.fromkeys(s.dataset for s in studies)),
        title=" · ".join(runs),
        config="\n".join(f"# {run}\n{s.config}" for run, s in zip(runs, studies, strict=True)),
        rows=tuple(row for s in named for row in s.rows),
        searches=tuple(search for s in named for search in s.searches),
        models=tuple(
            m if show else replace(m, rollout=None) for s, show in zip(named, shown, strict=True) for m in s.models
        ),
        stages=tuple(stage for s in named for stage in s.stages),
    )


def _renamed(study: Study, run: str, clash: set[tuple[str, str]]) -> Study:
    """The same study, its parts named after the dataset and, where labels clash, the run."""

    def name(dataset: str, label: str) -> str:
        return f"{label} @ {run}" if (dataset, label) in clash else label

    own = study.dataset
    return replace(
        study,
        rows=tuple(replace(r, method=name(r.dataset, r.method)) for r in study.rows),
        searches=tuple(replace(s, label=name(own, s.label), dataset=own) for s in study.searches),
        models=tuple(replace(m, label=name(own, m.label), dataset=own) for m in study.models),
        stages=tuple(replace(s, unit=f"{run}/{s.unit}") for s in study.stages),
    )


def _same_test(one: Study, other: Study) -> bool:
    """Whether both runs have the same test data, as far as their data stages tell."""
    keys = [[s.key for s in study.stages if s.stage == "data"] for study in (one, other)]
    return keys[0] == keys[1] and None not in keys[0] and bool(keys[0])


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
