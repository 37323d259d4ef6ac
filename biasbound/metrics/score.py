"""From a rollout to rows: every metric, with its interval over trajectories.

`score` takes arrays, `score_file` what someone else's code left on disk. Scores of single trajectories are those of member 0, as
everyone can make one member; CRPS and spread–skill use all.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from biasbound import metrics
from biasbound.data.formats import load
from biasbound.data.trajectories import Trajectories
from biasbound.metrics import Array, Interval, Scale, bootstrap
from biasbound.metrics.rows import Row

__all__ = ["STEPS", "score", "score_file", "score_steps"]

STEPS = (1, 10)  # and the last


@dataclass(frozen=True)
class _Sheet:
    """What all rows of one score share."""

    dataset: str
    method: str
    seed: int
    nfe: int
    updates: int
    seconds: float

    def row(self, metric: str, value: float | Interval, step: int | None = None) -> Row:
        """A row; what is not finite is None."""
        found = value if isinstance(value, Interval) else Interval(value, math.nan, math.nan)
        number, low, high = (
            v if math.isfinite(v) else None for v in (found.mean, found.low, found.high)
        )
        return Row(
            self.dataset, self.method, self.seed, metric, step, number, low, high,
            self.nfe, self.updates, self.seconds,
        )  # fmt: skip


def _asked(steps: Sequence[int] | None, frames: int) -> list[int]:
    """The steps to score, in order; by default 1, 10 and the last, as far as there are so many."""
    chosen = {*(s for s in STEPS if s <= frames), frames} if steps is None else set(steps)
    for step in chosen:
        if not 1 <= step <= frames:
            raise ValueError(f"step {step} is not one of the predicted frames 1 … {frames}")
    return sorted(chosen)


def _errors(
    sheet: _Sheet, one: Array, truth: Array, steps: list[int], spread: Scale | None
) -> Iterator[Row]:
    tables = {
        "mse": metrics.mse_frames(one, truth),
        "vrmse": metrics.vrmse_frames(one, truth),
    }
    if spread is not None:
        tables["mse_norm"] = metrics.mse_frames(one, truth, spread)
    for name, table in tables.items():
        for step in steps:
            yield sheet.row(name, bootstrap(table[:, step - 1]), step)
        yield sheet.row(f"{name}_mean", bootstrap(table.mean(1)))


def _times(sheet: _Sheet, one: Array, truth: Array, dt: float, of: Any) -> Iterator[Row]:
    found = metrics.correlation_time(one, truth, dt, of=of)
    yield sheet.row("correlation_time", Interval(found.mean, found.low, found.high))
    times = torch.tensor(found.per_trajectory, dtype=torch.float64)
    for name, part in (("worst", 0.1), ("best", -0.1)):
        interval = bootstrap(times, partial(metrics.share, part=part))
        yield sheet.row(f"correlation_time_{name}", interval)
    yield sheet.row("never_failed", float(found.never_failed))


def _spectra(sheet: _Sheet, one: Array, truth: Array, steps: list[int]) -> Iterator[Row]:
    if len(truth) < 2:  # no covariance of one trajectory
        return
    for name, variant in (("fsd", "centred"), ("fsd_legacy", "authors")):
        for step in steps:
            yield sheet.row(name, metrics.fsd(one, truth, step, variant), step)


def _ratio(values: Float[Tensor, "B S 2"]) -> Float[Tensor, " B"]:
    spread, error = values.mean(1).unbind(1)
    return (spread / error).sqrt()


def _ensemble(sheet: _Sheet, members: Array, truth: Array, steps: list[int]) -> Iterator[Row]:
    if len(members) < 2:
        return
    crps = metrics.crps_frames(members, truth)
    table = metrics.spread_and_error(members, truth)
    for step in steps:
        yield sheet.row("crps", bootstrap(crps[:, step - 1]), step)
        exact = bool((table[:, step - 1] == 0).all())  # no error and no spread: no ratio
        if not exact:
            yield sheet.row("spread_skill", bootstrap(table[:, step - 1], _ratio), step)


def _breaks(sheet: _Sheet, members: Array, truth: Array) -> Iterator[Row]:
    breaks = [metrics.broken(member) for member in members]
    own = breaks[0]
    yield sheet.row("broken", float((own > 0).sum()))
    if bool((own > 0).any()):
        yield sheet.row("broken_step", float(own[own > 0].min()))
    if len(members) > 1:
        yield sheet.row("broken_members", float(sum(int((b > 0).sum()) for b in breaks)))
    yield sheet.row("escaped", float((metrics.escaped(members[0], truth) > 0).sum()))


def score(
    prediction: Array,
    truth: Array,
    *,
    dt: float,
    dataset: str,
    method: str,
    seed: int = 0,
    spread: Scale | None = None,
    periodic: bool | Sequence[bool] = True,
    spacing: float | Sequence[float] = 1.0,
    correlate: str = "field",
    nfe: int = 0,
    updates: int = 0,
    seconds: float = 0.0,
    steps: Sequence[int] | None = None,
) -> list[Row]:
    """Every metric of `prediction` (M, S, K, C, *N) against `truth` (S, K, C, *N) as rows.

    `mse`, `vrmse`, `mse_norm` (if `spread`, the training data's standard deviation of each channel, is given), `fsd` and `fsd_legacy` at each of
    `steps` (by default 1, 10 and the last), the first three also averaged over frames (`…_mean`); `correlation_time` with `_worst`
    and `_best`, of the field or, with `correlate="vorticity"`, of the vorticity of a velocity; `never_failed`. All these are of member 0. With
    several members also `crps` (fair) and `spread_skill`.

    `low` and `high` are 95 % bootstrap intervals over trajectories. FSD has none: it is too large for few trajectories, and larger
    still for resamples, which repeat some. `broken` is always there: how many trajectories of member 0 became non-finite, with
    `broken_step`, the first step at which one did; `broken_members` counts those of all members; `escaped` counts finite but absurd ones
    too. What a break makes non-finite is None.
    """
    if prediction.ndim != truth.ndim + 1 or tuple(prediction.shape[1:]) != tuple(truth.shape):
        raise ValueError(
            f"prediction {tuple(prediction.shape)} must be (M, *truth), members first, beside a truth {tuple(truth.shape)}"
        )
    if prediction.shape[0] < 1:
        raise ValueError("there is nothing to score: the prediction has no members")
    if correlate not in ("field", "vorticity"):
        raise ValueError(f"correlate is field or vorticity, not {correlate!r}")
    of = None
    if correlate == "vorticity":
        of = partial(metrics.vorticity, periodic=periodic, spacing=spacing)
    sheet = _Sheet(dataset, method, seed, nfe, updates, seconds)
    chosen, one = _asked(steps, truth.shape[1]), prediction[0]
    return [
        *_errors(sheet, one, truth, chosen, spread),
        *_times(sheet, one, truth, dt, of),
        *_spectra(sheet, one, truth, chosen),
        *_ensemble(sheet, prediction, truth, chosen),
        *_breaks(sheet, prediction, truth),
    ]


def score_steps(
    prediction: Array,
    truth: Array,
    *,
    dataset: str,
    method: str,
    seed: int = 0,
    spread: Scale | None = None,
    nfe: int = 0,
    updates: int = 0,
    seconds: float = 0.0,
) -> list[Row]:
    """`one_step_mse` and, if `spread` is given, `one_step_mse_norm` of single steps (S, P, C, *N) from P states a trajectory.

    A rollout has one first step a trajectory; these are the same error over all times of the test data. The interval is over trajectories.
    """
    sheet = _Sheet(dataset, method, seed, nfe, updates, seconds)
    scales = (
        {"one_step_mse": None}
        if spread is None
        else {"one_step_mse": None, "one_step_mse_norm": spread}
    )
    return [
        sheet.row(name, bootstrap(metrics.mse_frames(prediction, truth, scale).mean(1)), 1)
        for name, scale in scales.items()
    ]


def _open(path: Path, rank: int) -> np.ndarray:
    """A foreign prediction, memory-mapped, as (M, S, K, C, *N)."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(
            f"{path}: expected a .npy array of floats, found none ({error})"
        ) from None
    if not isinstance(found, np.ndarray) or found.dtype.kind != "f":
        kind = found.dtype if isinstance(found, np.ndarray) else "an archive"
        raise ValueError(f"{path}: expected a .npy array of floats, found {kind}")
    if found.ndim not in (rank, rank + 1):
        raise ValueError(
            f"{path}: found shape {found.shape}, expected (S, K, C, *N) or (M, S, K, C, *N) with {rank - 3} axes *N like the truth"
        )
    return found if found.ndim == rank + 1 else found[None]


def _check_start(path: Path, found: np.ndarray, actual: Trajectories, initial: bool) -> None:
    """Frames off by one make any emulator look bad, so what `initial` says is compared with the first frame."""
    start = actual.read(0, found.shape[1], slice(0, 1))[:, 0]
    near = 1e-4 * float(np.abs(start).max())
    if initial and not np.allclose(found[0, :, 0], start, rtol=0, atol=near):
        raise ValueError(
            f"{path}: its first frame is not the initial state of {actual.name}; leave initial=True away or align the frames"
        )
    # The same first frame is no proof: a forecast of persistence repeats it, but then for ever.
    first, last = found[0, :, 0], found[0, :, -1]
    if not initial and np.array_equal(first, start) and not np.array_equal(first, last):
        raise ValueError(
            f"{path}: its first frame is the initial state of {actual.name}; say initial=True"
        )


def _matched(path: Path, found: np.ndarray, actual: Trajectories, initial: bool) -> np.ndarray:
    """The predicted frames of `found`, whose shape must fit the truth's first trajectories and frames."""
    s, k, *state = actual.shape
    if list(found.shape[3:]) != state:
        raise ValueError(
            f"{path}: found states {tuple(found.shape[3:])}, but those of {actual.name} are {tuple(state)}; is there a stride?"
        )
    if not 1 <= found.shape[1] <= s or len(found) < 1:
        raise ValueError(
            f"{path}: found {found.shape[1]} trajectories and {len(found)} members, expected 1 … {s} and at least 1"
        )
    most = k if initial else k - 1
    least = 2 if initial else 1
    if not least <= found.shape[2] <= most:
        raise ValueError(
            f"{path}: found {found.shape[2]} frames, expected {least} … {most} {'with' if initial else 'without'} the initial one"
        )
    _check_start(path, found, actual, initial)
    return found[:, :, 1:] if initial else found


def score_file(
    prediction: str | os.PathLike[str],
    truth: str | os.PathLike[str],
    *,
    method: str,
    seed: int = 0,
    dataset: str | None = None,
    train: str | os.PathLike[str] | None = None,
    initial: bool = False,
    time: int = 1,
    space: int = 1,
    correlate: str | None = None,
    nfe: int = 0,
    updates: int = 0,
    seconds: float = 0.0,
    steps: Sequence[int] | None = None,
) -> list[Row]:
    """Score a rollout that any code wrote as a plain .npy array, (S, K, C, *N) or (M, S, K, C, *N), against a trajectory file.

    Prediction s starts from frame 0 of the truth's trajectory s, and its frames are those that follow; `initial=True` says that it holds frame
    0 itself as well, which is then left out. Fewer trajectories and frames than the truth has are fine. `time` and `space` stride the truth.
    `train` is the file whose standard deviations normalise `mse_norm`; without it there is none. `dataset` is the truth's name, and
    `correlate` is vorticity for two channels on a plane and field otherwise, unless said. Predictions are memory-mapped and never unpickled.
    """
    path, actual = Path(prediction), load(Path(truth)).stride(time=time, space=space)
    layout = actual.layout
    found = _matched(path, _open(path, len(actual.shape)), actual, initial)
    spread = (
        None if train is None else load(Path(train)).stride(time=time, space=space).statistics.std
    )
    return score(
        found,
        actual.read(0, found.shape[1], slice(1, found.shape[2] + 1)),
        dt=layout.dt,
        dataset=dataset or layout.name,
        method=method,
        seed=seed,
        spread=spread,
        periodic=layout.periodic,
        spacing=layout.spacing,
        correlate=correlate or layout.correlate,
        nfe=nfe,
        updates=updates,
        seconds=seconds,
        steps=steps,
    )
