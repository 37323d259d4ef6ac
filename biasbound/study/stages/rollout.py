"""Stage 5: rollouts from the first frames of test trajectories, as one plain .npy array."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from biasbound._io import replacing, write_json
from biasbound.data.trajectories import Trajectories
from biasbound.models.emulator import Broken, Emulator, load
from biasbound.study.config import RolloutConfig
from biasbound.study.jobs import RolloutJob
from biasbound.study.stages.material import seeded
from biasbound.study.stages.place import Place


def make_rollout(job: RolloutJob, place: Place) -> dict[str, Any]:
    """Roll the emulator out over the test split; write prediction.npy and rollout.json."""
    emulator = load(place.emulator())
    emulator.model.to(place.material.device)
    states, broken = roll(emulator, place.material.test, job.rollout, place.seed)
    save_array(place.folder / "prediction.npy", states)
    members, count, steps = states.shape[:3]
    told = {"dt": emulator.dt, "members": members, "trajectories": count, "steps": steps}
    write_json(place.folder / "rollout.json", {**told, "nfe": emulator.nfe, "broken": broken.tolist()}, None)
    return {"nfe": emulator.nfe, "frames": members * count * steps, "broken": int((broken > 0).sum())}


def save_array(path: Path, states: np.ndarray, overwrite: bool = True) -> None:
    """Write a .npy file, whole or not at all."""
    with replacing(path, overwrite) as temporary, temporary.open("wb") as file:
        np.save(file, states, allow_pickle=False)


def require_fit(emulator: Emulator, data: Trajectories) -> None:
    """Refuse data whose channels or time step the emulator does not know."""
    if data.channels != emulator.channels:
        raise ValueError(
            f"{data.name} has the channels {', '.join(data.channels)}, the emulator {', '.join(emulator.channels)}"
        )
    if not np.isclose(data.dt, emulator.dt, rtol=1e-6):
        raise ValueError(f"{data.name} has a time step of {data.dt:g}, the emulator was trained with {emulator.dt:g}")


def roll(
    emulator: Emulator, test: Trajectories, options: RolloutConfig, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(prediction (M, S, K, C, *N), step at which each trajectory broke (M, S), 0: never)."""
    require_fit(emulator, test)
    count = min(options.trajectories or len(test), len(test))
    past = emulator.model.frame.task.past
    steps = options.steps or test.layout.frames - past
    first = test.condition_on(*emulator.conditions).select(slice(count)).windows(past - 1)
    starts = first[np.arange(count) * first.per_trajectory]
    device = next((p.device for p in emulator.model.parameters()), torch.device("cpu"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Broken)  # counted in the record, and told from there
        rolled = emulator.rollout(
            (starts.frames[:, 0] if past == 1 else starts.frames).to(device),
            steps,
            options.members,
            seeded(options.seed + 1_000_003 * seed),
            conditions=starts.conditions.to(device) if emulator.conditions else None,
            batch=options.batch,
        )
    return rolled.states.to(torch.float32).numpy(), rolled.broken.numpy()
