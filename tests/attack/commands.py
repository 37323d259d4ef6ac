"""A folder with small inputs, and the commands that are stopped in it: every command that writes, and every stage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from data_files import flow
from emulators import emulator
from kills import Command, called
from toys import advected

from biasbound.core.schedule import linear
from biasbound.data.formats import save
from biasbound.data.trajectories import Trajectories

SETTINGS = {
    "data.settings": json.dumps({"trajectories": 3, "frames": 24}),
    "train.updates": "6",
    "train.evaluations": "1",
    "train.checkpoint_every": "2",
    "train.log_every": "2",
    "train.pairs": "4",
    "train.batch": "4",
    "rollout.steps": "3",
    "evaluate.pairs": "4",
    "evaluate.gradients": "0",
    "evaluate.steps": "1,3",
    "search.pairs": "4",
    "search.levels": "4",
    "search.rounds": "2",
    "search.updates": "4",
}
TINY = ("--preset", "ks-smoke", *(word for name, value in SETTINGS.items() for word in (f"--{name}", value)))
STUDY = ("run/0[1-6]*/**/*.h5", "run/0*/**/*.safetensors", "run/0*/**/*.npy", "run/results.jsonl", "run/config.yaml")
REPORT = ("run/07-report/*.html", "run/07-report/*.csv", "run/07-report/*.md", "run/07-report/**/*.png")


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


def with_studies(folder: Path) -> Path:
    """The same inputs, and a finished study, a second one, and its record."""
    ended = called(study("evaluate", "direct"), inputs(folder))
    if ended.status:
        raise RuntimeError(f"the study to compare with ended with status {ended.status}")
    shutil.copytree(folder / "run", folder / "other")
    record = folder / "record"
    for part in (folder / "run/03-train").rglob("emulator"):
        shutil.copytree(part, record / part.relative_to(folder / "run"))
    for name in ("config.yaml", "results.jsonl"):
        shutil.copy(folder / "run" / name, record / name)
    return folder


def study(verb: str, *methods: str, jobs: int = 1) -> Command:
    """A study command, up to its stage, for a few methods."""
    only = ("--method", ",".join(methods)) if verb != "run" else ()
    words = (verb, "run", *TINY, "--jobs", str(jobs), "--methods", ",".join(methods), *only)
    return Command(f"{verb} {','.join(methods)}", words, STUDY, resumes=True)


def _command(name: str, line: str, *results: str, resumes: bool = False, studies: bool = False) -> Command:
    return Command(name, tuple(line.split()), results, resumes, studies)


PREDICT = "predict e --data waves.h5 --members 2 --steps 4 --force --out"
FLOW = "--size smoke --trajectories 2 --jobs 1 --out k.h5"
MEASURED = "--data waves.h5 --pairs 4 --draws 1"
QUICK = [
    _command("data ks", f"data ks {FLOW} --set frames=5", "k.h5"),
    _command("convert to native", "data convert flow.h5 c.h5 --force", "c.h5"),
    _command("convert to NetCDF", "data convert flow.h5 c.nc --force", "c.nc"),
    _command("convert to NumPy", "data convert flow.h5 c.npy --force", "c.npy"),
    _command("convert to Zarr", "data convert waves.h5 c.zarr", "c.zarr/**/*"),
    _command("schedule make", "schedule make linear -T 8 --out s.json", "s.json"),
    _command("schedule export", "schedule export l.json --format csv --out s.csv", "s.csv"),
    _command("predict h5", f"{PREDICT} p.h5", "p.h5"),
    _command("predict nc", f"{PREDICT} p.nc", "p.nc"),
    _command("predict npy", f"{PREDICT} q.npy", "q.npy"),
    _command("score", "score p.npy --truth waves.h5 --out rows.jsonl", "rows.jsonl"),
]
MORE = [
    _command("data kolmogorov", f"data kolmogorov {FLOW}", "k.h5"),
    _command("data info --plot", "data info flow.h5 --plot a.png --force", "a.png"),
    _command("schedule plot", "schedule plot l.json --out a.png", "a.png"),
    _command("schedule front", f"schedule front e {MEASURED} --calls 2 --out f.json", "f.json"),
    _command("diagnose", f"diagnose e {MEASURED} --levels 4 --tau 9 --out d", "d/*.json", resumes=True),
    _command("compare", "compare run other --out c", "c/*", resumes=True, studies=True),
    _command("report", "report run", *REPORT, resumes=True, studies=True),
    _command(
        "evaluate RECORD",
        "evaluate record --jobs 1",
        "runs/**/*.npy",
        "runs/**/results.jsonl",
        resumes=True,
        studies=True,
    ),
    _command("export", "export e --out e.pt2", "e.pt2"),
    _command(
        "fit", "fit waves.h5 --updates 6 --jobs 1 --out f", "f/**/*.safetensors", "f/results.jsonl", resumes=True
    ),
]
STUDIES = [
    study("run", "direct", "linear"),
    study("search", "adaptive-v"),
    study("train", "direct", "member"),
    study("finetune", "linear-proxy"),
    study("rollout", "cosine-v-residual"),
    study("evaluate", "adaptive-v"),
    study("evaluate", "refiner"),
]
DEAR = ("data info --plot", "diagnose", "compare", "report", "evaluate RECORD", "fit", "run direct,linear")
BESIEGED = [  # 100 chunks: what is quick more often
    *5 * QUICK,
    *4 * [command for command in MORE if command.name not in (*DEAR, "export")],
    *3 * [command for command in STUDIES if command.name not in DEAR],
    *2 * [command for command in (*MORE, *STUDIES) if command.name in DEAR],
    next(command for command in MORE if command.name == "export"),
]
