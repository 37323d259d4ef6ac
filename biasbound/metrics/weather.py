r"""Scores of weather forecasts, per channel, with every point weighted by the area that it stands for.

    RMSE = √⟨w (x̂ − x)²⟩                               in the channel's units
    ACC  = ⟨w x̂′ x′⟩/√(⟨w x̂′²⟩⟨w x′²⟩),    x′ = x − c       correlation of anomalies from the climate c

with w = cos φ/⟨cos φ⟩ and ⟨·⟩ over the grid. ACC is 1 for the truth and 0 for the climate itself, which has no anomaly.
Both are means over trajectories of the scores of single frames. They apply where the data have a latitude.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxtyping import Float64
from torch import Tensor

from biasbound.metrics.arrays import Array, double, per_frame
from biasbound.metrics.globe import Globe
from biasbound.metrics.intervals import bootstrap
from biasbound.metrics.scene import Result, Scene

__all__ = ["acc_frames", "weather", "weighted_rmse_frames"]


def weighted_rmse_frames(pred: Array, truth: Array, globe: Globe, channel: int) -> Float64[Tensor, "S K"]:
    """√⟨w (x̂ − x)²⟩ of one channel, for each trajectory and frame; broken frames: +∞."""
    w = double(globe.weights)

    def score(a: Tensor, b: Tensor) -> Tensor:
        return (w * (a - b).square()).flatten(1).mean(1).sqrt()

    return per_frame(*_one(pred, truth, channel), score, float("inf"))


def acc_frames(pred: Array, truth: Array, globe: Globe, channel: int) -> Float64[Tensor, "S K"]:
    """The anomaly correlation of one channel, for each trajectory and frame; 0 where broken or without anomaly."""
    w, c = double(globe.weights), double(globe.climate)[channel]

    def mean(product: Tensor) -> Tensor:
        return (w * product).flatten(1).mean(1)

    def score(a: Tensor, b: Tensor) -> Tensor:
        a, b = a - c, b - c
        return mean(a * b) / (mean(a.square()) * mean(b.square())).sqrt()

    return per_frame(*_one(pred, truth, channel), score, 0.0)


def _one(pred: Array, truth: Array, channel: int) -> tuple[Array, Array]:
    own = slice(channel, channel + 1)
    return pred[:, :, own], truth[:, :, own]


def weather(scene: Scene) -> Iterator[Result]:
    """Latitude-weighted RMSE and anomaly correlation of each channel, where the data have a latitude."""
    scene = scene.points
    if scene.globe is None:
        return
    for i, channel in enumerate(scene.globe.channels):
        scores = {"weighted_rmse": weighted_rmse_frames, "acc": acc_frames}
        for name, frames in scores.items():
            table = frames(scene.first, scene.truth, scene.globe, i)
            for step in scene.steps:
                yield Result(f"{name}_{channel}", bootstrap(table[:, step - 1]), step)
