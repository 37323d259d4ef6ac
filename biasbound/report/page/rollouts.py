r"""Rollouts in few bytes: 8 bits per value, and as much of everything as a budget allows.

The truth is stored on a linear scale, u = low + (high − low) q/254. The *error* of each prediction
is stored on a square-root scale, e = max·(q/127)|q/127|, with the largest error of its frame as
the maximum, which is as fine near zero as 14 bits. The page adds the two, so an error a thousand
times smaller than the field is still visible and not lost to round-off.
"""

import base64
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Float64, Int8, UInt8

from biasbound.report.parts import Model
from biasbound.report.pictures import quantities
from biasbound.report.study import Study

BUDGET = 1_400_000  # bytes before base64
MISSING_TRUTH, MISSING_ERROR = 255, -128


@dataclass(frozen=True)
class Cut:
    """What is kept: numbers of things, and strides in time and space."""

    models: int
    members: int
    trajectories: int
    quantities: int
    frames: int
    points: tuple[int, ...]
    every: int = 1
    stride: int = 1

    @property
    def size(self) -> int:
        """Bytes: one field of truth and one of error for each model and member."""
        field = int(np.prod([-(-n // self.stride) for n in self.points])) * -(-self.frames // self.every)
        return field * self.quantities * self.trajectories * (1 + self.models * self.members)


def fitted(cut: Cut, budget: int = BUDGET) -> Cut:
    """The most that fits: first fewer members, trajectories and quantities, then coarser ones."""
    cut = replace(
        cut, members=min(cut.members, 3), trajectories=min(cut.trajectories, 4), quantities=min(cut.quantities, 2)
    )
    while cut.size > budget:
        if cut.members > 1:
            cut = replace(cut, members=cut.members - 1)
        elif cut.trajectories > 2:
            cut = replace(cut, trajectories=cut.trajectories - 1)
        elif cut.quantities > 1:
            cut = replace(cut, quantities=1)
        elif max(cut.points) // cut.stride > 64:
            cut = replace(cut, stride=2 * cut.stride)
        elif cut.trajectories > 1:
            cut = replace(cut, trajectories=1)
        elif cut.frames // cut.every > 30:
            cut = replace(cut, every=cut.every + 1)
        elif max(cut.points) // cut.stride > 16:
            cut = replace(cut, stride=2 * cut.stride)
        else:
            cut = replace(cut, models=max(1, cut.models - 1), every=2 * cut.every)
    return cut


def pack_truth(values: Float[np.ndarray, "*N"], low: float, high: float) -> UInt8[np.ndarray, "*N"]:
    """0 … 254 from low to high; 255 where there is no value."""
    scaled = (values.astype(np.float64) - low) / ((high - low) or 1.0) * 254
    known = np.isfinite(scaled)
    packed = np.where(known, scaled, 0).round().clip(0, 254)
    return np.where(known, packed, MISSING_TRUTH).astype(np.uint8)


def pack_error(error: Float[np.ndarray, "K ..."]) -> tuple[Int8[np.ndarray, "K ..."], Float64[np.ndarray, " K"]]:
    """−127 … 127 on a signed square-root scale (−128: no value), and each frame's largest."""
    known = np.isfinite(error)
    sizes = np.abs(np.where(known, error, 0).astype(np.float64)).reshape(len(error), -1)
    largest = sizes.max(1)
    unit = np.where(largest > 0, largest, 1.0).reshape(-1, *[1] * (error.ndim - 1))
    share = np.where(known, error, 0).astype(np.float64) / unit
    packed = (np.sign(share) * np.sqrt(np.abs(share)) * 127).round()
    return np.where(known, packed, MISSING_ERROR).astype(np.int8), largest


def _text(packed: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(packed).tobytes()).decode("ascii")


def rollouts(study: Study, budget: int = BUDGET) -> dict[str, Any] | None:
    """The player's data, or None where the run has no rollouts or no truth.

    Arrays are frames × points; with two space axes the second runs fastest.
    """
    models = [m for m in study.models if m.rollout is not None]
    if not models or study.test is None:
        return None
    shapes = [m.rollout.prediction.shape for m in models if m.rollout is not None]
    frames = min(shape[2] for shape in shapes)
    first = study.truth(1, frames)[0]
    shown = quantities(study.test, first)
    names = list(shown)
    cut = fitted(
        Cut(
            models=len(models),
            members=min(shape[0] for shape in shapes),
            trajectories=min(shape[1] for shape in shapes),
            quantities=len(names),
            frames=frames,
            points=shown[names[0]].shape[1:],
        ),
        budget,
    )
    truth = [_shown(study, study.truth(1, frames, s)[0], cut) for s in range(cut.trajectories)]
    names = names[: cut.quantities]
    dt = models[0].rollout.dt if models[0].rollout else study.test.dt
    return {
        "quantities": [_truth(name, [fields[name] for fields in truth]) for name in names],
        "shape": list(truth[0][names[0]].shape),
        "full": [frames, *cut.points],
        "dt": dt * cut.every,
        "first": dt,
        "domain": [list(axis) for axis in study.test.layout.domain[: len(cut.points)]],
        "models": [_model(study, m, truth, names, cut) for m in models[: cut.models]],
    }


def _shown(study: Study, fields: Float[np.ndarray, "K C *N"], cut: Cut) -> dict[str, Float[np.ndarray, "k ..."]]:
    assert study.test is not None
    space = slice(None, None, cut.stride)
    return {
        name: values[(slice(None, None, cut.every), *[space] * (values.ndim - 1))]
        for name, values in quantities(study.test, fields).items()
    }


def _truth(name: str, fields: list[np.ndarray]) -> dict[str, Any]:
    known = np.concatenate([f[np.isfinite(f)] for f in fields])
    low, high = float(known.min()), float(known.max())
    shown = [float(v) for v in np.percentile(known, [0.5, 99.5])]
    if shown[0] < 0 < shown[1]:  # signed: the map is centred on zero
        shown = [-max(-shown[0], shown[1]), max(-shown[0], shown[1])]
    return {
        "name": name,
        "low": low,
        "high": high,
        "limits": shown,
        "spread": float(known.std()),
        "data": [_text(pack_truth(f, low, high)) for f in fields],
    }


def _model(
    study: Study, model: Model, truth: list[dict[str, np.ndarray]], names: list[str], cut: Cut
) -> dict[str, Any]:
    """errors[quantity][member][trajectory] = {max (one per frame), data}."""
    assert model.rollout is not None
    errors: list[list[list[dict[str, Any]]]] = [[[] for _ in range(cut.members)] for _ in names]
    for m in range(cut.members):
        for s, true in enumerate(truth):
            fields = np.asarray(model.rollout.prediction[m, s, : cut.frames])
            with np.errstate(invalid="ignore", over="ignore"):
                guess = _shown(study, fields, cut)
            for q, name in enumerate(names):
                with np.errstate(invalid="ignore", over="ignore"):
                    packed, largest = pack_error(guess[name] - true[name])
                top = [float(f"{v:.5g}") for v in largest]
                errors[q][m].append({"max": top, "data": _text(packed)})
    return {"name": study.name(model), "label": model.label, "errors": errors}
