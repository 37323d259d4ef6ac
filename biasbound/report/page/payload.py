"""The data of the page: one JSON value, all of it from the study."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from biasbound.metrics.rows import over_seeds, select
from biasbound.models.method import title_of
from biasbound.report.answer import answers
from biasbound.report.errors import error_name, one_step
from biasbound.report.figures_flow import last_spectra
from biasbound.report.figures_growth import joined_at, level_errors
from biasbound.report.figures_split import split_of
from biasbound.report.page.rollouts import BUDGET, rollouts
from biasbound.report.parts import Level, Model, Stage
from biasbound.report.pictures import evenly
from biasbound.report.searches import Growth, Landscape, Point, Search
from biasbound.report.study import Series, Study, told_apart
from biasbound.report.style import Absent
from biasbound.report.tables import alone, table1

CURVE_POINTS = 300  # of a training curve or a time series at most
BIASES = ("own", "two_step", "reb")
STATISTICS = ("", "_stderr", "_pooled", "_q95")
STAGE_FACTS = ("stage", "unit", "seed", "updates", "ledger", "wall_seconds", "cpu_seconds")
MACHINE_FACTS = ("version", "commit", "dirty", "python", "torch", "machine", "cores", "threads")


def payload(study: Study, budget: int = BUDGET) -> dict[str, Any]:
    """JSON values only; what is infinite or unknown is None."""
    datasets = list(dict.fromkeys(row.dataset for row in study.rows))
    told: dict[str, Any] = {
        "dataset": study.dataset,
        "flows": max(1, len(datasets)),
        "title": study.title,
        "version": study.run.version,
        "alone": alone(study.rows),
        "methods": study.labels,
        "titles": {label: title_of(label) for label in study.labels},
        "error": error_name(datasets),
        "answers": [asdict(one) for one in answers(study)],
        "table": _table(study),
        "tradeoff": _tradeoff(study),
        "searches": [_search(study, s) for s in study.searches],
        "models": [_model(study, m) for m in study.models],
        "series": {"error": _series(study.error_series())}
        | {name: _series(study.series(name)) for name in ("fsd", "crps", "spread_skill")}
        | {name: _series(split_of(study, name)) for name in ("split_own", "split_drift", "split_ratio")},
        "spectra": _spectra(study),
        "rollouts": rollouts(study, budget),
        "config": study.config,
        "stages": [_facts(stage, STAGE_FACTS) for stage in study.stages],
        "machine": _facts(study.stages[-1], MACHINE_FACTS) if study.stages else {},
    }
    cleaned: dict[str, Any] = _json(told)
    return cleaned


def _facts(stage: Stage, names: Sequence[str]) -> dict[str, Any]:
    """Those that are known."""
    return {name: getattr(stage, name) for name in names if getattr(stage, name) is not None}


def _json(value: Any) -> Any:
    """The same value with every number that JSON cannot hold as None."""
    if isinstance(value, Mapping):
        return {str(k): _json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_json(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def _thinned(rows: Sequence[Any], most: int = CURVE_POINTS) -> list[Any]:
    """Evenly chosen rows with both ends."""
    if len(rows) <= most:
        return list(rows)
    return [rows[i] for i in evenly(len(rows), most)]


def _table(study: Study) -> dict[str, Any] | None:
    """Table 1, cell by cell."""
    if not study.rows:
        return None
    table = table1(study.rows).without_zeros()
    return {
        "columns": table.columns,
        "left": table.left,
        "notes": table.notes,
        "groups": [
            [{"ruled": line.ruled, "cells": [asdict(c) for c in line.cells]} for line in group]
            for group in table.groups
        ],
    }


def _tradeoff(study: Study) -> list[dict[str, Any]]:
    """The table's 1-step MSE, mean over seeds, beside the calls that it costs."""
    found = []
    every = dict.fromkeys((row.dataset, row.method, 0) for row in study.rows)  # seeds as one
    for dataset, label, seed in every:
        rows = one_step(select(study.rows, dataset=dataset, method=label))
        summary = over_seeds(rows)
        if summary is not None and summary.mean is not None and rows[0].nfe > 0:  # no 0 on a log axis
            name = told_apart((dataset, label, seed), every)
            found.append({"name": name, "method": label, "nfe": rows[0].nfe, "mse": summary.mean})
    return found


def _search(study: Study, search: Search) -> dict[str, Any]:
    rounds: dict[int, list[Point]] = {}
    found = search.exploration
    # A stepwise exploration stores levels as it opened them; a line goes from level to level.
    for point in sorted(found.points, key=lambda p: p.sigma):
        rounds.setdefault(point.round, []).append(point)
    schedule = search.schedule
    return {
        "name": study.name(search),
        "label": search.label,
        "schedule": list(schedule.sigma) if schedule else None,
        "landscape": _landscape(search.landscape) if search.landscape else None,
        "growth": _growth(search),
        "front": _front(search),
        "tau_explore": found.tau,
        "solved": len(found.solved),
        "levels": len(found.levels),
        "rounds": [
            {"update": points[0].update, "sigma": [p.sigma for p in points], "own": [p.own for p in points]}
            for _, points in sorted(rounds.items())
        ],
    }


def _landscape(found: Landscape) -> dict[str, Any]:
    """`biases` holds [to, from, mean, standard error] by the levels' numbers."""
    at = {s: i for i, s in enumerate(found.levels)}
    return {
        "tau": found.tau,
        "start": found.start,
        "start_sigma": found.start_sigma,
        "levels": list(found.levels),
        "clean": [list(found.clean[s]) if s in found.clean else None for s in found.levels],
        "biases": [
            [at[to], at[start], *value]
            for (to, start), value in sorted(found.biases.items())
            if to in at and start in at
        ],
    }


def _growth(search: Search) -> dict[str, Any] | None:
    """`rungs` holds [σ, update at which it joined, whether it is in the final ladder]; `cells` every level tried."""
    found = search.growth
    if found is None:
        return None
    used = search.schedule.sigma if search.schedule is not None else ()
    return {
        **{key: getattr(found, key) for key in ("tau", "tau_own", "statistic", "c", "warm", "fixed", "updates")},
        "top_error": found.rounds[0].top_error,
        "rungs": [[sigma, update, sigma in used] for sigma, update in joined_at(found).items()],
        "cells": [_cell(found, number, level) for number in range(len(found.rounds)) for level in found.tried(number)],
        "errors": [
            {
                "sigma": sigma,
                "update": [update for update, _, _ in points],
                "error": [error for _, error, _ in points],
                "low": [error - stderr for _, error, stderr in points],
                "high": [error + stderr for _, error, stderr in points],
            }
            for sigma, points in level_errors(found).items()
        ],
    }


def _cell(found: Growth, number: int, level: Level) -> dict[str, Any]:
    """One level in one round."""
    one, statistics = found.rounds[number], ("mean", "pooled", "q95")
    return {
        "update": one.update,
        **{name: getattr(level, name) for name in ("sigma", "clean", "clean_stderr")},
        **{kind: {name: level.bias(kind, name) for name in statistics} for kind in ("own", "two_step")},
        "feasible": found.feasible(number, level),
        "joined": level.sigma in one.ladder,
    }


def _front(search: Search) -> dict[str, Any] | None:
    """Every point of the front; the study's ladder and the greedy one, whose errors are null where they are not known."""
    if search.front is None:
        return None
    marked = {"chosen": search.chosen, "greedy": search.greedy}
    return {
        "points": [asdict(point) for point in search.front.front],
        "score": search.front.score,
        **{name: None if point is None else asdict(point) for name, point in marked.items()},
    }


def _columns(rows: Sequence[Level], names: Sequence[str]) -> dict[str, list[float]]:
    return {name: [getattr(row, name) for row in rows] for name in names}


def _model(study: Study, model: Model) -> dict[str, Any]:
    log = _thinned(model.log)
    keys = sorted({key for row in log for key in row} - {"update"})
    biases = ("sigma", *(f"{b}{statistic}" for b in BIASES for statistic in STATISTICS))
    return {
        "name": study.name(model),
        "label": model.label,
        "bias": _columns(model.bias, biases) if model.bias else None,
        "chain": [
            {"update": time.update, **_columns(time.rows, ("sigma", "clean", "inference"))}
            for time in _thinned(model.chain, 12)
        ],
        "gradients": [asdict(row) for row in model.gradients],
        "log": {key: [row.get(key) for row in log] for key in ("update", *keys)},
    }


def _series(found: Series) -> list[dict[str, Any]]:
    columns = ("step", "value", "low", "high")
    return [
        {
            "name": told_apart(unit, found),
            "label": unit[1],
            **{key: [getattr(step, key) for step in _thinned(steps)] for key in columns},
        }
        for unit, steps in found.items()
    ]


def _spectra(study: Study) -> list[dict[str, Any]]:
    if study.test is None:
        return []
    try:
        found = last_spectra(study)
    except Absent:
        return []
    return [{"name": n, "k": list(range(1, len(e))), "energy": e[1:].tolist()} for n, e in found.items()]
