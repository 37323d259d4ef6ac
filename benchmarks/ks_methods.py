"""Every method on Kuramoto–Sivashinsky with the same number of updates, one command each.

    python benchmarks/ks_methods.py linear              # trains (or goes on), prints its row and keeps it
    python benchmarks/ks_methods.py adaptive-v --updates 2000
    python benchmarks/ks_methods.py --table             # all rows kept so far

64-point grid (every 4th of 256), step 0.8, as behind the paper's numbers. Rows go to results/ks_methods.jsonl.
"""

import argparse
import json
import platform
import subprocess
import time
import warnings
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from biasbound.adapt import Explorer, SearchOptions, ladder
from biasbound.bias import bias_curve
from biasbound.data import ks
from biasbound.data.batches import Batch
from biasbound.data.formats import load
from biasbound.data.generate import generate
from biasbound.data.trajectories import Trajectories
from biasbound.emulate import Emulator, Normalisation
from biasbound.fit import FitOptions, Trainer
from biasbound.methods import Method, method
from biasbound.nets import mini
from biasbound.noise import Schedule
from biasbound.search import ForcedTransition
from biasbound.track import JsonlLog, ProgressBar

SIZES = {"train": 256, "valid": 16, "test": 32}


def data(home: Path, split: str) -> Trajectories:
    """Trajectories of one split, made once, at the benchmark's resolution, in memory."""
    path = home / f"ks-{split}.h5"
    if not path.exists():
        source = ks.preset("paper", split, trajectories=SIZES[split], frames=140)
        generate(source, path, workers=1)
    return load(path).stride(time=4, space=4).load()


class Study:
    """What all methods share: data, normalisation, pairs to measure on."""

    def __init__(self, home: Path) -> None:
        self.train, valid, test = (data(home, split) for split in SIZES)
        found = self.train.statistics
        self.normalisation = Normalisation(tuple(found.mean), tuple(found.std))
        self.scale = float(np.sqrt(np.mean((found.increment_std / found.std) ** 2)))
        self.valid, self.test = (self._pairs(t, 512) for t in (valid, test))

    def _pairs(self, of: Trajectories, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        windows = of.pairs()
        batch = windows[np.linspace(0, len(windows) - 1, count).astype(np.int64)]
        return batch.x, batch.y

    def batches(self, chosen: Method):
        windows = self.train.windows(chosen.window)

        def batch(index):
            raw = windows[index]
            return Batch(self.normalisation.encode(raw.frames, 2), raw.conditions)

        return batch, len(windows)

    def normalised(self, pairs):
        return tuple(self.normalisation.encode(p) for p in pairs)


def fit(study, chosen, model, schedule, folder, options, name):
    batch, items = study.batches(chosen)
    folder.mkdir(parents=True, exist_ok=True)
    observers = [ProgressBar(name), JsonlLog(folder / "log.jsonl")]
    return Trainer(
        model, chosen.loss(schedule), batch, items, options, folder=folder, observers=observers
    )


def searched(study, chosen, network, home, options, search):
    """The schedule of Phases 1 and 2, kept in the run's folder."""
    path = home / "schedule.json"
    if path.exists():
        return Schedule.load(path)
    explorer = Explorer(search)
    torch.manual_seed(options.seed)
    model = chosen.model(network, study.scale)
    trainer = fit(
        study, chosen, model, lambda: explorer.active, home / "explore", options, "explore"
    )
    x, y = (p[:: max(1, len(p) // 96)][:96] for p in study.normalised(study.valid))
    found = explorer.run(trainer, x, y)
    schedule, table = ladder(explorer.denoisers(trainer, found), x, y, search)
    landscape = [[to, start, b.mean, b.stderr] for to, start, b in table.matrix()]
    (home / "landscape.json").write_text(json.dumps({"levels": table.levels, "biases": landscape}))
    schedule.save(path)
    return schedule


def run(label: str, home: Path, options: FitOptions, search: SearchOptions) -> dict:
    started, cpu = time.perf_counter(), time.process_time()
    chosen, study = method(label), Study(home)
    network = mini()
    folder = home / label
    folder.mkdir(parents=True, exist_ok=True)
    schedule = chosen.schedule()
    base = chosen
    if chosen.proxy:  # fine-tune the model of the label without it
        base = method(label.removesuffix("-proxy"))
        run(base.label, home, options, search)
        folder_base = home / base.label
    if base.base == "adaptive":
        schedule = searched(study, base, network, home / base.label, options, search)
    torch.manual_seed(options.seed)
    model = base.model(network, study.scale)
    if chosen.proxy:
        start = fit(
            study, base, model, lambda: schedule, folder_base / "train", options, base.label
        )
        model.load_state_dict(start.averaged.state_dict())
        tuned = FitOptions(
            **{**asdict(options), "updates": options.updates // 5, "lr": options.lr / 10}
        )
        trainer = fit(study, chosen, model, lambda: schedule, folder / "train", tuned, label).run()
    else:
        trainer = fit(
            study, chosen, model, lambda: schedule, folder / "train", options, label
        ).run()
    row = evaluate(label, study, trainer.averaged, schedule)
    row |= {
        "updates": options.updates,
        "seed": options.seed,
        "seconds": round(time.perf_counter() - started, 1),
    }
    row |= {"cpu_seconds": round(time.process_time() - cpu, 1), **provenance()}
    return row


def evaluate(label, study, model, schedule) -> dict:
    emulator = Emulator(model, study.normalisation, ("u",), 0.8, schedule)
    x, y = study.test
    predicted = emulator.step(x, generator=torch.Generator().manual_seed(0))
    error = (predicted - y).square().flatten(1).mean(1)
    row = {
        "method": label,
        "nfe": emulator.nfe,
        "mse": error.mean().item(),
        "mse_stderr": (error.std() / len(error) ** 0.5).item(),
        "mse_norm": (error.mean() / study.normalisation.std[0] ** 2).item(),
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    if schedule is not None:
        generator = torch.Generator().manual_seed(1)
        pairs = [p[::4] for p in study.normalised(study.test)]
        rows = bias_curve(model, *pairs, schedule, draws=2, generator=generator, batch_size=128)
        row["sigma"] = [float(f"{r.sigma:.5g}") for r in rows]
        row["reb"] = [round(r.reb.mean, 4) for r in rows]
        row["forced"] = len(schedule.meta.get("forced", []))
    return row


def provenance() -> dict:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "commit": commit.stdout.strip(),
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, 1 thread",
    }


def show(rows: list[dict]) -> None:
    print(
        "| method | NFE | one-step MSE | normalised | REB at the levels, from the lowest | CPU seconds |\n|---|---|---|---|---|---|"
    )
    for row in rows:
        reb = row.get("reb")
        span = (
            ""
            if reb is None
            else ", ".join(f"{b:.2f}" for b in reb[:8]) + (" …" if len(reb) > 8 else "")
        )
        print(
            f"| {row['method']} | {row['nfe']} | {row['mse']:.2e} ± {row['mse_stderr']:.0e} | {row['mse_norm']:.2e} | {span} | {row['cpu_seconds']} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("label", nargs="?")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tau-explore", type=float, default=1.05)
    parser.add_argument("--home", type=Path, default=Path("out/ks_methods"))
    parser.add_argument("--rows", type=Path, default=Path("results/ks_methods.jsonl"))
    args = parser.parse_args()
    rows = (
        [json.loads(line) for line in args.rows.read_text().splitlines()]
        if args.rows.exists()
        else []
    )
    if args.label is not None:
        torch.set_num_threads(1)
        warnings.simplefilter("always", ForcedTransition)
        args.home.mkdir(parents=True, exist_ok=True)
        options = FitOptions(
            updates=args.updates, batch=32, seed=args.seed, lr=1e-3, checkpoint_every=250
        )
        search = SearchOptions(tau_explore=args.tau_explore)
        row = run(args.label, args.home, options, search)
        kept = [
            r
            for r in rows
            if (r["method"], r["seed"], r["updates"])
            != (row["method"], row["seed"], row["updates"])
        ]
        args.rows.parent.mkdir(exist_ok=True)
        args.rows.write_text("".join(json.dumps(r) + "\n" for r in [*kept, row]))
        show([row])
    if args.table:
        show(rows)


if __name__ == "__main__":
    main()
