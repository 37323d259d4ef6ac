"""What a step costs, for every emulator of records of one flow: python benchmarks/step_speed.py RUN RECORD [RECORD ...]

RUN is any run of the flow: its test data are where rollouts start. Writes RECORD/speed.json, the milliseconds of CPU time
that a step of one trajectory takes on one thread. Give all records of a flow at once, on idle cores: machines differ.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from record import circumstances

from biasbound.data.trajectories import Trajectories
from biasbound.models.emulator import load
from biasbound.models.method import GUESSES
from biasbound.study.config import RolloutConfig
from biasbound.study.graph import methods_of
from biasbound.study.parsing import read_config
from biasbound.study.stages.material import open_split
from biasbound.study.stages.rollout import roll

STEPS, ROUNDS = 10, 5


def milliseconds(record: Path, test: Trajectories) -> dict[str, float]:
    """Of a step, for each method that has an emulator: the median of rounds after one that warms up."""
    found, options = {}, RolloutConfig(trajectories=1, steps=STEPS)
    for label, method in methods_of(read_config(record / "config.yaml").methods).items():
        places = sorted(record.glob(f"0[34]-*/{method.emulated.label}/seed-*/emulator"))
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
    parser.add_argument("records", type=Path, nargs="+", metavar="RECORD")
    given = parser.parse_args()
    torch.set_num_threads(1)
    test = open_split(given.run / "01-data", "test")
    for record in given.records:
        told = {"milliseconds": milliseconds(record, test), **circumstances("torch")}
        (record / "speed.json").write_text(json.dumps(told, indent=1) + "\n")
        print(f"{record}: {len(told['milliseconds'])} methods")


if __name__ == "__main__":
    main()
