"""Systems that nothing here was tuned to, made with exponax: python benchmarks/other_systems.py FOLDER [NAME …]

Writes NAME.npy, trajectories (S, K, C, *N), one per system, and prints how to use it. The guard against tuning on
Kuramoto-Sivashinsky and Kolmogorov flow: `biasbound fit` and the grown ladder meet these with their defaults.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

SYSTEMS = ("burgers", "korteweg-de-vries", "swift-hohenberg", "burgers-2d")
STEPS = {"burgers": 0.05, "korteweg-de-vries": 0.05, "swift-hohenberg": 0.25, "burgers-2d": 0.05}


def stepper(name: str):
    """(the stepper of exponax, initial states, substeps per frame)."""
    import exponax as ex

    dt = STEPS[name]
    if name == "burgers":
        return (
            ex.stepper.Burgers(1, 6.0, 128, dt / 5, diffusivity=0.02),
            ex.ic.RandomTruncatedFourierSeries(1, cutoff=5, max_one=True),
            5,
        )
    if name == "korteweg-de-vries":
        made = ex.stepper.KortewegDeVries(1, 20.0, 128, dt / 10)
        return made, ex.ic.RandomTruncatedFourierSeries(1, cutoff=4, max_one=True), 10
    if name == "swift-hohenberg":
        made = ex.stepper.reaction.SwiftHohenberg(2, 20.0, 48, dt / 5)
        return made, ex.ic.RandomTruncatedFourierSeries(2, cutoff=5, max_one=True), 5
    return ex.stepper.Burgers(2, 3.0, 48, dt / 5, diffusivity=0.02), None, 5


def trajectories(name: str, count: int = 64, frames: int = 60, seed: int = 0) -> np.ndarray:
    """(S, K, C, *N), from smooth random states."""
    import exponax as ex
    import jax
    import jax.numpy as jnp

    step, initial, substeps = stepper(name)
    keys = jax.random.split(jax.random.PRNGKey(seed), 2 * count).reshape(count, 2, -1)
    one = ex.ic.RandomTruncatedFourierSeries(2, cutoff=4, max_one=True)
    states = []
    for key in keys:
        if initial is None:  # a velocity has two components
            states.append(jnp.concatenate([one(step.num_points, key=k) for k in key]))
        else:
            states.append(initial(step.num_points, key=key[0]))
    sub = ex.RepeatedStepper(step, substeps)
    made = jax.vmap(ex.rollout(sub, frames - 1, include_init=True))(jnp.stack(states))
    return np.asarray(made, dtype=np.float32)


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:] or SYSTEMS
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        made = trajectories(name)
        np.save(folder / f"{name}.npy", made)
        change = float(np.sqrt(np.mean((made[:, 1:] - made[:, :-1]) ** 2)) / made.std())
        print(f"{folder / name}.npy: {made.shape}, --dt {STEPS[name]}; persistence has an error of {change:.3g}")


if __name__ == "__main__":
    main()
