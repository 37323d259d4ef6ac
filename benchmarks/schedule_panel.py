"""Schedules of others beside ours on one densely trained network: error against calls.

    python benchmarks/schedule_panel.py RUN/03-train/LABEL/seed-0/emulator RUN --out results/record/panel-ks [--ladders DIR]

The emulator's own levels are the grid: train it on many of them (`log-uniform-v-residual` with `baselines.levels: 24`).
Schedules are found on validation pairs of the run and scored on test pairs with fresh noise, all on the same pairs and
with the same transition. Writes OUT.jsonl, a row per schedule and number of calls; `results_figures.py panel` draws it. A
row's error is the root of the mean squared error per point in the network's units; `ratio` is that over the front's at the
same number of calls. `--ladders` keeps every schedule as DIR/NAME-CALLS.json, to be trained on:

    methods: [{schedule: DIR/ays-4.json, prediction: v, residual: true}, …]
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from biasbound.core.front import inference_error
from biasbound.core.panel import Dense, schedules
from biasbound.models.diffusion import chain_of
from biasbound.models.emulator import load
from biasbound.study.stages.material import Material, open_split, seeded


def measured(given: argparse.Namespace) -> list[dict[str, Any]]:
    emulator = load(given.emulator)
    chain = chain_of(emulator.model)
    if chain is None:
        raise SystemExit(f"{given.emulator} has no chain of noise levels")
    material = Material(partial(open_split, given.run / "01-data"))
    material.normalisation, material.mask = emulator.normalisation, emulator.mask
    task = chain.frame.task
    found, scored = (material.pairs(split, given.pairs, task) for split in ("valid", "test"))
    start = chain.rule.start if given.start == "auto" else given.start
    dense = Dense(chain, *found, chain.schedule, given.seed, given.draws, start)
    rows = []
    for name, calls, ladder in schedules(dense, given.calls):
        error = inference_error(chain, *scored, ladder, draws=given.draws, generator=seeded(given.seed + 1))
        told = {"schedule": name, "calls": calls, "error": error.mean, "stderr": error.stderr}
        rows.append({**told, "sigma": list(ladder.sigma)})
        if given.ladders is not None:
            given.ladders.mkdir(parents=True, exist_ok=True)
            ladder.save(given.ladders / f"{name}-{calls}.json")
    best = {row["calls"]: row["error"] for row in rows if row["schedule"] == "front"}
    return [{**row, "ratio": row["error"] / best[row["calls"]] if row["calls"] in best else None} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("emulator", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--calls", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=128)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", choices=["auto", "sigma", "error"], default="auto", help="σ_0 of the greedy ladder")
    parser.add_argument("--out", type=Path, default=Path("out/panel"))
    parser.add_argument("--ladders", type=Path, metavar="DIR", help="keep the schedules as files")
    given = parser.parse_args()
    torch.set_num_threads(1)
    begun, rows = time.process_time(), measured(given)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in dict.fromkeys(row["schedule"] for row in rows):
        own = {row["calls"]: row["error"] for row in rows if row["schedule"] == name}
        print(f"{name:14}", *(f"{own[k]:9.3g}" if k in own else "        –" for k in range(1, given.calls + 1)))
    print(f"{time.process_time() - begun:.0f} s of CPU")


if __name__ == "__main__":
    main()
