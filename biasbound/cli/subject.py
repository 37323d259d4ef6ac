"""What a measuring command measures: a denoiser, and pairs of a file in its units."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biasbound.cli.reading import reading
from biasbound.data.formats import load
from biasbound.models.diffusion import chain_of
from biasbound.models.emulator import Emulator
from biasbound.models.emulator import load as emulator
from biasbound.models.normalise import Normalisation
from biasbound.models.task import Forecast
from biasbound.registry import imported
from biasbound.study.stages.material import spread
from biasbound.study.stages.rollout import require_fit


@dataclass(frozen=True)
class Subject:
    """A denoiser with pairs (x, y) in its units, and how its chain goes where it has one."""

    name: str
    denoiser: Any
    x: Any
    y: Any
    schedule: Any = None  # a Schedule
    transition: Any = "renoise"
    start: Any = "sigma"  # the rule for σ_0 that suits its prediction


def loaded(folder: str | Path, given: argparse.Namespace) -> Emulator:
    """The emulator of a folder, with the network of --network where it needs one."""
    if given.network is not None and ":" not in given.network:
        raise ValueError(f"--network is package.module:name of a network of your own, got {given.network!r}")
    return emulator(folder, given.network)


def opened(given: argparse.Namespace) -> Any:
    """The trajectories of --data, with its strides."""
    return load(given.data, reading(given)).stride(time=given.stride_time, space=given.stride_space)


def subject_of(what: str | Path, given: argparse.Namespace) -> Subject:
    """An emulator's folder, or `package.module:factory` of one's own denoiser, on --pairs pairs of --data."""
    if given.pairs < 1:
        raise ValueError(f"--pairs must be at least 1, got {given.pairs}")
    data = opened(given)
    if Path(what).is_dir():
        return _emulated(loaded(what, given), what, data, given.pairs)
    denoiser, task = _made(str(what)), Forecast()
    batch = spread(data.windows(task.window()), given.pairs)
    frames = batch.frames
    if not given.raw:
        known = data.statistics
        frames = Normalisation(tuple(known.mean.tolist()), tuple(known.std.tolist())).encode(frames, 2)
    return Subject(str(what), denoiser, task.given(frames, batch.conditions), task.wanted(frames)[0])


def _emulated(emulator: Emulator, folder: str | Path, data: Any, pairs: int) -> Subject:
    chain = chain_of(emulator.model)
    if chain is None:
        raise ValueError(f"{folder} has no chain to measure: only a diffusion emulator has one")
    require_fit(emulator, data)
    means, task = emulator.normalisation, chain.frame.task
    batch = spread(data.condition_on(*emulator.conditions).windows(task.window()), pairs)
    frames = means.encode(batch.frames, 2)
    x, y = task.given(frames, means.planes(batch.conditions, frames)), task.wanted(frames)[0]
    return Subject(str(folder), chain, x, y, chain.schedule, chain.transition, chain.rule.start)


def _made(name: str) -> Any:
    """What `package.module:factory` returns, modules beside the current folder included."""
    if ":" not in name:
        raise ValueError(f"{name} is neither an emulator's folder nor package.module:factory")
    make = imported(name)
    if not callable(make):
        raise ValueError(f"{name} is not a function that returns a denoiser")
    try:
        denoiser = make()
    except TypeError as error:
        raise ValueError(f"{name} must take no arguments and return a denoiser: {error}") from error
    if not callable(denoiser):
        raise ValueError(f"{name} returned {type(denoiser).__name__}, not a denoiser (y_t, x, sigma) → estimate")
    return denoiser
