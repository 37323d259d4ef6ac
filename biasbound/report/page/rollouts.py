r"""Rollouts in few bytes: 8 bits per value, and as much of everything as a budget allows.

The truth is stored on a linear scale, u = low + (high − low) q/254. The *error* of each prediction
is stored on a square-root scale, e = max·(q/127)|q/127|, with the largest error of its frame as
the maximum, which is as fine near zero as 14 bits. The page adds the two, so an error a thousand
times smaller than the field is still visible and not lost to round-off.
"""

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Float64, Int8, UInt8

from biasbound.report.parts import Model
from biasbound.report.planes import Plane, planes
from biasbound.report.study import Study

BUDGET = 1_400_000  # bytes before base64
MISSING_TRUTH, MISSING_ERROR = 255, -128
Shown = dict[str, Float[np.ndarray, "k ..."]]  # quantities of one plane, by name


@dataclass(frozen=True)
class Cut:
    """What is kept: numbers of things, and strides in time and space."""

    models: int
    members: int
    trajectories: int
    quantities: int
    frames: int
    planes: tuple[tuple[int, ...], ...]  # points of each
    every: int = 1
    stride: int = 1

    @property
    def longest(self) -> int:
        """Points along the longest axis."""
        return max(map(max, self.planes)) // self.stride

    @property
    def size(self) -> int:
        """Bytes: one field of truth and one of error for each model and member."""
        points = sum(math.prod(-(-n // self.stride) for n in plane) for plane in self.planes)
        return (
            points
            * -(-self.frames // self.every)
            * self.quantities
            * self.trajectories
            * (1 + self.models * self.members)
        )


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
        elif cut.longest > 64:
            cut = replace(cut, stride=2 * cut.stride)
        elif cut.trajectories > 1:
            cut = replace(cut, trajectories=1)
        elif len(cut.planes) > 1:
            cut = replace(cut, planes=cut.planes[:1])
        elif cut.frames // cut.every > 30:
            cut = replace(cut, every=cut.every + 1)
        elif cut.longest > 16:
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
    every = planes(study.test)
    first = study.truth(1, frames)[0]
    cut = fitted(
        Cut(
            models=len(models),
            members=min(shape[0] for shape in shapes),
            trajectories=min(shape[1] for shape in shapes),
            quantities=min(len(plane.quantities(first)) for plane in every),
            frames=frames,
            planes=tuple(plane.shape for plane in every),
        ),
        budget,
    )
    kept = every[: len(cut.planes)]
    truth = [_shown(kept, study.truth(1, frames, s)[0], cut) for s in range(cut.trajectories)]
    dt = models[0].rollout.dt if models[0].rollout else study.test.dt
    return {
        "planes": [_plane(plane, [shown[p] for shown in truth]) for p, plane in enumerate(kept)],
        "frames": len(next(iter(truth[0][0].values()))),
        "dt": dt * cut.every,
        "first": dt,
        "models": [
            {"name": study.name(m), "label": m.label, "errors": _errors(m, truth, kept, cut)}
            for m in models[: cut.models]
        ],
    }


def _shown(kept: Sequence[Plane], fields: Float[np.ndarray, "K C *N"], cut: Cut) -> list[Shown]:
    space = slice(None, None, cut.stride)
    return [
        {
            name: values[(slice(None, None, cut.every), *[space] * (values.ndim - 1))]
            for name, values in [*plane.quantities(fields).items()][: cut.quantities]
        }
        for plane in kept
    ]


def _plane(plane: Plane, truth: list[Shown]) -> dict[str, Any]:
    """What is drawn of the truth in one plane, one entry of `truth` per trajectory."""
    return {
        "place": plane.place,
        "axes": list(plane.names),
        "domain": [list(axis) for axis in plane.domain],
        "ratio": plane.ratio if len(plane.axes) > 1 else None,
        "hidden": plane.hidden,
        "points": list(next(iter(truth[0].values())).shape[1:]),
        "quantities": [_truth(name, [shown[name] for shown in truth]) for name in truth[0]],
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


def _errors(model: Model, truth: list[list[Shown]], kept: Sequence[Plane], cut: Cut) -> list[Any]:
    """errors[plane][quantity][member][trajectory] = {max (one per frame), data}."""
    assert model.rollout is not None
    errors: list[Any] = [[[[] for _ in range(cut.members)] for _ in shown] for shown in truth[0]]
    for m in range(cut.members):
        for s, true in enumerate(truth):
            fields = np.asarray(model.rollout.prediction[m, s, : cut.frames])
            with np.errstate(invalid="ignore", over="ignore"):
                guess = _shown(kept, fields, cut)
                gaps = [[g[name] - t[name] for name in t] for g, t in zip(guess, true, strict=True)]
            for p, plane in enumerate(gaps):
                for q, gap in enumerate(plane):
                    packed, largest = pack_error(gap)
                    top = [float(f"{v:.5g}") for v in largest]
                    errors[p][q][m].append({"max": top, "data": _text(packed)})
    return errors
