"""Pages of kept records, as `biasbound report` writes them, for the site's gallery.

    python docs/gallery.py FOLDER     writes them there

Records hold emulators but no fields. Where the data can be made in seconds, two test trajectories are made again and the
emulators of the first seed are rolled out, so that the page has its player.
"""

import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from biasbound._io import make_folder, write_json
from biasbound.models.emulator import load
from biasbound.report.page import write_page
from biasbound.report.study import read_study
from biasbound.study.parsing import read_config
from biasbound.study.stages.data import entry_of
from biasbound.study.stages.material import open_split
from biasbound.study.stages.place import Place

RESULTS = Path(__file__).parent.parent / "results"
PAGES = {
    "ks": "record/ks",
    "kolmogorov": "record/kolmogorov",
    "reconstruct": "tasks/ks-reconstruct-equal-calls",
}  # name: its record
ROLLED = {"ks": 120, "kolmogorov": 39}  # frames; the frames of the others stand alone
TRAJECTORIES = 2


def rolled_out(record: Path, run: Path, frames: int) -> Path:
    """A copy of a record with test data and rollouts."""
    shutil.copytree(record, run, ignore=shutil.ignore_patterns("emulator"))
    config = read_config(record / "config.yaml")
    data = replace(config.data, held_out={**config.data.held_out, "trajectories": TRAJECTORIES})
    place = make_folder(run / "01-data")
    write_json(place / "splits.json", {"test": entry_of(data, "test", Place(place))})
    test = open_split(place, "test")
    for folder in sorted({p.parent for p in record.glob("0[34]-*/*/seed-0/emulator")}):
        emulator = load(folder / "emulator")  # of a fine-tuned method twice, the fine-tuned one last
        made = emulator.rollout(test.first(), steps=frames, generator=torch.Generator().manual_seed(0))
        unit = make_folder(run / "05-rollout" / folder.parent.name / folder.name)
        np.save(unit / "prediction.npy", made.states.numpy())
        write_json(unit / "rollout.json", {"dt": test.dt, "first": 1})
    return run


def write(folder: Path) -> list[Path]:
    """Write NAME.html of every page into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, record in PAGES.items():
        with tempfile.TemporaryDirectory() as work:
            kept = RESULTS / record
            run = rolled_out(kept, Path(work) / "run", ROLLED[name]) if name in ROLLED else kept
            study = replace(read_study(run), title=read_config(kept / "config.yaml").title)
            made.append(write_page(study, folder / f"{name}.html"))
    return made


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("\n".join(map(str, write(Path(sys.argv[1])))))
