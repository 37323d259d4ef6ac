"""What the stages of a study share: the splits, their normalisation, the network that fits them, pairs to measure on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from biasbound._io import as_kind, read_json
from biasbound.core.mask import Mask, cleared, valid
from biasbound.core.noise import Condition, State
from biasbound.data.batches import Batch, Loader
from biasbound.data.columns import Array
from biasbound.data.formats import load
from biasbound.data.layout import Layout, Split
from biasbound.data.splits import divided
from biasbound.data.symmetries import Symmetry, group, images
from biasbound.data.trajectories import Trajectories, Windows
from biasbound.models.normalise import Normalisation
from biasbound.models.task import TASKS, Task
from biasbound.nets import NETS, NetSpec
from biasbound.registry import find
from biasbound.study.checks import about
from biasbound.study.config import NetworkConfig, TaskConfig

MEASURED = 512  # training frames that the scale of a first guess's error is measured on
IN_MEMORY = 4 << 30  # bytes of float32 below which a split is held in memory


@dataclass(frozen=True)
class Entry:
    """Where a split is and how it is read: an entry of splits.json."""

    path: str  # beside splits.json, or absolute
    options: dict[str, Any]
    part: Split | None  # of a file that is divided
    time: int  # strides
    space: int
    conditions: tuple[str, ...]

    def open(self, folder: Path = Path()) -> Trajectories:
        path = Path(self.path)
        found = load(path if path.is_absolute() else folder / path, **self.options)
        if self.part is not None:
            found = divided(found)[self.part]
        return found.stride(time=self.time, space=self.space).condition_on(*self.conditions)


def open_split(folder: Path, split: str) -> Trajectories:
    """A split of a study, from the folder of its data stage, as the emulators see it."""
    told: dict[str, Entry] = read_json(folder / "splits.json", dict[str, Entry], "make the data again")
    if split not in told:
        raise ValueError(f"{folder / 'splits.json'} is damaged (it has no {split}); make the data again")
    return told[split].open(folder)


class Material:
    """Splits and pairs of one study; each is read when first asked for, and kept."""

    def __init__(self, splits: Callable[[str], Trajectories], device: str = "cpu") -> None:
        self.splits, self.device = splits, device

    def _split(self, name: str) -> Trajectories:
        found = self.splits(name)
        return found.load() if 4 * np.prod(found.shape, dtype=np.int64) <= IN_MEMORY else found

    @cached_property
    def train(self) -> Trajectories:
        return self._split("train")

    @cached_property
    def valid(self) -> Trajectories:
        return self._split("valid")

    @cached_property
    def test(self) -> Trajectories:
        return self._split("test")

    @cached_property
    def normalisation(self) -> Normalisation:
        found = self.train.statistics
        every = (found.mean, found.std, found.condition_mean, found.condition_std)
        return Normalisation(*(tuple(values.tolist()) for values in every))

    @cached_property
    def mask(self) -> Mask | None:
        """The valid points, where not all of them are."""
        found = self.train.mask
        return None if found is None else torch.as_tensor(found).to(self.device)

    def scale(self, task: Task) -> float:
        """Spread of y − guess(x) in the network's units: of increments, or as measured on training frames."""
        if task.advances:
            found = self.train.statistics
            return float(np.sqrt(np.mean((found.increment_std / found.std) ** 2)))
        x, y = self.pairs("train", MEASURED, task)
        gap = valid(y - task.guess(x, y.shape[1]), self.mask)
        return float(gap.square().mean().sqrt()) or 1.0  # a guess without error has no scale

    def network(self, wanted: NetworkConfig, task: Task) -> NetSpec:
        """The network of the study, as these data need it."""
        return network_for(wanted, self.train.layout, task, self.train.conditions, self.mask is not None)

    def encode(self, batch: Batch) -> Batch:
        """A batch in the network's units, where the network is; 0 at masked points."""
        frames = cleared(self.normalisation.encode(batch.frames.to(self.device, non_blocking=True), 2), self.mask)
        return Batch(frames, self.normalisation.planes(batch.conditions, frames))

    def batches(self, window: int, symmetries: Sequence[str] = ()) -> tuple[Loader, int]:
        """What a `Trainer` wants: batches of training windows by number, and how many there are.

        With symmetries every window is there once per element of their group. What is on disk or goes to a GPU is read
        ahead; in memory a thread would cost more than it saves.
        """
        windows = self.train.windows(window)
        elements = group(Symmetry.read(text, self.train.layout).checked(self.train) for text in symmetries)

        def read(index: Any) -> Batch:
            if len(elements) == 1:
                return windows[index]
            number, which = np.divmod(np.asarray(index), len(elements))
            return images(windows[number], elements, which)

        cuda = torch.device(self.device).type == "cuda"
        here = isinstance(self.train.reader, Array) and not cuda
        return Loader(read, self.encode, pin=cuda, ahead=0 if here else 2), len(windows) * len(elements)

    def pairs(self, split: str, count: int, task: Task) -> tuple[Condition, State]:
        """(x, y) of `count` pairs spread evenly over a split, in the network's units."""
        batch = self.encode(spread(getattr(self, split).windows(task.window()), count))
        return task.given(batch.frames, batch.conditions), task.wanted(batch.frames)[0]


def spread(windows: Windows, count: int) -> Batch:
    """At most `count` windows, evenly spaced."""
    chosen = np.linspace(0, len(windows) - 1, min(count, len(windows))).astype(np.int64)
    return windows[np.unique(chosen)]


def task_of(told: TaskConfig, data: Layout) -> Task:
    """The task that a config names, on these data: it is told their grid and boundaries where it has fields for them."""
    with about("task.name"):
        kind = find(TASKS, told.name)
    known = {"grid": data.grid, "periodic": data.periodic}
    names = getattr(kind, "__dataclass_fields__", {})
    if unknown := sorted(told.options.keys() - names.keys()):
        raise ValueError(f"task.options of {told.name}: it has no {unknown[0]}; it has {', '.join(names)}")
    own = {name: value for name, value in known.items() if name in names}
    history = {"history": told.history} if told.name == "forecast" or told.history != 1 else {}
    made: Task = as_kind(kind, {**own, **history, **told.options}, f"task.options of {told.name}")
    return made


def network_for(
    wanted: NetworkConfig, data: Layout, task: Task, conditions: Sequence[str] = (), masked: bool = False
) -> NetSpec:
    """The network that fits these data: x with its conditions and the mask in, and y out."""
    channels = len(data.channels)
    inputs = task.inputs(channels) + len(conditions) + masked
    spec = NetSpec(wanted.name, inputs, channels, data.grid, data.boundary, wanted.chosen())
    with about("network.name"):
        find(NETS, wanted.name)
    try:
        return spec.resolved()
    except ValueError as error:
        said = str(error).removeprefix("the network's ")
        raise ValueError(f"network.{said}" if said != str(error) else f"network on {data.name}: {error}") from error


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
