"""What the stages of a study share: the splits, their normalisation, the network that fits them, pairs to measure on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from biasbound.data.batches import Batch
from biasbound.data.formats import load
from biasbound.data.layout import Layout
from biasbound.data.trajectories import Trajectories, Windows
from biasbound.models.emulator import Normalisation
from biasbound.nets import UNetConfig, mini, paper
from biasbound.study.config import Config, NetworkConfig
from biasbound.study.folder import read_json

__all__ = ["Material", "network_for", "open_split"]

IN_MEMORY = 4 << 30  # bytes of float32 below which a split is held in memory


def open_split(folder: Path, split: str) -> Trajectories:
    """A split of a study, from the folder of its data stage, as the emulators see it."""
    return open_entry(read_json(folder / "splits.json")[split], folder)


def open_entry(told: Mapping[str, Any], folder: Path) -> Trajectories:
    """What one entry of splits.json describes."""
    path = Path(told["path"])
    found = load(path if path.is_absolute() else folder / path, **told["options"])
    if told["part"] is not None:
        found = found.split(seed=0, train=0.8, valid=0.1, test=0.1)[told["part"]]
    found = found.stride(time=told["time"], space=told["space"])
    return found.condition_on(*told["conditions"])


class Material:
    """Splits and pairs of one study; each is read when first asked for, and kept."""

    def __init__(self, config: Config, folder: Path, device: str = "cpu") -> None:
        self.config, self.folder, self.device = config, folder, device

    def _split(self, name: str) -> Trajectories:
        found = open_split(self.folder, name)
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
        return Normalisation(
            tuple(found.mean.tolist()),
            tuple(found.std.tolist()),
            tuple(found.condition_mean.tolist()),
            tuple(found.condition_std.tolist()),
        )

    @cached_property
    def scale(self) -> float:
        """Spread of y − x in the network's units."""
        found = self.train.statistics
        return float(np.sqrt(np.mean((found.increment_std / found.std) ** 2)))

    @cached_property
    def network(self) -> UNetConfig:
        return network_for(self.config.network, self.train.layout, self.train.conditions)

    def encode(self, batch: Batch) -> Batch:
        """A batch in the network's units, where the network is."""
        frames = self.normalisation.encode(batch.frames.to(self.device), 2)
        planes = self.normalisation.conditions(batch.conditions, frames[:, 0])
        return Batch(frames, batch.conditions if planes is None else planes)

    def batches(self, window: int) -> tuple[Callable[[Any], Batch], int]:
        """What a `Trainer` wants: batches of training windows by number, and how many there are."""
        windows = self.train.windows(window)

        def batch(index: Any) -> Batch:
            return self.encode(windows[index])

        return batch, len(windows)

    def pairs(self, split: str, count: int) -> Batch:
        """`count` pairs spread evenly over a split, in the network's units."""
        return self.encode(spread(getattr(self, split).pairs(), count))

    def __repr__(self) -> str:
        return f"Material({self.folder})"


def spread(windows: Windows, count: int) -> Batch:
    """At most `count` windows, evenly spaced."""
    chosen = np.linspace(0, len(windows) - 1, min(count, len(windows))).astype(np.int64)
    return windows[np.unique(chosen)]


def network_for(wanted: NetworkConfig, data: Layout, conditions: Sequence[str] = ()) -> UNetConfig:
    """The denoiser network of a size that fits these data: x, its conditions and noisy y in, y out."""
    channels, grid = len(data.channels), data.grid
    padding = tuple("circular" if b == "periodic" else "zeros" for b in data.boundary)
    if len(grid) not in (1, 2):
        raise ValueError(f"{data.name} has {len(grid)} space axes; networks exist for one and two")
    if wanted.size == "paper":
        template = paper("ks" if len(grid) == 1 else "kolmogorov")
    else:
        template = mini(wanted.size, padding=("circular",) * len(grid))
    names = (
        "width",
        "multipliers",
        "blocks",
        "block",
        "attention",
        "middle",
        "embedding",
        "zero_init",
    )
    given = {name: value for name in names if (value := getattr(wanted, name)) is not None}
    if wanted.size == "paper" and wanted.width is not None and wanted.embedding is None:
        given["embedding"] = 4 * wanted.width  # as the paper's scales with its width
    made = replace(
        template,
        in_channels=2 * channels + len(conditions),
        out_channels=channels,
        padding=padding,
        **given,
    )
    for points in grid:
        if points % made.stride or points < made.least_grid:
            raise ValueError(
                f"{data.name}: a grid of {points} points does not fit a network of {len(made.multipliers)} "
                f"levels, which needs a multiple of {made.stride}, at least {made.least_grid}; change "
                "network.multipliers or data.stride_space"
            )
    return made


def planes(batch: Batch) -> Tensor | None:
    """The conditions of a batch, None where there are none."""
    return batch.conditions if batch.conditions.shape[1] else None


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
