"""Stage 5: rollouts from the first frames of trajectories, in memory or written frame by frame.

Where the task does not advance in time, every frame is answered from its own observation instead.

A study keeps one plain .npy array per rollout; NetCDF, Zarr and native files hold names, times and units beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from biasbound._io import replacing, require_room, write_json
from biasbound.core.constraints import constraint
from biasbound.data.formats.stream import FrameWriter
from biasbound.data.layout import Coordinates, Layout
from biasbound.data.statistics import require_finite
from biasbound.data.trajectories import Trajectories
from biasbound.models.correction import always
from biasbound.models.emulator import Emulator, broken_by, collected, load
from biasbound.models.method import Method
from biasbound.models.task import Task
from biasbound.nets.compiled import compiled
from biasbound.study.config import RolloutConfig
from biasbound.study.jobs import RolloutJob
from biasbound.study.stages.material import seeded
from biasbound.study.stages.place import Place

ENDINGS = (".nc", ".zarr", ".h5", ".npy")


def make_rollout(job: RolloutJob, place: Place) -> dict[str, Any]:
    """Roll the emulator out over the test split; write prediction.npy and rollout.json."""
    emulator = placed(place, job.sampled)
    made = write_rollout(emulator, place.material.test, place.folder / "prediction.npy", job.rollout, place.seed)
    members, count, steps = made.shape[:3]
    told = {
        "dt": emulator.dt * made.every,
        "first": made.first,
        "members": members,
        "trajectories": count,
        "steps": steps,
    }
    write_json(place.folder / "rollout.json", {**told, "nfe": emulator.nfe, "broken": made.broken.tolist()}, None)
    return {"nfe": emulator.nfe, "frames": members * count * steps, "broken": made.lost}


def placed(place: Place, sampled: Method | None) -> Emulator:
    """The emulator of a unit, where it computes, sampled as its method says."""
    emulator = load(place.emulator())
    emulator.model.to(place.material.device)
    if sampled is not None:
        sampled.sampled(emulator.model)
    return emulator


def require_fit(emulator: Emulator, data: Trajectories) -> None:
    """Refuse data whose channels, time step or grid the emulator does not know."""
    if data.channels != emulator.channels:
        raise ValueError(
            f"{data.name} has the channels {', '.join(data.channels)}, the emulator {', '.join(emulator.channels)}"
        )
    grid = getattr(emulator.model.frame.task, "grid", ()) or data.layout.grid
    if data.layout.grid != grid:
        raise ValueError(
            f"{data.name} has the grid {data.layout.grid}, but the emulator answers on {grid}: give data on that grid; "
            "in Python, Emulator.step takes coarse fields too"
        )
    if not np.isclose(data.dt, emulator.dt, rtol=1e-6):
        raise ValueError(f"{data.name} has a time step of {data.dt:g}, the emulator was trained with {emulator.dt:g}")


def answered(task: Task, frames: int, steps: int | None = None) -> slice:
    """Which of a trajectory's frames a rollout has: those after the given ones, or `steps` that are evenly apart.

    Frames that stand alone are e, 2e, …, so that prediction k is at time k e dt, as in a rollout.
    """
    if task.advances:
        return slice(task.past, task.past + (frames - task.past if steps is None else steps))
    count = frames - 1 if steps is None else min(steps, frames - 1)
    every = max(1, (frames - 1) // max(1, count))
    return slice(every, every * count + 1, every)


@dataclass(frozen=True)
class Starts:
    """What a rollout begins with: its options and frames, as arguments of `Emulator.stream`.

    Of a task that does not advance, x0 has all frames that are answered, (K, S, C, *N).
    """

    x0: Float[Tensor, "S ..."] | Float[Tensor, "K S ..."]
    steps: int
    members: int
    generator: torch.Generator
    more: dict[str, Any]  # conditions, batch, correction

    @classmethod
    def of(cls, emulator: Emulator, data: Trajectories, options: RolloutConfig, seed: int = 0) -> Starts:
        require_fit(emulator, data)
        if options.compile:
            compiled(emulator.model.net)
        count = min(options.trajectories or len(data), len(data))
        task, known = emulator.model.frame.task, data.layout.frames
        frames = answered(task, known, options.steps)
        steps = len(range(frames.start, frames.stop, frames.step or 1))
        if steps < 1:
            raise ValueError(f"{data.name} ends with the {task.past} frames that are given; say --steps to predict")
        if known < task.past:
            raise ValueError(f"{data.name} has {known} frames, fewer than the {task.past} that the emulator is given")
        seen = slice(task.past) if task.advances else frames
        past = np.arange(known)[seen]
        first = data.condition_on(*emulator.conditions).select(slice(count)).windows(0)
        found = first[(np.arange(count)[:, None] * known + past).ravel()]
        given = found.frames.reshape(count, len(past), *found.frames.shape[2:])
        require_finite(
            given.numpy(), data.channels, (data.view.trajectories[:count], data.view.frames[seen]), data.name
        )
        device = next((p.device for p in emulator.model.parameters()), torch.device("cpu"))
        x0 = given.transpose(0, 1) if not task.advances else given[:, 0] if task.past == 1 else given
        told = found.conditions[:: len(past)].to(device) if emulator.conditions else None
        noise = seeded(options.seed + 1_000_003 * seed)
        return cls(x0.to(device), steps, options.members, noise, {"conditions": told, "batch": options.batch})

    def frames(self, emulator: Emulator) -> Iterator[Float[Tensor, "M S C *N"]]:
        """The states, one time after the other."""
        if emulator.model.frame.task.advances:
            return emulator.stream(self.x0, self.steps, self.members, self.generator, **self.more)
        return (next(emulator.stream(x, 1, self.members, self.generator, **self.more)) for x in self.x0)


def roll(
    emulator: Emulator, test: Trajectories, options: RolloutConfig, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(prediction (M, S, K, C, *N), step at which each trajectory broke (M, S), 0: never)."""
    begun = Starts.of(emulator, test, options, seed)
    states, broken = collected(begun.frames(emulator), begun.steps, emulator.mask)
    return states.to(torch.float32).numpy(), broken.numpy()


@dataclass(frozen=True)
class Written:
    """A rollout on disk: its shape (M, S, K, C, *N), and the step at which each trajectory broke, 0 for never."""

    path: Path
    shape: tuple[int, ...]
    broken: Int[np.ndarray, "M S"]
    first: int = 1  # number of the data's frame that it begins with
    every: int = 1  # frames of the data from one to the next

    @property
    def lost(self) -> int:
        """Trajectories that became non-finite."""
        return int((self.broken > 0).sum())


def predict(
    emulator: Emulator,
    data: Trajectories,
    path: str | Path,
    *,
    steps: int | None = None,
    members: int = 1,
    seed: int = 0,
    constrain: str | None = None,
    compile: bool = False,
    overwrite: bool = False,
) -> Written:
    """Write a rollout from the first frames of every trajectory, as .nc, .zarr, .h5 or .npy, frame by frame.

    Memory does not grow with `steps` (by default to the end of the data). Channels, units, axes and coordinates are
    those of the data. The values are those of `Emulator.rollout` with a generator of this seed. The file is whole, or it
    is not there. `constrain` names one of `biasbound.core.constraints.CONSTRAINTS`, which every state then obeys. With
    `compile` the network is compiled first (torch.compile), which pays for long rollouts.

    >>> from biasbound.models.model import Frame, make
    >>> from biasbound.models.normalise import Normalisation
    >>> still = Emulator(make("persistence", None, Frame(1), {}), Normalisation((0.0,), (1.0,)), ("u",), 0.1)
    >>> data = Trajectories.from_array(np.zeros((3, 10, 1, 16)), dt=0.1, channels=["u"])
    >>> predict(still, data, "rollout.npy", members=2).shape
    (2, 3, 9, 1, 16)
    """
    wanted = RolloutConfig(steps=steps, members=members, seed=seed, compile=compile)
    return write_rollout(emulator, data, Path(path), wanted, constrain=constrain, overwrite=overwrite)


def write_rollout(
    emulator: Emulator,
    data: Trajectories,
    path: Path,
    options: RolloutConfig,
    seed: int = 0,
    *,
    constrain: str | None = None,
    overwrite: bool = True,
) -> Written:
    """`predict` with the options of a study; a .npy file holds the array (M, S, K, C, *N) alone."""
    begun, task = Starts.of(emulator, data, options, seed), emulator.model.frame.task
    if constrain is not None:
        begun = replace(begun, more=begun.more | {"correct": always(constraint(constrain, data.layout))})
    about: dict[str, Any] = {"given frames": task.past, "members": begun.members, "seed": options.seed}
    about |= {} if constrain is None else {"constrained": constrain}
    frames = answered(task, data.layout.frames, options.steps)
    every, count = frames.step or 1, min(options.trajectories or len(data), len(data))
    layout = replace(_placed(data), trajectories=count, frames=begun.steps, dt=data.dt * every)
    facts = {
        "start": frames.start * data.dt,
        "labels": data.labels,
        "mask": None if emulator.mask is None else emulator.mask.cpu().numpy(),
        "provenance": {"rollout": about},
    }
    require_room(path, 4 * begun.members * math.prod(layout.shape), "ask for fewer steps, members or trajectories")
    broken = torch.zeros(begun.members, count, dtype=torch.int64)
    with _writing(path, layout, begun.members, overwrite, facts) as put:
        for k, frame in enumerate(begun.frames(emulator)):
            put(k, frame.to(torch.float32).numpy())
            broken = broken_by(broken, k + 1, frame, emulator.mask)
    return Written(path, (begun.members, *layout.shape), broken.numpy(), frames.start, every)


Put = Callable[[int, Float[np.ndarray, "M S C *N"]], None]  # number of a frame, and the frame


def _placed(data: Trajectories) -> Layout:
    """The layout of the data with their own points: latitudes may go down, levels may be uneven."""

    class Placed(Layout):
        def coordinates(self) -> Coordinates:
            return data.coordinates

    return Placed(**vars(data.layout))


@contextmanager
def _writing(path: Path, layout: Layout, members: int, overwrite: bool, facts: dict[str, Any]) -> Iterator[Put]:
    """Where frames go, by the ending of the path; a file that is not finished is removed."""
    if path.suffix != ".npy":
        if path.suffix not in ENDINGS:
            raise ValueError(f"{path}: a rollout is written as {', '.join(ENDINGS)}; choose one of these endings")
        with FrameWriter.open(path, layout, members=members, overwrite=overwrite, **facts) as writer:
            yield lambda k, frame: writer.append(frame)
        return
    shape = (members, *layout.shape)
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.float32)), "fortran_order": False, "shape": shape}
    # A memory map would count as memory, and crash on a full disk.
    with replacing(path, overwrite) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        begin, state = file.tell(), 4 * int(np.prod(shape[3:]))

        def put(k: int, frame: Float[np.ndarray, "M S C *N"]) -> None:
            for row, values in enumerate(frame.reshape(-1, *shape[3:])):
                file.seek(begin + (row * shape[2] + k) * state)
                file.write(np.ascontiguousarray(values).data)

        yield put
