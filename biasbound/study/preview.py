"""What a dry run tells beyond the cost of a study: whether one's own data can be used, and how long it would take here."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from biasbound.data.trajectories import Trajectories
from biasbound.models.method import Method
from biasbound.study.config import Config, DataConfig
from biasbound.study.plan import Plan, layout_of
from biasbound.study.stages.data import SPLITS, found, require_spread, usable
from biasbound.study.stages.material import Material, seeded, task_of
from biasbound.study.stages.search import fit_options
from biasbound.train.trainer import Trainer

UPDATE = 2e10  # operations of an update that is timed: a fraction of a second
SAMPLE = 5e9  # operations of one sample above which nothing is timed
ENOUGH = 0.5  # seconds


def splits_of(config: DataConfig) -> dict[str, Trajectories]:
    """The three splits of one's own files, each read once from end to end: NaN is refused by its place."""
    splits: dict[str, Trajectories] = {split: usable(found(config, split).open()) for split in SPLITS}
    require_spread(splits["train"])
    return splits


def told(splits: Mapping[str, Trajectories]) -> list[str]:
    """Shape and file of each split, and how they were divided."""
    lines = [
        f"{split}: {' × '.join(map(str, data.shape))} (trajectories, frames, channels, grid), dt {data.dt:g}, finite, "
        f"of {data.name}"
        for split, data in splits.items()
    ]
    division = splits["train"].division
    return lines if division is None else [*lines, division.sentence]


def seconds(
    config: Config, plans: Sequence[Plan], splits: Mapping[str, Trajectories] | None = None, threads: int = 1
) -> list[float]:
    """How long each training would take on this machine, measured by updates of a direct model of the same network.

    Time is taken to grow with the operations. Without `splits` the updates see noise of the data's shape. Empty where
    there is no training, or where one sample is too much to be computed in passing.
    """
    sample = min((p.flops / (p.updates * config.train.batch) for p in plans), default=None)
    if sample is None or sample > SAMPLE:
        return []
    batch = max(1, min(config.train.batch, int(UPDATE / max(sample, 1.0))))
    noise = _noise(config, batch) if splits is None else None
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        rate = _rate(config, Material(lambda split: noise or (splits or {})[split]), batch)
    finally:
        torch.set_num_threads(before)
    return [p.flops / rate for p in plans]


def _rate(config: Config, material: Material, batch: int) -> float:
    """Operations per second, counted as `plan` counts them: backwards takes twice the operations of forwards."""
    task = task_of(config.task, material.train.layout)
    model = Method(model="direct").build(
        material.network(config.network, task), task, material.scale(task), {}, material.mask
    )
    data, items = material.batches(task.window(), config.train.symmetries)
    options = fit_options(config.train, 0, batch=batch, updates=10_000, epochs=None)
    trainer = Trainer(model, data, items, options)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.loss(data(np.arange(batch)), seeded(0))
    trainer.update()  # the first one is slower
    begun, count = time.perf_counter(), 0
    while count < 2 or time.perf_counter() - begun < ENOUGH:
        trainer.update()
        count += 1
    forward: int = counter.get_total_flops()
    return 3.0 * forward * count / (time.perf_counter() - begun)


def _noise(config: Config, batch: int) -> Trajectories:
    """As many windows of noise as a batch needs, of the shape that the data will have."""
    layout = layout_of(config)
    frames = task_of(config.task, layout).window() + 1
    shape = (batch, frames, *layout.shape[2:])
    values = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    told = {name: np.linspace(0.0, 1.0, batch) for name in config.data.conditions}
    made = Trajectories.from_array(
        values, dt=layout.dt, channels=layout.channels, domain=layout.domain, boundary=layout.boundary, parameters=told
    )
    return made.condition_on(*config.data.conditions)
