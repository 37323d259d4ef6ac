"""What the page is told: one JSON value, all of it from the study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from biasbound.metrics.rows import over_seeds, select
from biasbound.report.figures_flow import last_spectra
from biasbound.report.page.rollouts import BUDGET, rollouts
from biasbound.report.study import Landscape, Model, Search, Study, told_apart
from biasbound.report.style import Absent
from biasbound.report.tables import table1, title_of

__all__ = ["payload"]

CURVE_POINTS = 300  # of a training curve or a time series at most
BIASES = ("clean", "inference", "own", "two_step", "reb")
STAGE_FACTS = ("stage", "unit", "seed", "updates", "wall_seconds", "cpu_seconds", "commit", "dirty")
MACHINE_FACTS = ("version", "commit", "dirty", "python", "torch", "machine", "cores", "threads")


def payload(study: Study, budget: int = BUDGET) -> dict[str, Any]:
    """JSON values only; what is infinite or unknown is None."""
    told: dict[str, Any] = {
        "dataset": study.dataset,
        "flows": max(1, len({row.dataset for row in study.rows})),
        "title": study.title,
        "version": str(study.run.get("version", "")),
        "methods": study.labels,
        "titles": {label: title_of(label) for label in study.labels},
        "table": _table(study),
        "tradeoff": _tradeoff(study),
        "searches": [_search(study, s) for s in study.searches],
        "models": [_model(study, m) for m in study.models],
        "series": {name: _series(study, name) for name in ("mse", "fsd")},
        "spectra": _spectra(study),
        "rollouts": rollouts(study, budget),
        "config": study.config,
        "stages": [
            {k: str(p[k]) if k == "unit" else p.get(k) for k in STAGE_FACTS if k in p} for p in study.provenance
        ],
        "machine": {
            k: study.provenance[-1][k] for k in MACHINE_FACTS if study.provenance and k in study.provenance[-1]
        },
    }
    cleaned: dict[str, Any] = _json(told)
    return cleaned


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
    return [rows[i] for i in np.unique(np.linspace(0, len(rows) - 1, most).round().astype(int))]


def _table(study: Study) -> dict[str, Any] | None:
    """Table 1, cell by cell."""
    if not study.rows:
        return None
    table = table1(study.rows)
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
    """Error of the first frame, mean over seeds, beside the calls that it costs."""
    found = []
    every = dict.fromkeys((row.dataset, row.method, 0) for row in study.rows)  # seeds as one
    for dataset, label, seed in every:
        rows = select(study.rows, dataset=dataset, method=label, metric="mse", step=1)
        summary = over_seeds(rows)
        if summary is not None and summary.mean is not None:
            name = told_apart((dataset, label, seed), every)
            found.append({"name": name, "method": label, "nfe": rows[0].nfe, "mse": summary.mean})
    return found


def _search(study: Study, search: Search) -> dict[str, Any]:
    rounds: dict[int, list[Mapping[str, Any]]] = {}
    # A stepwise exploration stores its levels as it opened them; a line goes from level to level.
    for point in sorted(search.points, key=lambda p: p["sigma"]):
        rounds.setdefault(int(point["round"]), []).append(point)
    schedule = search.schedule
    return {
        "name": study.name(search),
        "label": search.label,
        "schedule": list(schedule.sigma) if schedule else None,
        "landscape": _landscape(search.landscape) if search.landscape else None,
        "tau_explore": search.tau,
        "solved": len(search.solved),
        "levels": len(search.levels),
        "rounds": [
            {"update": found[0].get("update"), "sigma": [p["sigma"] for p in found], "own": [p["own"] for p in found]}
            for _, found in sorted(rounds.items())
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


def _model(study: Study, model: Model) -> dict[str, Any]:
    def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
        names = ("sigma", *(n for b in BIASES for n in (b, f"{b}_stderr")))
        return {n: [row.get(n) for row in rows] for n in names}

    log = _thinned(model.log)
    keys = sorted({k for row in log for k in row if isinstance(row[k], int | float)} - {"update"})
    return {
        "name": study.name(model),
        "label": model.label,
        "bias": columns(model.bias) if model.bias else None,
        "chain": [
            {"update": t["update"], **{k: v for k, v in columns(t["rows"]).items() if "_" not in k}}
            for t in _thinned(model.chain, 12)
        ],
        "gradients": list(model.gradients),
        "log": {k: [row.get(k) for row in log] for k in ("update", *keys)},
    }


def _series(study: Study, metric: str) -> list[dict[str, Any]]:
    found = study.series(metric)
    return [
        {
            "name": told_apart(unit, found),
            "label": unit[1],
            **{key: [p[i] for p in _thinned(points)] for i, key in enumerate(("step", "value", "low", "high"))},
        }
        for unit, points in found.items()
    ]


def _spectra(study: Study) -> list[dict[str, Any]]:
    if study.test is None:
        return []
    try:
        found = last_spectra(study)
    except Absent:
        return []
    return [{"name": n, "k": list(range(1, len(e))), "energy": e[1:].tolist()} for n, e in found.items()]
