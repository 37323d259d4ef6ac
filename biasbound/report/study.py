"""A run folder as one value: what was measured, ready to be shown.

Every stage is optional: a folder that holds some of them gives a study of what is there. Arrays stay on disk until a
picture asks for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from biasbound.core.schedule import Schedule
from biasbound.data.formats import load
from biasbound.data.trajectories import Trajectories
from biasbound.metrics import energy_spectrum
from biasbound.metrics.rows import Row, read_rows
from biasbound.report.parts import Landscape, Model, Rollout, Rows, Search
from biasbound.report.reading import checked, json_lines, json_value, number
from biasbound.study.stages.material import open_split

__all__ = ["Landscape", "Model", "Rollout", "Search", "Study", "read_study", "told_apart"]


@dataclass(frozen=True)
class Study:
    """Everything of a run that a report shows."""

    folder: Path
    dataset: str
    title: str
    run: Mapping[str, Any] = field(default_factory=dict)
    config: str = ""
    rows: tuple[Row, ...] = ()
    searches: tuple[Search, ...] = ()
    models: tuple[Model, ...] = ()
    test: Trajectories | None = None
    provenance: Rows = ()  # the stages' stage.json, in order

    def name(self, of: Search | Model) -> str:
        """The label, with the dataset and the seed where there are several."""
        group: Sequence[Search | Model] = self.searches if isinstance(of, Search) else self.models
        return told_apart((of.dataset, of.label, of.seed), {(o.dataset, o.label, o.seed) for o in group})

    @property
    def labels(self) -> list[str]:
        """Every method, in the order of the results: its place sets its colour in all figures."""
        named = [row.method for row in self.rows], [m.label for m in self.models]
        return list(dict.fromkeys(named[0] + named[1]))

    def first_seeds(self) -> tuple[Model, ...]:
        """One model a dataset and label, of its lowest seed: what a figure with one line a method shows."""
        lowest = {(m.dataset, m.label): m for m in sorted(self.models, key=lambda m: -m.seed)}
        return tuple(sorted(lowest.values(), key=lambda m: self.labels.index(m.label)))

    def truth(self, trajectories: int, frames: int, first: int = 0) -> Float[np.ndarray, "S K C *N"]:
        """Frames 1 … K of test trajectories, beside which predictions are laid."""
        if self.test is None:
            raise ValueError(f"{self.folder} has no test data, so there is no truth to show")
        if len(self.test) < first + trajectories or self.test.layout.frames < frames + 1:
            raise ValueError(
                f"{self.test.name} holds {len(self.test)} trajectories of "
                f"{self.test.layout.frames} frames, fewer than its rollouts were made on"
            )
        return self.test.read(first, first + trajectories, slice(1, frames + 1))

    def energy(self, fields: Float[np.ndarray, "B C *N"]) -> Float[np.ndarray, " K"]:
        """E(k) up to Nyquist, mean over fields, k in waves along the longest side of the domain."""
        if self.test is None:
            raise ValueError(f"{self.folder} has no test data, so its grid is not known")
        spacing = [float(c[1] - c[0]) if len(c) > 1 else 1.0 for c in self.test.coordinates]
        found = energy_spectrum(fields, len(spacing), spacing).mean(0).numpy()
        return np.asarray(found[: min(fields.shape[2:]) // 2 + 1])

    def series(self, metric: str) -> dict[tuple[str, str, int], list[tuple[int, float, float | None, float | None]]]:
        """(dataset, method, seed) → (step, value, low, high) of a metric that has steps, in their order."""
        found: dict[tuple[str, str, int], list[tuple[int, float, float | None, float | None]]] = {}
        for row in self.rows:
            if row.metric == metric and row.step is not None and row.value is not None:
                point = (row.step, row.value, row.low, row.high)
                found.setdefault(row.unit, []).append(point)
        return {key: sorted(points, key=lambda p: p[0]) for key, points in found.items()}


def told_apart(one: tuple[str, str, int], group: Iterable[tuple[str, str, int]]) -> str:
    """The label of a (dataset, label, seed), with what else tells it from the others of a group."""
    datasets, _, seeds = (set(column) for column in zip(one, *group, strict=True))
    dataset, label, seed = one
    parts = [label, dataset if len(datasets) > 1 else "", f"seed {seed}" if len(seeds) > 1 else ""]
    return " · ".join(part for part in parts if part)


def read_study(folder: str | Path) -> Study:
    """Read a run folder as `biasbound run` writes it."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a run folder: there is no such folder")
    run = json_value(folder / "run.json")
    if not isinstance(run, dict | None):
        raise ValueError(f"{folder / 'run.json'} must hold a JSON object")
    config = folder / "config.yaml"
    rows = _result_rows(folder)
    dataset = str((run or {}).get("dataset", rows[0].dataset if rows else folder.name))
    study = Study(
        folder=folder,
        dataset=dataset,
        title=str((run or {}).get("title") or dataset),
        run=run or {},
        config=config.read_text(encoding="utf-8", errors="replace") if config.exists() else "",
        rows=rows,
        searches=tuple(_search(*unit) for unit in _units(folder / "02-search")),
        models=_ordered(_models(folder), rows),
        test=_test(folder / "01-data"),
        provenance=tuple(_provenance(folder)),
    )
    if run is None and not (rows or study.searches or study.models or study.test):
        raise ValueError(f"{folder} is not a run folder: it has neither run.json nor any stage")
    return study


def _test(folder: Path) -> Trajectories | None:
    """The test split: where the run's data stage says that it is, or test.h5."""
    if (folder / "splits.json").exists():
        return open_split(folder, "test")
    return load(folder / "test.h5") if (folder / "test.h5").exists() else None


def _units(stage: Path) -> Iterator[tuple[Path, str, int]]:
    """(folder, label, seed) of the units of a stage, by label, then seed."""
    for path in stage.glob("*/seed-*") if stage.is_dir() else ():
        if not path.name.removeprefix("seed-").isdigit():
            raise ValueError(f"{path}: a unit's folder must be named seed-<number>")
    found = sorted(stage.glob("*/seed-*"), key=lambda p: (p.parent.name, int(p.name[5:])))
    for path in found:
        yield path, path.parent.name, int(path.name[5:])


def _result_rows(folder: Path) -> tuple[Row, ...]:
    """results.jsonl, or what the evaluations left while it is not there yet."""
    whole = folder / "results.jsonl"
    paths = [whole] if whole.exists() else sorted(folder.glob("06-evaluate/*/seed-*/rows.jsonl"))
    return tuple(row for path in paths for row in read_rows(path))


def _search(path: Path, label: str, seed: int) -> Search:
    file = path / "exploration.json"
    found = json_value(file) or {}

    def explored() -> Search:
        schedule = path / "schedule.json"
        return Search(
            label,
            seed,
            schedule=Schedule.load(schedule) if schedule.exists() else None,
            landscape=_landscape(path / "landscape.json"),
            levels=tuple(float(s) for s in found.get("levels", ())),
            tau=found.get("tau"),
            solved=tuple(sorted(float(s) for s in found.get("solved", {}))),
            points=tuple({**p, "own": number(p["own"]), "clean": number(p["clean"])} for p in found.get("points", ())),
            log=json_lines(path / "log.jsonl"),
        )

    return checked(file, explored)


def _landscape(path: Path) -> Landscape | None:
    found = json_value(path)

    def made() -> Landscape:
        levels = Schedule(found["levels"]).sigma
        landscape = Landscape(
            tau=float(found["tau"]),
            start=str(found["start"]),
            start_sigma=float(found["start_sigma"]),
            levels=levels,
            clean={float(c["sigma"]): (number(c["mean"]), number(c["stderr"])) for c in found["clean"]},
            biases={
                (float(b["to"]), float(b["from"])): (number(b["mean"]), number(b["stderr"])) for b in found["biases"]
            },
        )
        pairs = {(to, start) for to in levels for start in levels if to < start}
        if missing := pairs - landscape.biases.keys():
            raise ValueError(f"{len(missing)} of {len(pairs)} biases are missing")
        return landscape

    return None if found is None else checked(path, made)


def _models(folder: Path) -> tuple[Model, ...]:
    places: dict[tuple[str, int], dict[str, Path]] = {}
    for stage in ("03-train", "04-finetune", "05-rollout", "06-evaluate"):
        for path, label, seed in _units(folder / stage):
            places.setdefault((label, seed), {})[stage] = path
    return tuple(_model(label, seed, at) for (label, seed), at in places.items())


def _ordered(models: tuple[Model, ...], rows: tuple[Row, ...]) -> tuple[Model, ...]:
    """In the order of the results; those without any behind."""
    order = list(dict.fromkeys(row.method for row in rows))
    place = {label: i for i, label in enumerate(order)}
    return tuple(sorted(models, key=lambda m: (place.get(m.label, len(order)), m.label, m.seed)))


def _model(label: str, seed: int, at: Mapping[str, Path]) -> Model:
    trained = at.get("04-finetune") or at.get("03-train")
    evaluated = at.get("06-evaluate")
    return Model(
        label,
        seed,
        log=json_lines(trained / "log.jsonl") if trained else (),
        chain=_chain(trained / "chain.jsonl") if trained else (),
        bias=_table(evaluated / "bias.json", "sigma") if evaluated else (),
        gradients=_table(evaluated / "gradients.json", "n") if evaluated else (),
        rollout=_rollout(at["05-rollout"]) if "05-rollout" in at else None,
    )


def _chain(path: Path) -> Rows:
    rows = json_lines(path)
    for row in rows:
        checked(path, lambda row=row: (int(row["update"]), [r["sigma"] for r in row["rows"]]))  # type: ignore[misc]
    return rows


def _table(path: Path, key: str) -> Rows:
    """A JSON list of objects, each with `key`."""
    found = json_value(path)
    return () if found is None else checked(path, lambda: tuple({**r, key: r[key]} for r in found))


def _rollout(path: Path) -> Rollout | None:
    file, note = path / "prediction.npy", path / "rollout.json"
    if not file.exists():
        return None
    told = json_value(note)
    try:
        prediction = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} is not a readable array ({error}); roll the emulator out again") from None
    if prediction.ndim < 5 or prediction.dtype.kind != "f" or 0 in prediction.shape:
        raise ValueError(
            f"{file} has shape {prediction.shape} and type {prediction.dtype}; expected float (M, S, K, C, *N)"
        )
    if told is None:
        raise ValueError(f"{note} is missing beside {file.name}; roll the emulator out again")
    return checked(
        note,
        lambda: Rollout(
            prediction, float(told["dt"]), tuple(tuple(int(b) for b in line) for line in told.get("broken", ()))
        ),
    )


def _provenance(folder: Path) -> Iterator[Mapping[str, Any]]:
    paths = [folder / "01-data" / "stage.json", *sorted(folder.glob("0[2-6]-*/*/seed-*/stage.json"))]
    for path in paths:
        found = json_value(path)
        if found is None:
            continue
        if not isinstance(found, dict):
            raise ValueError(f"{path} must hold a JSON object; run the stage that writes it again")
        yield {"stage": path.parts[-2], **found}
