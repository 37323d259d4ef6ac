"""How much stricter than the ladder's τ should the exploration be? python benchmarks/exploration_room.py

A level is solved at the moment when its own-prediction bias falls to the exploration's τ. If that is the ladder's τ too,
nothing is left for the error that a jump inherits from above. Measured on the oracle of examples/01_oracle.py, whose
sensitivity falls from round to round.
"""

import warnings

import numpy as np
import torch

from biasbound.core.bias import Measure, TwoStepTable, bias_curve, own_bias
from biasbound.core.oracle import AffineOracle
from biasbound.core.schedule import log_uniform
from biasbound.core.search import ForcedTransition, explore, greedy_schedule

TAU, SEED = 1.05, 0


def search(explored: float) -> tuple[int, float, int, int, float]:
    """(levels solved, σ_0, levels of the ladder, forced steps, REB at its end)."""
    rng = torch.Generator().manual_seed(SEED)
    x, y = AffineOracle(0.0, 0.0).pairs((32, 1, 64), rng)
    scales = iter(0.1 * 0.8 ** np.arange(12))

    def advance(levels: tuple[float, ...]) -> tuple[AffineOracle, dict[float, object]]:
        e = next(scales)
        denoiser = AffineOracle(lambda s: 0.05 * s**0.4, lambda s: e**2 / (e**2 + s**2))
        return denoiser, {s: own_bias(denoiser, x, y, s, Measure(generator=rng)) for s in levels}

    found = explore(log_uniform(32, sigma_min=3e-3), advance, tau=explored, rounds=12)
    table = TwoStepTable(found.checkpoints(), x, y, Measure(generator=rng))
    ladder = greedy_schedule(table.levels, table, TAU)
    reb = bias_curve(found.last, x, y, ladder, Measure(generator=rng))[0].reb.mean
    return len(found.solved), ladder.sigma[0], len(ladder), len(ladder.meta["forced"]), reb


warnings.simplefilter("ignore", ForcedTransition)
print(f"ladder τ = {TAU}, seed {SEED}\nexplored τ  solved  σ_0     levels  forced  REB(0)")
for explored in (1.05, 1.045, 1.04, 1.03, 1.02, 1.01):
    solved, sigma_0, levels, forced, reb = search(explored)
    print(f"{explored:<11} {solved:<7} {sigma_0:<7.4f} {levels:<7} {forced:<7} {reb:.3f}")
