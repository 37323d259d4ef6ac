"""A run folder as one value: what was measured, ready to be shown.

Every stage is optional: a folder that holds some of them gives a study of what is there. Arrays
stay on disk until a picture asks for them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from biasbound._io import read_json, read_lines
from biasbound.data.formats import load
from biasbound.data.formats.numpy import open_array
from biasbound.data.trajectories import Trajectories
from biasbound.metrics import energy_spectrum
from biasbound.metrics.arrays import filled
from biasbound.metrics.rows import Row, read_rows
from biasbound.models.gradients import GradientRow
from biasbound.report.errors import error_of
from biasbound.report.parts import CURE, Level, LogRow, Model, Moment, Rollout, RolloutFile, Run, Stage, read
from biasbound.report.searches import Search, read_search
from biasbound.study.stages.material import open_split


class Step(NamedTuple):
    """A metric at one step of the rollouts, with its interval where it has one."""

    step: int
    value: float
    low: float | None
    high: float | None


Series = dict[tuple[str, str, int], list[Step]]  # by (dataset, method, seed), steps in order


@dataclass(frozen=True)
class Study:
    """Everything of a run that a report shows."""

    folder: Path
    dataset: str
    title: str
    run: Run = field(default_factory=Run)
    config: str = ""
    rows: tuple[Row, ...] = ()
    searches: tuple[Search, ...] = ()
    models: tuple[Model, ...] = ()
    test: Trajectories | None = None
    stages: tuple[Stage, ...] = ()  # in order

    def name(self, of: Search | Model) -> str:
        """The label, with the dataset and the seed where there are several."""
        group: Sequence[Search | Model] = self.searches if isinstance(of, Search) else self.models
        return told_apart((of.dataset, of.label, of.seed), {(o.dataset, o.label, o.seed) for o in group})

    @property
    def labels(self) -> list[str]:
        """Every method in the order of the results, which sets its colour in all figures."""
        named = [row.method for row in self.rows], [m.label for m in self.models]
        return list(dict.fromkeys(named[0] + named[1]))

    def first_seeds(self) -> tuple[Model, ...]:
        """One model per dataset and label, that of its lowest seed."""
        lowest = {(m.dataset, m.label): m for m in sorted(self.models, key=lambda m: -m.seed)}
        return tuple(sorted(lowest.values(), key=lambda m: self.labels.index(m.label)))

    def truth(self, trajectories: int, frames: int, first: int = 0) -> Float[np.ndarray, "S K C *N"]:
        """The K frames of test trajectories that predictions are compared with."""
        if self.test is None:
            raise ValueError(f"{self.folder} has no test data, so there is no truth to show")
        rolled = next((m.rollout for m in self.models if m.rollout is not None), None)
        begin = self.every if rolled is None or rolled.first is None else rolled.first
        end = begin + (frames - 1) * self.every + 1
        if len(self.test) < first + trajectories or self.test.layout.frames < end:
            raise ValueError(
                f"{self.test.name} holds {len(self.test)} trajectories of "
                f"{self.test.layout.frames} frames, fewer than its rollouts were made on; "
                "run the data stage again"
            )
        return self.test.read(first, first + trajectories, slice(begin, end, self.every))

    @property
    def every(self) -> int:
        """Frames of the data from one prediction to the next: answers that do not follow one another may be far apart."""
        step = next((m.rollout.dt for m in self.models if m.rollout is not None), None)
        return 1 if step is None or self.test is None else max(1, round(step / self.test.dt))

    def energy(self, fields: Float[np.ndarray, "B C *N"]) -> Float[np.ndarray, " K"]:
        """E(k) up to Nyquist, mean over fields, k in waves along the domain's longest side.

        Masked points hold the mean of the valid ones, an anomaly of 0.
        """
        if self.test is None:
            raise ValueError(f"{self.folder} has no test data, so its grid is not known")
        if (mask := self.test.mask) is not None:
            fields = np.asarray(filled(fields, mask, fields[..., mask].mean((0, 2)).tolist()))
        spacing = [abs(float(c[1] - c[0])) if len(c) > 1 else 1.0 for c in self.test.coordinates]
        found = energy_spectrum(fields, len(spacing), spacing).mean(0).numpy()
        return np.asarray(found[: min(fields.shape[2:]) // 2 + 1])

    def series(self, metric: str) -> Series:
        """A metric against the steps of the rollouts."""
        return self._series(lambda row: row.metric == metric)

    def error_series(self) -> Series:
        """The error of each dataset, as the table shows it, against the steps of the rollouts."""
        return self._series(lambda row: row.metric == error_of(row.dataset))

    def _series(self, wanted: Callable[[Row], bool]) -> Series:
        found: Series = {}
        for row in filter(wanted, self.rows):
            if row.step is not None and row.value is not None:
                step = Step(row.step, row.value, row.low, row.high)
                found.setdefault(row.unit, []).append(step)
        return {unit: sorted(steps, key=lambda s: s.step) for unit, steps in found.items()}


def told_apart(one: tuple[str, str, int], group: Iterable[tuple[str, str, int]]) -> str:
    """The label of a (dataset, label, seed), with what else tells it from others of a group."""
    datasets, _, seeds = (set(column) for column in zip(one, *group, strict=True))
    dataset, label, seed = one
    parts = [label, dataset if len(datasets) > 1 else "", f"seed {seed}" if len(seeds) > 1 else ""]
    return " · ".join(part for part in parts if part)


def read_study(folder: str | Path) -> Study:
    """Read a run folder as `biasbound run` writes it."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a run folder: there is no such folder")
    run = read(folder / "run.json", Run)
    config = folder / "config.yaml"
    results = [*folder.glob("results.jsonl")] or sorted(folder.glob("06-evaluate/*/seed-*/rows.jsonl"))
    rows = tuple(row for path in results for row in read_rows(path))
    # Searches have units of their own, or their ladders grew inside trainings.
    searched = [unit for stage in ("02-search", "03-train") for unit in _units(folder / stage)]
    known = run or Run(rows[0].dataset if rows else folder.name)
    dataset = known.dataset or folder.name
    study = Study(
        folder=folder,
        dataset=dataset,
        title=known.title or dataset,
        run=known,
        config=config.read_text(encoding="utf-8", errors="replace") if config.exists() else "",
        rows=rows,
        searches=tuple(found for unit in searched if (found := read_search(*unit)) is not None),
        models=_models(folder, rows),
        test=_test(folder / "01-data"),
        stages=tuple(_stages(folder)),
    )
    if run is None and not (rows or study.searches or study.models or study.test):
        raise ValueError(f"{folder} is not a run folder: it has neither run.json nor any stage")
    return study


def _lines(path: Path, kind: Any) -> tuple[Any, ...]:
    return tuple(read_lines(path, kind, torn=True)) if path.exists() else ()


def _test(folder: Path) -> Trajectories | None:
    """The test split: where the run's data stage says that it is, or test.h5."""
    if (folder / "splits.json").exists():
        return open_split(folder, "test")
    return load(folder / "test.h5") if (folder / "test.h5").exists() else None


def _units(stage: Path) -> Iterator[tuple[Path, str, int]]:
    """(folder, label, seed) of the units of a stage, by label, then seed."""
    for path in stage.glob("*/seed-*") if stage.is_dir() else ():
        if not path.name.removeprefix("seed-").isdigit():
            raise ValueError(f"{path}: a unit's folder must be named seed-<number>; rename it")
    found = sorted(stage.glob("*/seed-*"), key=lambda p: (p.parent.name, int(p.name[5:])))
    for path in found:
        yield path, path.parent.name, int(path.name[5:])


def _models(folder: Path, rows: tuple[Row, ...]) -> tuple[Model, ...]:
    """In the order of the results; those without any at the end."""
    places: dict[tuple[str, int], dict[str, Path]] = {}
    for stage in ("03-train", "04-finetune", "05-rollout", "06-evaluate"):
        for path, label, seed in _units(folder / stage):
            places.setdefault((label, seed), {})[stage] = path
    order = list(dict.fromkeys(row.method for row in rows))
    rank = {label: i for i, label in enumerate(order)}
    every = sorted(places, key=lambda unit: (rank.get(unit[0], len(order)), *unit))
    return tuple(_model(*unit, places[unit]) for unit in every)


def _model(label: str, seed: int, at: Mapping[str, Path]) -> Model:
    trained = at.get("04-finetune") or at.get("03-train")
    evaluated = at.get("06-evaluate")
    return Model(
        label,
        seed,
        log=_lines(trained / "log.jsonl", LogRow) if trained else (),
        chain=_lines(trained / "chain.jsonl", Moment) if trained else (),
        bias=read(evaluated / "bias.json", tuple[Level, ...], ()) if evaluated else (),
        gradients=read(evaluated / "gradients.json", tuple[GradientRow, ...], ()) if evaluated else (),
        rollout=_rollout(at["05-rollout"]) if "05-rollout" in at else None,
    )


def _rollout(path: Path) -> Rollout | None:
    file = path / "prediction.npy"
    if not file.exists():
        return None
    told: RolloutFile = read_json(path / "rollout.json", RolloutFile, "roll the emulator out again")
    try:
        prediction = open_array(file)
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} is not a readable array ({error}); roll the emulator out again") from None
    if prediction.ndim < 5 or prediction.dtype.kind != "f" or 0 in prediction.shape:
        raise ValueError(
            f"{file} has shape {prediction.shape} and type {prediction.dtype}, not float "
            "(M, S, K, C, *N); roll the emulator out again"
        )
    return Rollout(prediction, told.dt, told.first)


def _stages(folder: Path) -> Iterator[Stage]:
    for path in (folder / "01-data" / "stage.json", *sorted(folder.glob("0[2-6]-*/*/seed-*/stage.json"))):
        if path.exists():
            found: Stage = read_json(path, Stage, CURE)
            yield found if found.stage else replace(found, stage=path.parts[-2])
