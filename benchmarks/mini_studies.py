"""The studies around the record: python benchmarks/mini_studies.py [STUDY ...] [--like runs] [--out runs/studies]

Each is `biasbound evaluate` with a mini preset, seed 0 unless said and a few options changed, into a folder of its own.
Those on KS have half the budget of the record, 2,500 updates and 1,250 of search, and short rollouts:

- base: nothing else changed; with the record, what twice the updates do;
- tau-…: the bound τ on the biases, that of the exploration in proportion;
- width-…: the width of the network, which is 32 in the record;
- lr-…: the learning rate, 4e-3 in the record;
- target-…: the parameterisations and targets that `base` does not have;
- ahead-24: the exploration trains all levels from its start, not the next four;
- warm-0: the final training starts anew, not from the network that the search left;
- search-…: the updates of the search, the final training anew, so that the ladder is all that a search leaves;
- total-7500: the U-Net with as many updates as an adaptive method of the record has together with its search, at the record's length.

Those on Kolmogorov flow have the budget of its record:

- kolmogorov-cold: the exploration trains all levels from its start, and the final training starts anew;
- kolmogorov-tau-1.10: a looser bound, three seeds;
- kolmogorov-unroll-…: fine-tuning over one and three frames beyond the first, two in the record, with a fifth of the training's updates.

One on the transonic cylinder has the budget of its record:

- transonic-unroll-4: fine-tuning over four frames beyond the first, two in the record.

All have the data of the record, which is copied from runs/ks-mini and so on below --like. A study that was cut off goes on;
`benchmarks/keep_run.py` keeps the record of one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from biasbound.cli import main as biasbound
from biasbound.cli.wish import wish_of
from biasbound.study.folder import open_run

SHORT = [
    "--train.updates", "2500", "--search.updates", "1250", "--rollout.trajectories", "16",
    "--rollout.steps", "100", "--rollout.members", "1",
]  # fmt: skip
RECORD = [
    "--train.updates", "7500", "--rollout.trajectories", "64", "--rollout.steps", "159",
]  # fmt: skip
THREE = ["--methods", "unet,cosine,adaptive-v"]
BASE = "unet,unet-residual,cosine,adaptive,adaptive-v,adaptive-v-residual,adaptive-v-focus"
COLD = ["--methods", "adaptive-v", "--search.warm_start", "false"]


def _tau(tau: float) -> list[str]:
    explore = 1 + 0.75 * (tau - 1)  # as 1.03 to 1.04 in the preset
    return [
        "--methods", "adaptive", "--search.tau", f"{tau}", "--search.tau_explore", f"{explore:.4f}",
    ]  # fmt: skip


KS = {
    "base": ["--methods", BASE, "--evaluate.gradients", "64"],
    **{f"tau-{tau:.2f}": _tau(tau) for tau in (1.01, 1.03, 1.05, 1.10, 1.20)},
    **{f"width-{w}": [*THREE, "--network.width", f"{w}"] for w in (16, 48)},
    "lr-0.001": [*THREE, "--train.lr", "0.001"],
    "target-eps": ["--methods", "adaptive-residual"],
    "target-x0": ["--methods", "adaptive-x0,adaptive-x0-residual"],
    "ahead-24": ["--methods", "adaptive-v", "--search.ahead", "24"],
    "warm-0": COLD,
    **{f"search-{n}": [*COLD, "--search.updates", f"{n}"] for n in (625, 2500)},
    "total-7500": ["--methods", "unet,unet-residual", *RECORD],
}  # fmt: skip
TUNED = ["--methods", "adaptive-v-residual,adaptive-v-residual-proxy", "--finetune.updates", "null"]
KOLMOGOROV = {
    "kolmogorov-cold": [
        "--methods", "adaptive-v,adaptive-v-residual", "--search.ahead", "null", "--search.rounds", "10",
        "--search.warm_start", "false",
    ],
    "kolmogorov-tau-1.10": [
        "--methods", "unet,unet-residual,adaptive-v-focus,adaptive-v-residual,adaptive-v-focus-proxy", "--seeds", "0,1,2",
        "--search.tau", "1.1", "--search.tau_explore", "1.08",
    ],
    "kolmogorov-unroll-1": [*TUNED, "--finetune.unroll", "1", "--finetune.lr", "0.001"],
    "kolmogorov-unroll-3": [*TUNED, "--finetune.unroll", "3", "--finetune.lr", "0.002"],
}  # fmt: skip
TRANSONIC = {"transonic-unroll-4": ["--methods", "adaptive-v,adaptive-v-proxy", "--finetune.unroll", "4"]}
ALL = {
    **{name: ("ks-mini", [*SHORT, *options]) for name, options in KS.items()},
    **{name: ("kolmogorov-mini", options) for name, options in KOLMOGOROV.items()},
    **{name: ("transonic-mini", options) for name, options in TRANSONIC.items()},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=", ".join(ALL))
    parser.add_argument("--like", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=Path("runs/studies"))
    given = parser.parse_args()
    if unknown := set(given.studies) - set(ALL):
        parser.error(f"there is no study {unknown.pop()}; there are {', '.join(ALL)}")
    for name in given.studies or ALL:
        folder, (preset, changed) = given.out / name, ALL[name]
        options = ["--preset", preset, "--seeds", "0", *changed, "--jobs", "1"]
        if not (folder / "01-data" / "stage.json").exists():
            shutil.rmtree(folder, ignore_errors=True)
            open_run(folder, wish_of("evaluate", [str(folder), *options]).config)
            shutil.copytree(given.like / preset / "01-data", folder / "copied")
            (folder / "copied").rename(folder / "01-data")
        if code := biasbound(["evaluate", str(folder), *options]):
            sys.exit(code)


if __name__ == "__main__":
    main()
