"""The metrics that every rollout is scored by: each maps a `Scene` to its `Result`s.

Scores of single trajectories are those of member 0, since everyone can make one member. CRPS and
spread–skill use all members. Intervals are over trajectories. Under a mask all but FSD are scores
of the valid points alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from biasbound.metrics.arrays import broken, escaped
from biasbound.metrics.correlation import correlation_time, share
from biasbound.metrics.derivatives import vorticity
from biasbound.metrics.ensemble import crps_frames, rank_histogram, spread_and_error
from biasbound.metrics.errors import mse_frames, nrmse_frames, vrmse_frames
from biasbound.metrics.frechet import fsd
from biasbound.metrics.intervals import Interval, bootstrap
from biasbound.metrics.scene import Result, Scene
from biasbound.metrics.spectra import BANDS, band_energies

__all__ = [
    "bands",
    "breaks",
    "correlation_times",
    "ensemble",
    "escapes",
    "fsd_centred",
    "fsd_legacy",
    "mse",
    "mse_norm",
    "nrmse",
    "ranks",
    "vrmse",
]


GEOMETRIC = 100  # steps of the geometric mean


def _frames(name: str, table: Float64[Tensor, "S K"], steps: Iterable[int]) -> Iterator[Result]:
    for step in steps:
        yield Result(name, bootstrap(table[:, step - 1]), step)
    yield Result(f"{name}_mean", bootstrap(table.mean(1)))


def mse(scene: Scene) -> Iterator[Result]:
    """Squared error in the data's units, at each scored step and over all frames."""
    scene = scene.points
    yield from _frames("mse", mse_frames(scene.first, scene.truth), scene.steps)


def vrmse(scene: Scene) -> Iterator[Result]:
    """Root of the squared error over the truth's variance in space."""
    scene = scene.points
    yield from _frames("vrmse", vrmse_frames(scene.first, scene.truth), scene.steps)


def mse_norm(scene: Scene) -> Iterator[Result]:
    """Squared error in standard deviations of the training data, if those are known."""
    scene = scene.points
    if scene.spread is not None:
        table = mse_frames(scene.first, scene.truth, scene.spread)
        yield from _frames("mse_norm", table, scene.steps)


def _geometric(values: Float[Tensor, "B S K"]) -> Float[Tensor, " B"]:
    return values.mean(1).log().mean(1).exp()


def nrmse(scene: Scene) -> Iterator[Result]:
    """Geometric mean over the first 100 steps, or as many as there are, of the mean nRMSE: APEBench's score.

    A truth that is 0 throughout a frame has no such error.
    """
    scene = scene.points
    table = nrmse_frames(scene.first, scene.truth)[:, :GEOMETRIC]
    if bool(table.isfinite().all()) or bool(broken(scene.first).any()):
        yield Result("nrmse_gmean", bootstrap(table, _geometric), table.shape[1])


def correlation_times(scene: Scene) -> Iterator[Result]:
    """Time for which the correlation with the truth stays above 0.8: mean, worst and best.

    A single frame has no such time.
    """
    if scene.frames < 2:
        return
    scene, of = scene.points, None
    if scene.correlate == "vorticity":
        of = partial(vorticity, periodic=scene.periodic, spacing=scene.spacing)
    found = correlation_time(scene.first, scene.truth, scene.dt, of=of)
    yield Result("correlation_time", Interval(found.mean, found.low, found.high))
    times = torch.tensor(found.per_trajectory, dtype=torch.float64)
    for name, part in (("worst", 0.1), ("best", -0.1)):
        yield Result(f"correlation_time_{name}", bootstrap(times, partial(share, part=part)))
    yield Result("never_failed", found.never_failed)


def _distances(name: str, variant: str, scene: Scene) -> Iterator[Result]:
    scene = scene.grids
    # No interval: few trajectories make FSD too large, and resamples, which repeat some of them,
    # larger still.
    if len(scene.truth) > 1:  # one trajectory has no covariance
        for step in scene.steps:
            yield Result(name, fsd(scene.first, scene.truth, step, variant), step)


def fsd_centred(scene: Scene) -> Iterator[Result]:
    """Fréchet distance between the spectra of predictions and of the truth.

    A spectrum needs every point of the grid. Masked points hold the truth's mean, an anomaly of 0,
    in both: the two are seen through the same window.
    """
    yield from _distances("fsd", "centred", scene)


def fsd_legacy(scene: Scene) -> Iterator[Result]:
    """The same distance as the paper's authors compute it; masked points as in `fsd_centred`."""
    yield from _distances("fsd_legacy", "authors", scene)


def _quotient(values: Float[Tensor, "B S 2"]) -> Float[Tensor, " B"]:
    above, below = values.mean(1).unbind(1)
    return above / below


def bands(scene: Scene) -> Iterator[Result]:
    """Energy in low, middle and high wavenumbers over the truth's: below 1 is too smooth, above 1 too rough.

    Masked points as in `fsd_centred`.
    """
    scene, lost = scene.grids, broken(scene.points.first)
    for step in scene.steps:
        frames = (fields[:, step - 1] for fields in (scene.first, scene.truth))
        made, true = (band_energies(f, scene.truth.ndim - 3, scene.spacing) for f in frames)
        made[(lost > 0) & (lost <= step)] = torch.nan
        for band, pair in zip(BANDS, torch.stack([made, true], -1).unbind(1), strict=True):
            if float(pair[:, 1].mean()) > 0:  # no energy has no share of it
                yield Result(f"energy_{band}", bootstrap(pair, _quotient), step)


def _ratio(values: Float[Tensor, "B S 2"]) -> Float[Tensor, " B"]:
    return _quotient(values).sqrt()


def ensemble(scene: Scene) -> Iterator[Result]:
    """Fair CRPS, squared error of the mean, and spread over skill, of several members."""
    if len(scene.prediction) < 2:
        return
    scene = scene.points
    crps = crps_frames(scene.prediction, scene.truth)
    table = spread_and_error(scene.prediction, scene.truth)
    for step in scene.steps:
        yield Result("crps", bootstrap(crps[:, step - 1]), step)
        yield Result("ensemble_mse", bootstrap(table[:, step - 1, 1]), step)
        if bool((table[:, step - 1] != 0).any()):  # no spread and no error have no ratio
            yield Result("spread_skill", bootstrap(table[:, step - 1], _ratio), step)


def ranks(scene: Scene) -> Iterator[Result]:
    """How often the truth has each rank among several members, over all frames: 1 is as often as it should be.

    `rank` has the rank as its step, 0 … M. `rank_distance` is the share of ranks that would have to change for a flat
    histogram.
    """
    if len(scene.prediction) < 2:
        return
    counts = rank_histogram(scene.points.prediction, scene.points.truth).counts
    if sum(counts):  # else every frame is broken
        often = torch.tensor(counts, dtype=torch.float64) * len(counts) / sum(counts)
        for rank, value in enumerate(often):
            yield Result("rank", value, rank)
        yield Result("rank_distance", (often - 1).abs().mean() / 2)


def breaks(scene: Scene) -> Iterator[Result]:
    """How many trajectories became non-finite, and the first step at which one did."""
    first = [broken(member) for member in scene.points.prediction]
    own = first[0][first[0] > 0]
    yield Result("broken", len(own))
    if len(own):
        yield Result("broken_step", own.min())
    if len(first) > 1:
        yield Result("broken_members", sum(int((member > 0).sum()) for member in first))


def escapes(scene: Scene) -> Iterator[Result]:
    """How many trajectories left ten times the truth's range or became non-finite."""
    scene = scene.points
    yield Result("escaped", (escaped(scene.first, scene.truth) > 0).sum())
