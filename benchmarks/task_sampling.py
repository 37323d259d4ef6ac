"""How much of a task's CRPS is the sampler's, and how much the network's: python benchmarks/task_sampling.py RUN

One network, trained on all levels of a fixed schedule in RUN, answers along its whole schedule and along the ladder of least
CRPS with at most `--calls` calls, by each transition; and along ddim's ladder by DPM-Solver++(2M). Ladders are found on
validation pairs, each with its own transition, and all are scored once on test pairs, in the network's units. Prints a table.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from biasbound.core.crps import crps
from biasbound.core.front import at_most, optimal_schedules
from biasbound.core.noise import draw
from biasbound.core.ode import multistep
from biasbound.core.sample import Transition, sample
from biasbound.core.schedule import Schedule
from biasbound.models.diffusion import Diffusion, chain_of
from biasbound.models.emulator import load
from biasbound.study.stages.material import Material, open_split, seeded

Draw = Callable[[torch.Generator], Tensor]


def second_order(model: Diffusion, x: Tensor, y: Tensor, ladder: Schedule, noise: torch.Generator) -> Tensor:
    """A sample by two estimates per step, on the ratios r = σ/√ᾱ that the solver knows."""
    ratios = [s / math.sqrt(1 - s * s) for s in reversed(ladder.sigma)]

    def estimate(z: Tensor, r: float) -> Tensor:
        return model(z / math.sqrt(1 + r * r), x, r / math.sqrt(1 + r * r))

    return multistep(estimate, math.sqrt(1 + ratios[0] ** 2) * draw(y, noise), [*ratios, 0.0])


@torch.no_grad()
def line(name: str, ladder: Schedule, one: Draw, y: Tensor, members: int, beside: float | None) -> tuple[str, float]:
    """A row of the table, and its CRPS."""
    noise = seeded(9)
    made = torch.stack([one(noise) for _ in range(members)])
    errors = made - y
    variance, score = made.var(0, correction=1).mean(), crps(errors).mean().item()
    skill = (errors.mean(0).square().mean() - variance / members).sqrt()
    numbers = [score, score / (beside or score), skill.item(), (variance.sqrt() / skill).item()]
    levels = ", ".join(f"{s:.3g}" for s in ladder.sigma) if len(ladder) < 8 else "all"
    return f"| {name} | {len(ladder)} | {levels} | {' | '.join(f'{n:.3g}' for n in numbers)} |", score


def thinned(levels: Sequence[float], count: int) -> list[float]:
    """About `count` levels, evenly by their place, with the lowest and the highest."""
    step = (len(levels) - 1) / (count - 1)
    return sorted({levels[round(i * step)] for i in range(count)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--method", default="cosine-v-residual")
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--levels", type=int, default=12, help="of the schedule that ladders are made of")
    parser.add_argument("--pairs", type=int, nargs=2, default=(128, 256), help="of validation and of test data")
    parser.add_argument("--members", type=int, default=8)
    given = parser.parse_args()
    model = chain_of(load(given.run / "03-train" / given.method / "seed-0" / "emulator").model)
    if model is None:
        raise SystemExit(f"{given.method} has no chain of levels: name a diffusion model")
    material = Material(lambda split: open_split(given.run / "01-data", split))
    levels = thinned(model.schedule.sigma, given.levels)
    ladders: dict[Transition, Schedule] = {}
    x, y = material.pairs("valid", given.pairs[0], model.frame.task)
    for transition in get_args(Transition):
        told: dict[str, Any] = {"draws": 4, "transition": transition, "score": "crps", "generator": seeded(3)}
        ladders[transition] = at_most(optimal_schedules(model, x, y, levels, given.calls, **told), given.calls)[0]
    x, y = material.pairs("test", given.pairs[1], model.frame.task)
    print("| chain | calls | levels | CRPS | over the first | RMSE of the mean | spread/skill |")
    print("| :-- | --: | :-- | --: | --: | --: | --: |")
    beside = None
    chains = [*((transition, model.schedule) for transition in ladders), *ladders.items()]
    for transition, ladder in chains:
        one = partial(sampled, model, x, y, ladder, transition)
        text, score = line(transition, ladder, one, y, given.members, beside)
        beside = beside or score
        print(text, flush=True)
    ladder = ladders["ddim"]
    print(line("2M", ladder, partial(second_order, model, x, y, ladder), y, given.members, beside)[0])


def sampled(
    model: Diffusion, x: Tensor, y: Tensor, ladder: Schedule, transition: Transition, noise: torch.Generator
) -> Tensor:
    return sample(model, x, ladder, transition=transition, generator=noise, like=y)


if __name__ == "__main__":
    main()
