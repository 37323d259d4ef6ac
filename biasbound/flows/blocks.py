"""What a worker process does in a generation; imports little, so that workers start quickly."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from biasbound._io import sync
from biasbound.data.layout import Block, Layout
from biasbound.data.statistics import require_finite

Task = tuple[Any, Path, int, int, str]  # source, file, start, stop, dtype


def make(task: Task) -> int:
    """Compute one block, check it and write it to disk; returns how many trajectories it has."""
    source, file, start, stop, dtype = task
    layout: Layout = source.layout
    block: Block = source.block(start, stop)
    with np.errstate(over="ignore"):
        fields = block.fields.astype(dtype, copy=False)
    shape = (stop - start, *layout.shape[1:])
    if fields.shape != shape:
        raise ValueError(f"{layout.name}: block {start}:{stop} has shape {fields.shape}, expected {shape}")
    require_finite(fields, layout.channels, (range(start, stop), range(layout.frames)), layout.name)
    arrays = {"fields": fields}
    for kind in ("parameters", "series", "static"):
        arrays |= {f"{kind}.{name}": value for name, value in getattr(block, kind).items()}
    temporary = file.with_name(f"{file.stem}.{os.getpid()}.tmp")
    with temporary.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)
    sync(temporary)
    os.replace(temporary, file)
    return stop - start


def make_alone(task: Task) -> int:
    """The same in a process of which nothing is known: sums depend on the number of threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return make(task)
    finally:
        torch.set_num_threads(before)
