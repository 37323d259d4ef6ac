"""Figures of the results themselves; all of them also make sense over several runs."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from biasbound.metrics.rows import Row, over_seeds, select
from biasbound.report.errors import error_name, one_step
from biasbound.report.study import Series, Study
from biasbound.report.style import Absent, curve, finish, grid_of, look, name_ends


def _methods(study: Study, dataset: str) -> Iterator[tuple[int, str, list[Row]]]:
    """(place, label, rows) of each method on a dataset; its place sets its look everywhere."""
    for place, label in enumerate(study.labels):
        if rows := select(study.rows, dataset=dataset, method=label):
            yield place, label, rows


def _panels(every: Iterable[str], what: str, height: float = 4.0) -> tuple[Figure, list[tuple[Axes, str, str]]]:
    """One panel per dataset: (axes, dataset, title)."""
    datasets = list(dict.fromkeys(every))
    if not datasets:
        raise Absent(f"this run has no rows of {what}: they come from the stage 06-evaluate")
    figure, panels = grid_of(len(datasets), height=height, columns=1, share=False)
    titles = datasets if len(datasets) > 1 else [""]
    return figure, list(zip(panels, datasets, titles, strict=True))


def calls(study: Study) -> Figure:
    """1-step MSE, mean over seeds, against the network calls that one predicted frame costs."""
    every = [row.dataset for row in study.rows if row.metric.startswith(("one_step_mse", "mse"))]
    figure, panels = _panels(every, "the metric mse")
    for axes, dataset, title in panels:
        for place, label, rows in _methods(study, dataset):
            found = one_step(rows)
            summary = over_seeds(found)
            if summary is not None and summary.mean is not None and found[0].nfe > 0:  # no 0 on a log axis
                spread = summary.spread if summary.seeds > 1 else None
                axes.errorbar([found[0].nfe], [summary.mean], spread, label=label, **look(place))
        y = f"1-step {error_name([dataset])}"
        finish(axes, x="network calls per frame", y=y, title=title, log="xy", legend=False)
        if axes.containers:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
    return figure


def correlation(study: Study) -> Figure:
    """High-correlation time of each method: mean over seeds, from the worst to the best tenth."""
    every = [row.dataset for row in select(study.rows, metric="correlation_time")]
    count = max((len(list(_methods(study, d))) for d in {*every}), default=0)
    figure, panels = _panels(every, "the metric correlation_time", 0.8 + 0.28 * count)
    for axes, dataset, title in panels:
        shown: list[str] = []
        for place, label, rows in _methods(study, dataset):
            mean, low, high = (
                over_seeds(select(rows, metric=f"correlation_time{end}")) for end in ("", "_worst", "_best")
            )
            if mean is None or mean.mean is None:
                continue
            ends = [mean.mean if e is None or e.mean is None else e.mean for e in (low, high)]
            bar = [[max(0.0, mean.mean - ends[0])], [max(0.0, ends[1] - mean.mean)]]
            axes.errorbar([mean.mean], [len(shown)], xerr=bar, capsize=3, **look(place))
            shown.append(label)
        finish(axes, x="high-correlation time", y="", title=title, legend=False)
        axes.set_yticks(range(len(shown)), shown)
        axes.invert_yaxis()
    return figure


def _over_time(study: Study, found: Series, what: str, y: Callable[[str], str]) -> Figure:
    """Mean over seeds at each step of the rollouts, one line per method."""
    figure, panels = _panels((unit[0] for unit in found), what)
    for axes, dataset, title in panels:
        for label in dict.fromkeys(unit[1] for unit in found if unit[0] == dataset):
            own = [steps for unit, steps in found.items() if unit[:2] == (dataset, label)]
            seeds = [{s.step: s.value for s in steps} for steps in own]
            common = sorted(set.intersection(*(set(s) for s in seeds)))
            means = [float(np.mean([s[k] for s in seeds])) for k in common]
            curve(axes, common, means, label, study.labels.index(label))
        finish(axes, x="predicted frame", y=y(dataset), title=title, log="y", legend=False)
        name_ends(axes)
    return figure


def errors(study: Study) -> Figure:
    """MSE of each predicted frame, in the units of the table."""
    return _over_time(study, study.error_series(), "the metric mse", lambda d: error_name([d]))


def fsd(study: Study) -> Figure:
    """Fréchet spectral distance of each predicted frame."""
    return _over_time(study, study.series("fsd"), "the metric fsd", lambda _: "Fréchet spectral distance")


FIGURES = (calls, errors, correlation, fsd)
