"""Score every kept emulator again, on test data made anew: python benchmarks/rescore.py [FOLDER ...] [--jobs 2]

Without a folder, all records below results/ that hold emulators. Each is given to `biasbound evaluate`; the exit code is 2
if an interval of any record does not hold the value of now.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from biasbound.cli import main as biasbound

RESULTS = Path(__file__).resolve().parents[1] / "results"


def records(below: Path = RESULTS) -> list[Path]:
    """Folders with a config, rows and an emulator."""
    found = sorted(path.parent for path in below.rglob("results.jsonl"))
    return [f for f in found if (f / "config.yaml").exists() and any(f.glob("0[34]-*/*/seed-*/emulator/config.json"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    codes = {
        folder: biasbound(["evaluate", str(folder), "--jobs", str(given.jobs)])
        for folder in given.folders or records()
    }
    for folder, code in codes.items():
        print(f"{folder}: {'holds' if code == 0 else 'does not hold'}")
    sys.exit(2 if any(codes.values()) else 0)


if __name__ == "__main__":
    main()
