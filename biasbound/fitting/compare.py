"""Which of several emulators is the better one, on validation data and by what the user prefers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from biasbound.data.trajectories import Trajectories
from biasbound.fitting.request import Prefer
from biasbound.metrics.ensemble import crps_frames
from biasbound.models.emulator import Emulator
from biasbound.study.stages.material import Material, seeded, spread

STARTS, HORIZON, MEMBERS, PAIRS = 32, 10, 8, 256
SAYS = {"accuracy": "error of one step", "rollout": "error after {} steps", "ensemble": "CRPS over {} steps"}


@dataclass(frozen=True)
class Standing:
    """Scores on validation data, each divided by persistence's: root mean square errors and the CRPS."""

    one: float
    ten: float
    crps: float
    horizon: int  # steps of `ten` and `crps`

    def by(self, prefer: Prefer) -> float:
        return {"accuracy": self.one, "rollout": self.ten, "ensemble": self.crps}[prefer]


def standing(emulator: Emulator, material: Material) -> Standing:
    """The scores of one emulator, in the network's units, so that all channels count alike."""
    valid, past = material.valid, emulator.model.frame.task.past
    one = _error(*_rolled(emulator, valid, material, 1, PAIRS, 1))
    horizon = min(HORIZON, valid.layout.frames - past)
    if horizon == 1:
        return Standing(one, one, one, 1)
    made, truth, still = _rolled(emulator, valid, material, horizon, STARTS, MEMBERS)
    ten = _error(made[:, :, -1:].mean(0, keepdim=True), truth[:, -1:], still[:, -1:])
    crps = crps_frames(made, truth).mean() / (still - truth).abs().mean()
    return Standing(one, ten, float(crps), horizon)


def _rolled(
    emulator: Emulator, valid: Trajectories, material: Material, steps: int, starts: int, members: int
) -> tuple[Float[Tensor, "M B K C *N"], Float[Tensor, "B K C *N"], Float[Tensor, "B K C *N"]]:
    """(rollouts, truth, persistence) from starts spread over the validation data."""
    past = emulator.model.frame.task.past
    batch = spread(valid.windows(past + steps - 1), starts)
    first = batch.frames[:, 0] if past == 1 else batch.frames[:, :past]
    told = batch.conditions if batch.conditions.shape[1] else None
    made = emulator.rollout(first, steps, members, seeded(0), conditions=told).states

    def entered(frames: Tensor, axis: int) -> Tensor:
        return torch.nan_to_num(material.normalisation.encode(frames, axis), posinf=1e6, neginf=-1e6)

    truth = entered(batch.frames[:, past:], 2)
    still = entered(batch.frames[:, past - 1 : past], 2).expand_as(truth)
    return _valid(entered(made, 3), material), _valid(truth, material), _valid(still, material)


def _valid(frames: Tensor, material: Material) -> Tensor:
    """Zero where the mask says that there is nothing."""
    return frames if material.mask is None else frames * material.mask.to(frames)


def _error(made: Tensor, truth: Tensor, still: Tensor) -> float:
    return float(((made[0] - truth).square().mean() / (still - truth).square().mean()).sqrt())


def decided(standings: Mapping[str, Standing], prefer: Prefer) -> tuple[str, str]:
    """(label, why) of the better one."""
    best = min(standings, key=lambda label: standings[label].by(prefer))
    what = SAYS[prefer].format(standings[best].horizon)
    told = ", ".join(f"{label} {found.by(prefer):.3g}" for label, found in standings.items())
    return best, f"{best} has the least {what} on validation data, in units of persistence's: {told}"
