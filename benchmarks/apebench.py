"""Our emulators on APEBench's Kuramoto–Sivashinsky scenario: its data, protocol, size and scores.

    python benchmarks/apebench.py --seeds 0,1 --jobs 2             # every method, with Adam and with SOAP
    python benchmarks/apebench.py --methods direct-dilated-residual --optimisers adam --updates 1000
    python benchmarks/apebench.py --score results/record/apebench   # what was kept, scored again

Data and scores come from apebench 0.1.1 in an environment of its own (`--venv`, made at the first call); arrays are
exchanged as .npy files. Each method and optimiser is a study in OUT/<method>-<optimiser>, with the widest network of at
most 33,000 parameters, batches of 20 and the samples of 10,000 updates, whatever they are spent on. Adam has APEBench's
schedule (2,000 updates of warm-up to 1e-3, then a cosine to 0; no clipping, no averaged weights), SOAP ours.

The score is the geometric mean over steps 1 to 100 of the mean nRMSE; persistence must come out as 0.731. Errors of
rollouts over 100 steps are kept as OUT/errors/<method>-<optimiser>-<seed>.npz, in steps of 1/127 of the largest of each
frame, which changes no score by more than 1e-4 of itself, scores as OUT/scores.json, and where they come from as
OUT/provenance.json. A call that was cut off goes on where it was; further seeds and methods are added to what is there. A
record may keep the errors of a few seeds only: `--score` scores those again, and fails where a score has changed; scores
of the others stay as they are.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import venv
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from results_record import PUBLISHED

from biasbound.cli import main as biasbound
from biasbound.models.method import Method, method
from biasbound.models.model import MODELS
from biasbound.nets import NetSpec
from biasbound.registry import find

HERE = Path(__file__).parent
APEBENCH, MOST, BATCH, POINTS = "apebench==0.1.1", 33_000, 20, 160
PERSISTENCE = 0.731
SAME = 1e-3  # of a score: what rounding and another version of a library may change
METHODS = "direct-residual,direct-dilated-residual,adaptive-scaled-residual,adaptive-dilated-scaled-residual"
TRAININGS: dict[str, dict[str, Any]] = {
    "adam": {"optimiser": "adam", "lr": 1e-3, "warmup": 0.2, "clip": None, "ema": None},  # of all updates
    "soap": {"optimiser": "soap", "lr": 4e-3, "warmup": 0.0},
}
COMPILED = {"compile": True, "evaluations": 2}
TOLD = ("commit", "dirty", "machine", "python", "torch", "threads", "started", "cpu_seconds")  # of a training
SEARCH = {"mode": "grow", "statistic": "pooled", "levels": 10, "rounds": 4, "ahead": 4, "rule": "paired", "pairs": 256}


def environment(folder: Path) -> Path:
    """A Python that has apebench, made at the first call."""
    python, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", APEBENCH], check=True)
        ready.touch()
    return python


def side(python: Path, *words: Any) -> str:
    """What `apebench_side.py` prints; -P, because this file has the name of the package."""
    command = [str(python), "-P", str(HERE / "apebench_side.py"), *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def widest(chosen: Method, most: int = MOST) -> tuple[dict[str, Any], int]:
    """Options of the widest network of a method with at most so many parameters, and how many it has."""
    name, noisy = chosen.network or "unet", find(MODELS, chosen.model).noisy
    found: tuple[dict[str, Any], int] | None = None
    for width in range(4, 200):
        options = {"width": width, "embedding": 32}
        spec = chosen.widened(NetSpec(name, 1, 1, (POINTS,), ("periodic",), options).resolved())
        count = sum(p.numel() for p in spec.build(noisy).parameters())
        if count > most:
            break
        found = options, count
    if found is None:
        raise SystemExit(f"{chosen.label} has no network of at most {most} parameters")
    return found


def config(chosen: Method, optimiser: str, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """The study of one method and optimiser."""
    options, _ = widest(chosen)
    training = dict(TRAININGS[optimiser])
    training["warmup"] = round(training["warmup"] * given.updates)
    network = {"others": {chosen.network: options}} if chosen.network else options
    files = {split: str((folder / f"{name}.npy").resolve()) for split, name in SPLITS.items()}
    return {
        "methods": [chosen.label],
        "seeds": [int(seed) for seed in given.seeds.split(",")],
        "data": {"dataset": "apebench-ks", **files},
        "network": network,
        "search": SEARCH,
        "train": {**training, "batch": BATCH, "updates": given.updates, "budget": given.updates * BATCH, **COMPILED},
        "evaluate": {"steps": [1, 10, 100]},
    }


SPLITS = {"train": "train", "valid": "train", "test": "test"}  # APEBench has no validation data


def study(label: str, optimiser: str, given: argparse.Namespace) -> None:
    """Train and roll out, and keep the errors of the rollouts."""
    run, chosen = given.out / f"{label}-{optimiser}", method(label)
    path = given.out / f"{label}-{optimiser}.yaml"
    path.write_text(yaml.safe_dump(config(chosen, optimiser, given.out / "data", given)))
    if biasbound(["evaluate", str(run), "--config", str(path), "--jobs", str(given.jobs), "--redo"]):
        sys.exit(2)
    truth = np.load(given.out / "data/test.npy")[:, 1:101]
    (given.out / "errors").mkdir(exist_ok=True)
    found = {}
    for place in sorted(run.glob(f"05-rollout/{label}/seed-*")):
        error, name = np.load(place / "prediction.npy")[0, :, :100] - truth, f"{label}-{optimiser}-{place.name[5:]}"
        keep(given.out / "errors" / f"{name}.npz", error)
        told = json.loads((run / "03-train" / label / place.name / "stage.json").read_text())
        found[name] = {key: told[key] for key in TOLD}
    path = given.out / "provenance.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(dict(sorted({**known, **found}.items())), indent=1) + "\n")


def keep(path: Path, error: np.ndarray) -> None:
    """Errors (S, K, C, N) as bytes, with the largest of each frame."""
    most = np.maximum(np.abs(error).max((2, 3), keepdims=True), np.finfo(np.float32).tiny)
    np.savez_compressed(
        path, bytes=np.round(127 * error / most).astype(np.int8), scale=(most / 127).astype(np.float32)
    )


def merged(rows: list[dict[str, Any]], path: Path) -> list[dict[str, Any]]:
    """Scores of now, and those that a record has of seeds whose errors it does not keep."""
    old = {row["name"]: row for row in json.loads(path.read_text())} if path.exists() else {}
    for row in rows:
        if (known := old.get(row["name"])) and abs(row["score"] / known["score"] - 1) > SAME:
            raise SystemExit(f"{row['name']} scores {row['score']:.5g}, and {path} says {known['score']:.5g}")
    return [rows[0], *sorted({**old, **{row["name"]: row for row in rows}}.values(), key=_place)[1:]]


def _place(row: dict[str, Any]) -> tuple[bool, str, int]:
    """Persistence first, then by method, then by seed."""
    name, _, seed = row["name"].rpartition("-")
    return row["name"] != "persistence", name, int(seed) if seed.isdigit() else 0


def report(python: Path, folder: Path, data: Path) -> None:
    """Score kept errors by APEBench's functions; print medians and quartiles over seeds."""
    rows = json.loads(side(python, "score", data, *sorted((folder / "errors").glob("*.npz"))).splitlines()[-1])
    if abs(rows[0]["score"] - PERSISTENCE) > 5e-4:
        raise SystemExit(f"persistence scores {rows[0]['score']:.4f}, not {PERSISTENCE}: the bridge is not sound")
    rows = merged(rows, folder / "scores.json")
    (folder / "scores.json").write_text(json.dumps(rows, indent=1) + "\n")
    groups: dict[str, list[float]] = {}
    for row in rows:
        groups.setdefault(row["name"].rpartition("-")[0] or row["name"], []).append(row["score"])
    for name, (median, low, high, size) in PUBLISHED.items():
        print(
            f"{f'published: {name}, {size:,} parameters':44} {median:.3f}"
            + (f" [{low:.3f}, {high:.3f}]" if low else "")
        )
    for name, scores in groups.items():
        quartiles = statistics.quantiles(scores, n=4, method="inclusive") if len(scores) > 1 else []
        ends = f" [{quartiles[0]:.3g}, {quartiles[2]:.3g}]" if quartiles else ""
        print(f"{name:44} {statistics.median(scores):.3g}{ends}  {len(scores)} seed{'s' * (len(scores) > 1)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, default=HERE.parent / "build" / "apebench")
    parser.add_argument("--out", type=Path, default=Path("runs/apebench"))
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--optimisers", default="adam,soap")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--score", type=Path, metavar="FOLDER", help="only score the errors that a folder keeps")
    given = parser.parse_args()
    python, data = environment(given.venv), given.out / "data"
    if not (data / "test.npy").exists():
        data.mkdir(parents=True, exist_ok=True)
        side(python, "data", data)
    if given.score is None:
        for label, optimiser in product(given.methods.split(","), given.optimisers.split(",")):
            print(f"{label}, {optimiser}: {widest(method(label))[1]:,} parameters", flush=True)
            study(method(label).label, optimiser, given)
    report(python, given.score or given.out, data)


if __name__ == "__main__":
    main()
