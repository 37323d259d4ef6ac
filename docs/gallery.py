"""Pages of kept records, as `biasbound report` writes them, for the site's gallery.

    python docs/gallery.py FOLDER     writes them there

Records hold emulators but no fields. Where the data can be made in seconds, two test trajectories are made again and the
emulators of the first seed are rolled out, so that the page has its player. A record may have dozens of methods; a page
shows those that tell its story.
"""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from biasbound._io import make_folder, write_json
from biasbound.metrics.rows import read_rows, write_rows
from biasbound.models.emulator import load
from biasbound.models.method import GUESSES
from biasbound.report.page import write_page
from biasbound.report.study import read_study
from biasbound.study.parsing import read_config
from biasbound.study.stages.data import entry_of
from biasbound.study.stages.material import open_split
from biasbound.study.stages.place import Place

RESULTS = Path(__file__).parent.parent / "results"


@dataclass(frozen=True)
class Page:
    """A record, the frames that its emulators are rolled out for (0: frames stand alone), and the methods that are shown."""

    record: str
    frames: int = 0
    methods: tuple[str, ...] = ()


PAGES = {
    "ks": Page(
        "record/ks",
        120,
        (
            "direct-residual",
            "sigmoid-v-residual",
            "refiner-residual",
            "adaptive-v-residual",
            "adaptive-scaled-residual",
        ),
    ),
    "kolmogorov": Page(
        "record/kolmogorov",
        39,
        ("direct-residual", "cosine-v-residual", "adaptive-scaled-residual", "adaptive-v-residual-proxy"),
    ),
    "reconstruct": Page("tasks/ks-reconstruct-equal-calls"),
}
TRAJECTORIES = 2


def rolled_out(record: Path, run: Path, frames: int, methods: Sequence[str]) -> Path:
    """A copy of a record with these methods, test data and rollouts."""
    make_folder(run)
    shutil.copy(record / "config.yaml", run)
    shown = {*methods, *GUESSES}
    write_rows(run / "results.jsonl", [row for row in read_rows(record / "results.jsonl") if row.method in shown])
    for place in (p for method in methods for p in record.glob(f"0*-*/{method}")):
        shutil.copytree(place, run / place.relative_to(record), ignore=shutil.ignore_patterns("emulator"))
    config = read_config(record / "config.yaml")
    data = replace(config.data, held_out={**config.data.held_out, "trajectories": TRAJECTORIES})
    place = make_folder(run / "01-data")
    write_json(place / "splits.json", {"test": entry_of(data, "test", Place(place))})
    test = open_split(place, "test")
    emulators = {p.parent for method in methods for p in record.glob(f"0[34]-*/{method}/seed-0/emulator")}
    for folder in sorted(emulators):
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
    for name, page in PAGES.items():
        with tempfile.TemporaryDirectory() as work:
            kept = RESULTS / page.record
            run = rolled_out(kept, Path(work) / "run", page.frames, page.methods) if page.frames else kept
            study = replace(read_study(run), title=read_config(kept / "config.yaml").title)
            made.append(write_page(study, folder / f"{name}.html"))
    return made


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("\n".join(map(str, write(Path(sys.argv[1])))))
