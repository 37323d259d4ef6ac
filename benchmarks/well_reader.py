"""The Well's own loader at work. Runs in an environment that has the-well and not this package.

python well_reader.py dump FOLDER OUT.npz     every pair of frames that WellDataset gives, and its metadata
python well_reader.py dummy FILE              the file that the-well's own writer makes for tests
python well_reader.py time FOLDER BATCH       CPU seconds a batch, once for each line on standard input
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from the_well.data.datasets import WellDataset
from the_well.utils.dummy_data import write_dummy_data


def dump(folder: str, out: str) -> None:
    data = WellDataset(path=folder)
    items = [data[i] for i in range(len(data))]
    arrays = {key: np.stack([item[key].numpy() for item in items]) for key in items[0]}
    facts = data.metadata
    names = {
        "fields": list(itertools.chain(*facts.field_names.values())),
        "constant_fields": list(itertools.chain(*facts.constant_field_names.values())),
        "scalars": facts.scalar_names,
        "constant_scalars": facts.constant_scalar_names,
        "grid": facts.spatial_resolution,
        "trajectories": facts.n_trajectories_per_file,
        "frames": facts.n_steps_per_trajectory,
    }
    np.savez(out, metadata=np.array(json.dumps(names)), **arrays)


def measure(folder: str, size: str) -> None:
    """Random batches through a DataLoader, in two settings: as it comes, and without the extras."""
    batch = int(size)
    streams = {}
    for name, options in {"default": {}, "fields only": {"return_grid": False, "boundary_return_type": None}}.items():
        loader = torch.utils.data.DataLoader(
            WellDataset(path=folder, **options), batch_size=batch, shuffle=True, drop_last=True
        )
        streams[name] = itertools.chain.from_iterable(itertools.repeat(loader))
        next(streams[name])
    print("ready", flush=True)
    for line in sys.stdin:
        spent = {}
        for name, stream in streams.items():
            start = time.process_time()
            for _ in range(int(line)):
                next(stream)
            spent[name] = (time.process_time() - start) / int(line)
        print(json.dumps(spent), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    command, *arguments = sys.argv[1:]
    {"dump": dump, "time": measure, "dummy": lambda f: write_dummy_data(str(Path(f)))}[command](*arguments)
