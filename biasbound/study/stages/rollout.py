"""Stage 5: rollouts from the first frame of test trajectories, as one plain .npy array."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from biasbound._io import replacing, write_text
from biasbound.data.trajectories import Trajectories
from biasbound.models.emulator import Broken, Emulator, load
from biasbound.study.config import Config, RolloutConfig
from biasbound.study.stages.material import Material, seeded

__all__ = ["emulator_for", "make_rollout", "require_fit", "roll", "save_rollout"]


def make_rollout(
    config: Config, seed: int, material: Material, folder: Path, emulator: Path
) -> dict[str, Any]:
    """Roll the emulator out over the test split and write prediction.npy."""
    loaded = emulator_for(config, emulator)
    loaded.model.to(material.device)
    return save_rollout(loaded, material.test, config.rollout, folder, seed)


def emulator_for(config: Config, folder: Path) -> Emulator:
    """A saved emulator with the config's transition, which may have changed since its training."""
    return replace(load(folder), transition=config.rollout.transition)


def require_fit(emulator: Emulator, data: Trajectories) -> None:
    """Refuse data whose channels or time step the emulator does not know."""
    if data.channels != emulator.channels:
        raise ValueError(
            f"{data.name} has the channels {', '.join(data.channels)}, the emulator {', '.join(emulator.channels)}"
        )
    if not np.isclose(data.dt, emulator.dt, rtol=1e-6):
        raise ValueError(
            f"{data.name} has a time step of {data.dt:g}, the emulator was trained with {emulator.dt:g}"
        )


def roll(
    emulator: Emulator, test: Trajectories, options: RolloutConfig, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(prediction (M, S, K, C, *N), step at which each trajectory broke (M, S), 0: never)."""
    require_fit(emulator, test)
    count = min(options.trajectories or len(test), len(test))
    steps = options.steps or test.layout.frames - 1
    first = test.condition_on(*emulator.conditions).select(slice(count)).windows(0)
    starts = first[np.arange(count) * first.per_trajectory]
    device = next(emulator.model.parameters()).device
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Broken)  # counted in the record, and told from there
        rolled = emulator.rollout(
            starts.frames[:, 0].to(device),
            steps,
            options.members,
            seeded(options.seed + 1_000_003 * seed),
            conditions=starts.conditions.to(device) if emulator.conditions else None,
            batch=options.batch,
        )
    return rolled.states.to(torch.float32).numpy(), rolled.broken.numpy()


def save_rollout(
    emulator: Emulator, test: Trajectories, options: RolloutConfig, folder: Path, seed: int = 0
) -> dict[str, Any]:
    """Write prediction.npy and rollout.json; returns facts for the record."""
    states, broken = roll(emulator, test, options, seed)
    with replacing(folder / "prediction.npy") as temporary, temporary.open("wb") as file:
        np.save(file, states, allow_pickle=False)
    members, count, steps = states.shape[:3]
    told = {
        "dt": emulator.dt,
        "members": members,
        "trajectories": count,
        "steps": steps,
        "nfe": emulator.nfe,
        "broken": broken.tolist(),
    }
    write_text(folder / "rollout.json", json.dumps(told) + "\n")
    return {
        "nfe": emulator.nfe,
        "frames": members * count * steps,
        "broken": int((broken > 0).sum()),
    }
