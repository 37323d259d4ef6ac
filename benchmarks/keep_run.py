"""Keep the record of a run: python benchmarks/keep_run.py RUN results/NAME [--curves] [--emulators [SEED …]] [--speed]

Copies results.jsonl, config.yaml, the searched schedules, the schedule files of methods, and the provenance of every unit
(commit, machine, seed, times); with --curves also what was measured during search, training and evaluation, from which
figures are drawn; with --emulators the emulators too, of all seeds or of those given, which `biasbound evaluate` scores
again; with --speed the milliseconds of CPU time that a step of one trajectory takes on one thread, for every method, as
speed.json.
"""

import argparse
import json
import shutil
import statistics
import time
from pathlib import Path

import torch
from record import circumstances

from biasbound.models.emulator import load
from biasbound.models.method import GUESSES
from biasbound.study.config import RolloutConfig
from biasbound.study.graph import methods_of
from biasbound.study.parsing import read_config
from biasbound.study.stages.material import open_split
from biasbound.study.stages.rollout import roll

STEPS, ROUNDS = 10, 5


def homed(out: Path) -> None:
    """Schedule files of methods come into the record, and all that names them names them there."""
    for method in methods_of(read_config(out / "config.yaml").methods).values():
        if method.file is None:
            continue
        new = out / method.file.name
        shutil.copy(method.file, new)
        for path in [p for p in out.rglob("*") if p.suffix in (".json", ".yaml")]:
            path.write_text(path.read_text().replace(f"{method.file}", new.as_posix()))


def milliseconds(run: Path) -> dict[str, float]:
    """Of a step, for each method that has an emulator: the median of rounds after one that warms up."""
    torch.set_num_threads(1)
    test, found = open_split(run / "01-data", "test"), {}
    options = RolloutConfig(trajectories=1, steps=STEPS)
    for label, method in methods_of(read_config(run / "config.yaml").methods).items():
        places = sorted(run.glob(f"0[34]-*/{method.emulated.label}/seed-*/emulator"))
        if label in GUESSES or not places:
            continue
        emulator, taken = load(places[0]), []
        method.sampled(emulator.model)
        for _ in range(1 + ROUNDS):
            begun = time.process_time()
            roll(emulator, test, options)
            taken.append((time.process_time() - begun) * 1e3 / STEPS)
        found[label] = round(statistics.median(taken[1:]), 3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("--emulators", type=int, nargs="*", metavar="SEED", help="of these seeds, or of all")
    parser.add_argument("--speed", action="store_true")
    given = parser.parse_args()
    shutil.rmtree(given.out, ignore_errors=True)  # nothing of an earlier record stays
    given.out.mkdir(parents=True)
    for name in ("results.jsonl", "config.yaml"):
        shutil.copy(given.run / name, given.out / name)
    units = {}
    for path in sorted(given.run.glob("0[1-6]-*/**/stage.json")):
        told = json.loads(path.read_text())
        units[told["unit"]] = {k: v for k, v in told.items() if k not in ("config", "unit")}
    (given.out / "provenance.json").write_text(json.dumps(units, indent=1) + "\n")
    wanted = ["0[23]-*/*/seed-*/schedule.json"]
    if given.curves or given.emulators is not None:
        wanted += [
            "0[23]-*/*/seed-*/landscape.json",
            "03-train/*/seed-*/growth.json",
            "03-train/*/seed-*/front.json",
            "02-search/*/seed-*/exploration.json",
            "0[234]-*/*/seed-*/log.jsonl",
            "0[34]-*/*/seed-*/chain.jsonl",
            "06-*/*/seed-*/bias.json",
            "06-*/*/seed-*/gradients.json",
        ]
    if given.emulators is not None:
        for seed in given.emulators or ["*"]:
            wanted += [f"0[34]-*/*/seed-{seed}/emulator/*", f"0[2-4]-*/*/seed-{seed}/stage.json"]
        if given.emulators:
            (given.out / "kept.json").write_text(json.dumps({"seeds": given.emulators}) + "\n")
    if given.speed:
        told = {"milliseconds": milliseconds(given.run), **circumstances("torch")}
        (given.out / "speed.json").write_text(json.dumps(told, indent=1) + "\n")
    for pattern in wanted:
        for path in sorted(given.run.glob(pattern)):
            target = given.out / path.relative_to(given.run)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    homed(given.out)
    kept = [p for p in given.out.rglob("*") if p.is_file()]
    print(f"{given.out}: {len(kept)} files, {sum(p.stat().st_size for p in kept) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
