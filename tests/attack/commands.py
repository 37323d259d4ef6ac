"""A folder with small inputs, and the commands that are stopped in it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from data_files import flow
from emulators import emulator
from kills import Command
from toys import advected

from biasbound.core.schedule import linear
from biasbound.data.formats import save
from biasbound.data.trajectories import Trajectories

TINY = (
    "--preset",
    "ks-smoke",
    "--jobs",
    "1",
    "--train.updates",
    "6",
    "--train.evaluations",
    "1",
    "--evaluate.gradients",
    "0",
)
TINY += (
    "--data.settings",
    json.dumps({"trajectories": 3, "frames": 24}),
    "--train.checkpoint_every",
    "2",
    "--train.log_every",
    "2",
)
TINY += (
    "--rollout.steps",
    "3",
    "--evaluate.pairs",
    "4",
    "--train.pairs",
    "4",
    "--search.pairs",
    "4",
    "--search.levels",
    "4",
)
TINY += ("--search.rounds", "2", "--search.updates", "4", "--evaluate.steps", "1,3", "--train.batch", "4")
STUDY = ("run/0*/**/*.h5", "run/0*/**/*.safetensors", "run/0*/**/*.npy", "run/results.jsonl", "run/config.yaml")


def inputs(folder: Path) -> Path:
    """Data, an emulator, a schedule and a prediction."""
    folder.mkdir(parents=True)
    waves = Trajectories.from_array(advected(3, frames=6).numpy(), dt=0.2, channels=["u"], name="waves")
    save(waves, folder / "waves.h5")
    save(flow("transonic"), folder / "flow.h5")
    emulator("eps").save(folder / "e")
    linear(6).save(folder / "l.json")
    np.save(folder / "p.npy", waves.read(0, 3)[:, 1:] + 0.1)
    return folder


def study(verb: str, *methods: str) -> Command:
    """A study command, up to its stage, for a few methods."""
    words = (
        verb,
        "run",
        *TINY,
        "--methods",
        ",".join(methods),
        *(("--method", ",".join(methods)) if verb != "run" else ()),
    )
    return Command(f"{verb} {','.join(methods)}", words, STUDY, resumes=True)


PREDICT = ("predict", "e", "--data", "waves.h5", "--members", "2", "--steps", "4", "--force", "--out")
QUICK = [
    Command(
        "data ks",
        ("data", "ks", "--size", "smoke", "--trajectories", "2", "--set", "frames=5", "--jobs", "1", "--out", "k.h5"),
        ("k.h5",),
    ),
    Command("convert to native", ("data", "convert", "flow.h5", "c.h5", "--force"), ("c.h5",)),
    Command("convert to NetCDF", ("data", "convert", "flow.h5", "c.nc", "--force"), ("c.nc",)),
    Command("convert to NumPy", ("data", "convert", "flow.h5", "c.npy", "--force"), ("c.npy",)),
    Command("convert to Zarr", ("data", "convert", "waves.h5", "c.zarr"), ("c.zarr/**/*",)),
    Command("schedule make", ("schedule", "make", "linear", "-T", "8", "--out", "s.json"), ("s.json",)),
    Command("schedule export", ("schedule", "export", "l.json", "--format", "csv", "--out", "s.csv"), ("s.csv",)),
    Command("predict h5", (*PREDICT, "p.h5"), ("p.h5",)),
    Command("predict nc", (*PREDICT, "p.nc"), ("p.nc",)),
    Command("predict npy", (*PREDICT, "q.npy"), ("q.npy",)),
    Command("score", ("score", "p.npy", "--truth", "waves.h5", "--out", "rows.jsonl"), ("rows.jsonl",)),
]
STUDIES = [
    study("run", "direct", "linear"),
    study("evaluate", "adaptive-v"),
    study("finetune", "linear-proxy"),
    study("evaluate", "refiner"),
]
