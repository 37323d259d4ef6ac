r"""Accuracy, spread and sharpness of a task as τ and σ_0 vary: python benchmarks/task_study.py RUN OUT [--method LABEL]

The paper's discussion asks for this balance. One network, trained on all levels of a fixed schedule in RUN, is asked along
ladders of these levels, so that nothing but the ladder varies. First τ: the paper's greedy ladder from the lowest level whose
own bias τ allows. Then σ_0: the greedy ladder from each level up, at the τ of `--at`. Ladders are found on validation pairs and
scored on test frames, in the network's units. Writes OUT.png and OUT.json, and prints a table.

Beside the spread stands a law. Members ŷ do not know y, so that E‖ŷ − y‖² = spread² + skill². With REB = E‖ŷ − y‖/E_clean(σ_0)
of root mean squares, and skill ≥ E_clean(σ_0),

    spread/skill ≤ √(REB² − 1)

A calibrated ensemble (1) has a REB of √2 at least: where the posterior is wide, a bound τ below it forbids one.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from jaxtyping import Float
from torch import Tensor

from biasbound.core.bias import Measure, TwoStepTable, stability
from biasbound.core.crps import crps
from biasbound.core.noise import draw, renoise
from biasbound.core.sample import sample
from biasbound.core.schedule import Schedule
from biasbound.core.search import greedy_schedule
from biasbound.metrics.spectra import band_energies
from biasbound.models.diffusion import Diffusion, chain_of
from biasbound.models.emulator import load
from biasbound.study.stages.material import Material, open_split, seeded

TAUS = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0)
PANELS = {
    "RMSE of the mean": "rmse",
    "CRPS": "crps",
    "spread/skill": "spread_skill",
    "high-band energy/truth": "sharpness",
}


@dataclass(frozen=True)
class Found:
    """One ladder and the scores of its members; `reb` and the spread are of root mean squares."""

    varied: str
    value: float
    levels: tuple[float, ...]
    rmse: float
    crps: float
    spread_skill: float
    sharpness: float
    reb: float

    @property
    def limit(self) -> float:
        """What the bias leaves to spread/skill."""
        return math.sqrt(max(0.0, self.reb**2 - 1))

    def line(self) -> str:
        numbers = [self.rmse, self.crps, self.spread_skill, self.sharpness, self.reb, self.limit]
        cells = [self.varied, f"{self.value:.3g}", len(self.levels), f"{self.levels[0]:.3g}"]
        return f"| {' | '.join(map(str, [*cells, *(f'{number:.3g}' for number in numbers)]))} |"


@torch.no_grad()
def scored(model: Diffusion, x: Tensor, y: Tensor, ladder: Schedule, members: int) -> dict[str, float]:
    """Scores of one ladder on pairs (x, y); every ladder starts from the same noise."""
    noise = seeded(0)
    made = torch.stack([sample(model, x, ladder, generator=noise, like=y) for _ in range(members)])
    errors, bottom = made - y, ladder.level(0)
    cleanly = model(renoise(y, bottom, draw(y, noise)), x, bottom) - y
    variance = made.var(0, correction=1).mean()
    skill = (errors.mean(0).square().mean() - variance / members).sqrt()  # of the mean of infinitely many members
    energies = (band_energies(field, y.ndim - 2)[:, 2].mean() for field in (made[0], y))
    return {
        "rmse": skill.item(),
        "crps": crps(errors).mean().item(),
        "spread_skill": (variance.sqrt() / skill).item(),
        "sharpness": float(next(energies) / next(energies)),
        "reb": (rms(errors) / rms(cleanly)).item(),
    }


def rms(error: Float[Tensor, ...]) -> Float[Tensor, ""]:
    return error.square().mean().sqrt()


def sweeps(
    levels: Sequence[float],
    own: dict[float, float],
    table: Callable[[float, float], float],
    taus: Sequence[float],
    at: float,
) -> list[tuple[str, float, Schedule]]:
    """(what varied, its value, the ladder)."""
    top = levels[-1]

    def greedy(usable: Sequence[float], tau: float) -> Schedule:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a forced jump is part of what is measured
            return greedy_schedule([*usable, top], table, tau)

    by_tau = [("τ", tau, greedy([s for s in levels if own[s] <= tau], tau)) for tau in taus]
    starts = levels[:-1:2]
    return by_tau + [("σ_0", s, greedy([one for one in levels if one >= s], at)) for s in starts]


def figure(found: Sequence[Found], whole: Found, title: str, path: Path) -> None:
    """One row per sweep: a panel per score, and the spread beside what the bias allows."""
    names = list(dict.fromkeys(one.varied for one in found))
    made, axes = plt.subplots(len(names), len(PANELS), figsize=(12.4, 3.0 * len(names)), squeeze=False)
    for row, name in zip(axes, names, strict=True):
        runs = [one for one in found if one.varied == name]
        for axis, (panel, field) in zip(row, PANELS.items(), strict=True):
            axis.plot([getattr(one, field) for one in runs], "o-", label="greedy ladder")
            axis.axhline(
                getattr(whole, field), color="C1", ls="--", lw=1, label=f"whole schedule, {len(whole.levels)} calls"
            )
            if field == "spread_skill":
                limits = [min(one.limit, 1.5) for one in runs]
                axis.plot(limits, "v:", color="C2")
                axis.set_ylim(0, 1.55)
            if field in ("spread_skill", "sharpness"):
                axis.axhline(1, color="0.7", lw=0.8, zorder=0)
            axis.set_xticks(range(len(runs)), [f"{one.value:.2f}\n{len(one.levels)}" for one in runs], fontsize=7)
            axis.set_xlabel(f"{name}, and network calls", fontsize=8)
            axis.set_title(panel, fontsize=10)
            axis.set_box_aspect(0.75)
    axes[0, 0].legend(fontsize=7)
    axes[0, 2].legend(axes[0, 2].lines[2:3], ["limit √(REB² − 1)"], fontsize=7, loc="upper left")
    made.suptitle(title)
    made.tight_layout()
    made.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path, help="without a suffix")
    parser.add_argument("--method", default="cosine-v-residual", help="what RUN trained on many levels")
    parser.add_argument("--title", default="")
    parser.add_argument("--at", type=float, default=2.0, help="τ while σ_0 varies")
    parser.add_argument("--pairs", type=int, default=128, help="of the validation and of the test data")
    parser.add_argument("--members", type=int, default=8)
    given = parser.parse_args()
    model = chain_of(load(given.run / "03-train" / given.method / "seed-0" / "emulator").model)
    if model is None:
        raise SystemExit(f"{given.method} has no chain of levels: name a diffusion model")
    material = Material(lambda split: open_split(given.run / "01-data", split))
    task, levels = model.frame.task, model.schedule.sigma
    told: dict[str, Any] = {"draws": 2, "transition": model.transition, "batch_size": 128}
    x, y = material.pairs("valid", given.pairs, task)
    own = {s: stability(model, x, y, s, Measure(generator=seeded(1), **told)).own.mean for s in levels}
    table = TwoStepTable(dict.fromkeys(levels, model), x, y, Measure(generator=seeded(2), **told))
    chosen = sweeps(levels, own, lambda to, start: table(to, start).mean, TAUS, given.at)
    x, y = material.pairs("test", given.pairs, task)
    whole = Found("all levels", 0, levels, **scored(model, x, y, model.schedule, given.members))
    print("| varied | value | calls | σ_0 | RMSE of the mean | CRPS | spread/skill | high-band energy | REB | limit |")
    print("| :-- " + "| --: " * 9 + "|")
    print(whole.line(), flush=True)
    found = []
    for varied, value, ladder in chosen:
        found.append(Found(varied, value, ladder.sigma, **scored(model, x, y, ladder, given.members)))
        print(found[-1].line(), flush=True)
    figure(found, whole, given.title or f"{given.run.name}, {given.method}", given.out.with_suffix(".png"))
    kept = json.dumps({"whole": asdict(whole), "found": [asdict(one) for one in found]}, indent=1)
    given.out.with_suffix(".json").write_text(kept + "\n")


if __name__ == "__main__":
    main()
