"""The whole method on a denoiser in closed form: python examples/01_oracle.py [FIGURE.png]"""

import sys
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

from biasbound.core.bias import Measure, TwoStepTable, bias_curve, own_bias
from biasbound.core.oracle import AffineOracle
from biasbound.core.schedule import Schedule, log_uniform
from biasbound.core.search import explore, greedy_schedule

tau, rng = 1.05, torch.Generator().manual_seed(0)
grid = log_uniform(32, sigma_min=3e-3)
x, y = AffineOracle(0.0, 0.0).pairs((32, 1, 64), rng)
scales = iter(0.1 * 0.8 ** np.arange(12))


def advance(levels):
    """A round of "training": a less sensitive oracle, and its own biases at the open levels."""
    e = next(scales)
    denoiser = AffineOracle(lambda s: 0.05 * s**0.4, lambda s: e**2 / (e**2 + s**2))
    return denoiser, {s: own_bias(denoiser, x, y, s, Measure(generator=rng)) for s in levels}


# Algorithm 1: which levels become stable, with room left below τ for the jumps.
exploration = explore(grid, advance, tau=1.03, rounds=12)
# Algorithm 2: from the lowest stable level always the largest jump within τ.
table = TwoStepTable(exploration.checkpoints(), x, y, Measure(generator=rng))
ladder = greedy_schedule(table.levels, table, tau)
# The verdict: a chain on that ladder is unbiased; one that goes on below it is not.
lower = Schedule([*[s for s in grid.sigma if s < ladder.sigma[0]][-5:], *ladder.sigma])
final = exploration.last
reb = {s: [r.reb for r in bias_curve(final, x, y, s, Measure(generator=rng))] for s in (lower, ladder)}

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
at, shown = table.levels.index, np.full((len(table.levels),) * 2, np.nan)
for low, high, bias in table.matrix():
    shown[at(low), at(high)] = bias.mean
image = left.imshow(shown, origin="lower", vmin=1, vmax=1.2, cmap="cividis_r")
figure.colorbar(image, ax=left, extend="max")
for low, high in pairwise(ladder.sigma):
    left.plot(at(high), at(low), "o", color="tab:red")
left.set(xlabel="from level", ylabel="down to level", title="Two-step bias, steps of the ladder")
for schedule, style in ((lower, "s--"), (ladder, "o-")):
    means = [r.mean for r in reb[schedule]]
    right.semilogx(schedule.sigma, means, style, label=f"down to σ = {schedule.sigma[0]:.2g}")
right.axhline(tau, color="grey", linestyle=":", label=f"τ = {tau}")
right.set(xlabel="noise level σ", ylabel="REB", title="Inference error over clean-input error")
right.legend()
target = Path(sys.argv[1] if len(sys.argv) > 1 else "out/01_oracle.png")
target.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(target, dpi=110)
print(f"{len(exploration.solved)} of {len(grid)} levels are stable; the ladder has {len(ladder)}:")
print(", ".join(f"{s:.3g}" for s in ladder.sigma), f"(figure: {target})")
print(f"REB at its end: {reb[ladder][0]}; at the end of the lower one: {reb[lower][0]}")
