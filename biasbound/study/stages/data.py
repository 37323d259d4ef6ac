"""Stage 1: the three splits, generated at their final resolution or found in the user's own files."""

from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from biasbound._io import remove, write_json
from biasbound.data.formats import load, save
from biasbound.data.layout import Source, Split
from biasbound.data.trajectories import Trajectories
from biasbound.flows import FLOWS
from biasbound.flows.flow import settings_of, source
from biasbound.flows.generate import generate
from biasbound.registry import find
from biasbound.study.checks import about
from biasbound.study.config import DataConfig
from biasbound.study.jobs import DataJob
from biasbound.study.stages.material import Entry, open_split
from biasbound.study.stages.place import Place

SPLITS: tuple[Split, ...] = ("train", "valid", "test")


def source_of(config: DataConfig, split: Split) -> Source:
    """The source of one split."""
    settings = {**config.settings, **({} if split == "train" else config.held_out)}
    sizes = getattr(find(FLOWS, config.dataset), "sizes", {config.size})
    with about("data.settings" if config.size in sizes else "data.size"):
        return source(config.dataset, config.size, split, config.seed, **settings_of(settings))


def make_data(job: DataJob, place: Place) -> dict[str, Any]:
    """Fill the folder with what `open_split` reads; returns facts for the record."""
    config, folder = job.data, place.folder
    told = {split: entry_of(config, split, place) for split in SPLITS}
    write_json(folder / "splits.json", told)
    shapes = {}
    for split in SPLITS:
        opened = open_split(folder, split)
        shapes[split] = list(opened.shape)
        usable(opened, read=config.train is not None)
        if split == "train":
            require_spread(opened)
    return {"shapes": shapes} | ({} if opened.division is None else {"split": str(opened.division)})


def usable(data: Trajectories, read: bool = True) -> Trajectories:
    """The same data, refused where they have no step to learn; `read` also looks for NaN, before hours of training."""
    if data.layout.frames < 2:
        raise ValueError(f"{data.name}: a trajectory needs at least two frames")
    if read:
        found = data.measure()  # one pass, which refuses NaN by its place
        told = data.known
        if told is not None and not np.allclose([told.mean, told.std], [found.mean, found.std], rtol=1e-3, atol=1e-3):
            raise ValueError(f"{data.name}: its stored mean and spread are not those of its values; convert it anew")
    return data


def require_spread(data: Trajectories) -> None:
    """Refuse training data with a channel that never changes: it cannot be normalised, and there is nothing to learn."""
    for channel, spread in zip(data.channels, data.statistics.std, strict=True):
        if not spread > 0:
            raise ValueError(f"{data.name}: the channel {channel} has no spread; leave it out with --variable")


def entry_of(config: DataConfig, split: Split, place: Place) -> Entry:
    """One split, made in a folder or found in the user's files, as an entry of splits.json."""
    if config.train is not None:
        return found(config, split)
    _generated(config, split, place)
    return Entry(f"{split}.h5", {}, None, 1, 1, config.conditions)


def _generated(config: DataConfig, split: Split, place: Place) -> None:
    """One split's file; what was generated at a higher resolution is thinned and not kept."""
    final, raw = place.folder / f"{split}.h5", place.folder / f"raw-{split}.h5"
    if final.exists():
        remove(raw)  # of a call that was killed between the last two lines
        return
    thin = config.stride_time > 1 or config.stride_space > 1
    made = source_of(config, split)
    progress = partial(place.progress, split)
    generate(made, raw if thin else final, jobs=place.jobs, spread=place.spread, progress=progress)
    if thin:
        save(load(raw).stride(time=config.stride_time, space=config.stride_space).load(), final)
        remove(raw)


def found(config: DataConfig, split: str) -> Entry:
    """A split of the user's own files, which stay where they are."""
    given = config.train if config.valid is None else getattr(config, split)
    assert given is not None
    return Entry(
        str(Path(given).expanduser().resolve()),
        options=config.options,
        part=cast(Split, split) if config.valid is None else None,
        time=config.stride_time,
        space=config.stride_space,
        conditions=config.conditions,
    )
