"""Free running, nudging and assimilation of sparse noisy observations: python benchmarks/assimilation.py EMULATOR DATA OUT

DATA is a folder with valid.h5, on which strengths and gains are chosen, and test.h5, on which they are scored. OUT gets
table.md and errors.png. With --constrain a constraint is measured before and after as well.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

import biasbound
from biasbound.core.constraints import constraint
from biasbound.data.trajectories import Trajectories
from biasbound.models.assimilation import Gain, Nudging, Observations
from biasbound.models.correction import always
from biasbound.models.emulator import Broken, Emulator
from biasbound.report.style import DASHES, PALETTE, WIDTH

STRENGTHS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)  # of nudging
RADII, INFLATIONS = (0.75, 1.0, 1.25), (1.02, 1.1)  # of the gain; radii in units of the sensors' distance
METHODS = ("free run", "nudging", "assimilation")


@dataclass(frozen=True)
class Twin:
    """An experiment with a known truth (B, K + 1, C, *N): who is asked where, how well, and from which start."""

    emulator: Emulator
    truth: Tensor
    spacing: int
    noise: float  # of observations, in spreads of the data
    start: float  # error of the start at each point, likewise, and of members around it
    members: int
    periodic: tuple[bool, ...]
    every: int = 1
    seed: int = 0

    @property
    def error(self) -> list[float]:
        return [self.noise * s for s in self.emulator.normalisation.std]

    def observations(self) -> Observations:
        noise = torch.Generator().manual_seed(1000 + self.seed)
        return Observations.sparse(self.truth[:, 1:], self.spacing, self.error, noise, self.every)

    def starts(self) -> Tensor:
        """(M, B, C, *N): a start with an error, and members around it."""
        noise, first = torch.Generator().manual_seed(2000 + self.seed), self.truth[:, 0]
        size = first.new_tensor(self.emulator.normalisation.std).reshape(-1, *[1] * (first.ndim - 2)) * self.start
        centre = first + size * torch.randn(first.shape, generator=noise)
        return centre + size * torch.randn(self.members, *first.shape, generator=noise)

    def run(self, how: float | Gain | None) -> Tensor:
        """(M, B, K, C, *N) of a free run (None), of nudging with a strength, or of assimilation with a gain."""
        noise, starts = torch.Generator().manual_seed(3000 + self.seed), self.starts()
        if isinstance(how, Gain):
            return self.emulator.assimilate(starts, self.observations(), noise, gain=how).states
        rows, steps = starts.flatten(0, 1), self.truth.shape[1] - 1
        nudge = None if how is None else Nudging(self.observations(), how)
        states = self.emulator.rollout(rows, steps, 1, noise, batch=len(rows), correct=nudge).states
        return states.reshape(self.members, -1, *states.shape[2:])

    def errors(self, states: Tensor) -> Tensor:
        """(2, K): root mean square error of members, and of their mean; what broke counts as ten spreads."""
        worst = 10 * max(self.emulator.normalisation.std)
        states, truth = states.nan_to_num(worst).clamp(-worst, worst).double(), self.truth[:, 1:].double()
        each = (states - truth).square().transpose(0, 2).flatten(1).mean(1)
        mean = (states.mean(0) - truth).square().transpose(0, 1).flatten(1).mean(1)
        return torch.stack([each, mean]).sqrt()


def best(twin: Twin, candidates: list[float] | list[Gain]) -> float | Gain:
    """The candidate with the lowest error of members over all steps."""
    scores = [float(twin.errors(twin.run(c))[0].square().mean()) for c in candidates]
    return candidates[int(np.argmin(scores))]


def measured(valid: Twin, test: Twin, seeds: int) -> tuple[dict[str, Tensor], dict[str, Tensor], str]:
    """Errors (2, K) over seeds, states of the last seed, and what was chosen."""
    strength = best(valid, list(STRENGTHS))
    gains = [Gain(r * test.spacing, i, periodic=test.periodic) for r in RADII for i in INFLATIONS]
    gain = best(valid, gains)
    errors, states = {}, {}
    for name, how in zip(METHODS, (None, strength, gain), strict=True):
        squares = []
        for seed in range(seeds):
            one = replace(test, seed=seed + 1)
            states[name] = one.run(how)
            squares.append(one.errors(states[name]).square())
        errors[name] = torch.stack(squares).mean(0).sqrt()
    assert isinstance(gain, Gain)
    return errors, states, f"strength {strength}; radius {gain.radius:g}, inflation {gain.inflation}"


def row(every: int, errors: dict[str, Tensor], chosen: str) -> str:
    """A line of the table: error of members, and of their mean in brackets."""
    over = {name: e.square().mean(1).sqrt().tolist() for name, e in errors.items()}
    cells = [f"{each:.4f} ({mean:.4f})" for each, mean in over.values()]
    ratio = over["assimilation"][0] / over["nudging"][0]
    return f"| {every} | {' | '.join(cells)} | {ratio:.3f} | {chosen} |"


def constrained(name: str, emulator: Emulator, data: Trajectories, truth: Tensor) -> list[str]:
    """One-step error and breach of a constraint, ‖y − P y‖/‖y‖, before and after; and the breach of the truth."""
    project = constraint(name, data.layout)
    x, y = truth[:, :-1].flatten(0, 1), truth[:, 1:].flatten(0, 1)

    def breach(state: Tensor) -> float:
        return float((state.double() - project(state.double())).norm() / state.double().norm())

    lines = ["| " + name + " | one-step MSE | breach |", "|---|---|---|", f"| truth | | {breach(y):.2g} |"]
    for label, correct in (("before", None), ("after", always(project))):
        noise = torch.Generator().manual_seed(0)
        made = torch.cat([next(emulator.unroll(part, None, noise, correct)) for part in torch.split(x, 64)])
        lines.append(f"| {label} | {float((made - y).square().mean()):.4g} | {breach(made):.2g} |")
    return lines


def picture(panels: dict[int, dict[str, Tensor]], truth: Tensor, states: dict[str, Tensor], path: Path) -> None:
    """Errors over steps, and the first trajectory: the last frame in the plane, all frames along a line."""
    figure = Figure(figsize=(WIDTH, 5.6), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.1, 1))
    above, below = parts
    axes = above.subplots()
    for i, name in enumerate(METHODS):
        for dash, (every, errors) in zip(DASHES, panels.items(), strict=False):
            label = f"{name}, every {'' if every == 1 else f'{every}th '}frame" if i else name
            if i or every == next(iter(panels)):
                steps = range(1, errors[name].shape[1] + 1)
                axes.plot(steps, errors[name][0], color=PALETTE[i], linestyle=dash, label=label)
    axes.set(xlabel="step", ylabel="RMSE of members", yscale="log")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    shown = {"truth": truth[0, 1:], **{n: s.mean(0)[0] for n, s in states.items()}}
    fields = {n: (f[-1, 0] if f.ndim == 4 else f[:, 0].T).numpy() for n, f in shown.items()}
    limit = float(np.abs(fields["truth"]).max())
    for axes, (name, field) in zip(below.subplots(1, len(fields)), fields.items(), strict=True):
        axes.imshow(field, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
        axes.set(title=name, xticks=[], yticks=[])
    figure.savefig(path, dpi=150)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("emulator", "data", "out"):
        parser.add_argument(name, type=Path, metavar=name.upper())
    add: Callable[..., object] = parser.add_argument
    add("--spacing", type=int, default=8, help="grid points between sensors, along each axis (default 8)")
    add("--noise", type=float, default=0.1, help="of observations, in spreads of the data (default 0.1)")
    add("--start", type=float, default=0.1, help="error of the start at each point, likewise (default 0.1)")
    add("--every", type=int, nargs="+", default=[1, 5], help="observed frames, one run for each (default 1 5)")
    add("--steps", type=int, default=50)
    add("--members", type=int, default=24)
    add("--trajectories", type=int, default=16, help="of test.h5 (default 16)")
    add("--tune", type=int, default=4, help="trajectories of valid.h5 to choose on (default 4)")
    add("--seeds", type=int, default=3, help="of start, observations and chain (default 3)")
    add("--constrain", help="measure this constraint as well: zero-mean, divergence-free")
    return parser.parse_args()


def main() -> None:
    given, lines = options(), []
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", Broken)
    emulator = biasbound.load(given.emulator)
    splits = {name: biasbound.open(given.data / f"{name}.h5") for name in ("valid", "test")}
    counts = {"valid": given.tune, "test": given.trajectories}
    frames = slice(given.steps + 1)
    truth = {n: torch.as_tensor(t.read(0, min(counts[n], len(t)), frames)).float() for n, t in splits.items()}
    if truth["test"].shape[1] <= given.steps:
        raise SystemExit(f"{given.data}: {given.steps} steps need {given.steps + 1} frames; make longer data")
    how = {"spacing": given.spacing, "noise": given.noise, "start": given.start, "members": given.members}
    how["periodic"] = splits["test"].layout.periodic
    panels: dict[int, dict[str, Tensor]] = {}
    states: dict[str, Tensor] = {}
    lines.append(f"| observed every | {' | '.join(METHODS)} | ratio to nudging | chosen |\n|{'---|' * 6}")
    for every in given.every:
        valid, test = (Twin(emulator, truth[n], every=every, **how) for n in ("valid", "test"))
        panels[every], found, chosen = measured(valid, test, given.seeds)
        states = states or found
        lines.append(row(every, panels[every], chosen))
        print(lines[-1], flush=True)
    if given.constrain:
        lines += ["", *constrained(given.constrain, emulator, splits["test"], truth["test"])]
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    picture(panels, truth["test"], states, given.out / "errors.png")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
