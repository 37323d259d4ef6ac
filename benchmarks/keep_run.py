"""Keep the record of a run: python benchmarks/keep_run.py RUN results/NAME [--curves] [--emulators]

Copies results.jsonl, config.yaml, the searched schedules and the provenance of every unit (commit, machine, seed, times);
with --curves also what was measured during search, training and evaluation, from which figures are drawn; with --emulators
the emulators too, which `biasbound evaluate` scores again.
"""

import argparse
import json
import shutil
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("--emulators", action="store_true")
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
    if given.curves or given.emulators:
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
    if given.emulators:
        wanted += ["0[34]-*/*/seed-*/emulator/*", "0[2-4]-*/*/seed-*/stage.json"]
    for pattern in wanted:
        for path in sorted(given.run.glob(pattern)):
            target = given.out / path.relative_to(given.run)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    kept = [p for p in given.out.rglob("*") if p.is_file()]
    print(f"{given.out}: {len(kept)} files, {sum(p.stat().st_size for p in kept) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
