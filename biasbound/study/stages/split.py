"""The split of a rollout's error by one step of the flow's own solver per scored frame (`metrics.split`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float

from biasbound.data.trajectories import Trajectories
from biasbound.flows.reference import reference
from biasbound.metrics.rows import About, Row
from biasbound.metrics.split import Parts, split
from biasbound.models.emulator import Emulator
from biasbound.study.stages.material import seeded

__all__ = ["split_rows"]


def split_rows(
    emulator: Emulator,
    test: Trajectories,
    prediction: Float[np.ndarray, "S K C *N"],
    steps: Sequence[int],
    about: About,
    device: str,
) -> list[Row]:
    """Rows of the split at these steps, counted from 1; none where the data are of no flow whose solver is known."""
    solver, task = reference(test), emulator.model.frame.task
    if solver is None or not task.advances:
        return []
    count, past = len(prediction), task.past
    rows, index = np.arange(count), [step - 1 for step in steps]
    known = test.read(0, count, slice(0, past + max(steps)))
    true = known[:, [past + i for i in index]]
    before = {i: known[:, past + i - 1] for i in index}
    own = {i: np.asarray(prediction[:, i - 1]) if i else before[i] for i in index}

    def follow(states: dict[int, np.ndarray]) -> np.ndarray:
        return np.stack([solver(states[i], rows) for i in index], 1)

    parts = Parts(
        prediction=np.stack([prediction[:, i] for i in index], 1),
        truth=true,
        reference=follow(own),
        at_truth=_stepped(emulator, test, count, index, device),
        reference_at_truth=follow(before),
    )
    found = split(parts, steps, emulator.normalisation.std)
    return [about.row(result.name, result.value, result.step) for result in found]


def _stepped(emulator: Emulator, test: Trajectories, count: int, index: Sequence[int], device: str) -> np.ndarray:
    """M(x^{k−1}): one step of the emulator from the true states before these frames."""
    task, generator = emulator.model.frame.task, seeded(1)
    windows = test.condition_on(*emulator.conditions).windows(task.window())
    made = []
    for i in index:
        batch = windows[np.arange(count) * windows.per_trajectory + i]
        start = batch.frames[:, 0] if task.past == 1 else batch.frames[:, : task.past]
        known = batch.conditions.to(device) if emulator.conditions else None
        made.append(emulator.step(start.to(device), known, generator).to("cpu", torch.float32).numpy())
    return np.stack(made, 1)
