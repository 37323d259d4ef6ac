"""Emulators of tasks that answer every frame from its own observation: saved, loaded, and asked."""

import json

import pytest
import torch
from emulators import UNITS
from toys import SCHEDULE, seeded, stirred

import biasbound
from biasbound.data.trajectories import Trajectories
from biasbound.models.emulator import Emulator
from biasbound.models.model import Frame, make, target_of
from biasbound.models.task import TASKS
from biasbound.models.tasks.reconstruct import Reconstruct
from biasbound.models.tasks.superresolve import Superresolve
from biasbound.nets import NetSpec
from biasbound.registry import name_of
from biasbound.study.stages.rollout import predict

TASKS_MADE = [Superresolve(4, "subsample", (16,), (False,)), Reconstruct(5, "drawn", 0.1, 3, (16,), (True,))]


def emulator(task, kind="diffusion", **options):
    spec = NetSpec("unet", task.inputs(1), 1, (16,), ("periodic",), {"width": 8, "multipliers": [1, 1]}).resolved()
    net = None if kind == "interpolation" else stirred(spec.build(kind == "diffusion"), 0.15)
    return Emulator(make(kind, net, Frame(1, task, target_of((0.3,), task, 1)), options), UNITS, ("u",), 0.2)


def start(count=3):
    return torch.randn(count, 1, 16, generator=seeded())


@pytest.mark.parametrize("task", TASKS_MADE)
def test_a_loaded_emulator_sees_and_answers_as_before(task, tmp_path):
    made = emulator(task, schedule=SCHEDULE)
    made.save(tmp_path / "one")
    back = biasbound.load(tmp_path / "one")
    assert back.model.frame.task == task
    assert json.loads((tmp_path / "one/config.json").read_text())["task"]["name"] == name_of(TASKS, type(task))
    rolled = [e.rollout(start(), 1, members=2, generator=seeded(1)).states for e in (made, back)]
    assert torch.equal(*rolled)
    assert rolled[0].shape == (2, 3, 1, 1, 16)


@pytest.mark.parametrize("task", TASKS_MADE)
def test_the_interpolation_keeps_what_was_observed_in_physical_units(task):
    made, x = emulator(task, "interpolation"), start()
    mark = made.condition(x)[:, 1:2] == 1
    answer = made.step(x)
    if isinstance(task, Superresolve):
        torch.testing.assert_close(answer[mark], x[mark])
    else:
        assert (answer[mark] - x[mark]).abs().max() < 5 * task.noise * UNITS.std[0]
    again = made.rollout(x, 3).states
    torch.testing.assert_close(again, answer[None, :, None].expand_as(again))  # nothing follows from an answer


def test_a_coarse_field_is_all_that_super_resolution_needs():
    made, x = emulator(TASKS_MADE[0], schedule=SCHEDULE), start()
    fine, coarse = (made.rollout(given, 1, 2, seeded(2)).states for given in (x, x[..., ::4]))
    torch.testing.assert_close(coarse, fine)


def test_a_file_of_answers_needs_data_on_their_grid(tmp_path):
    made, x = emulator(TASKS_MADE[0], "interpolation"), start().numpy()[:, None].repeat(5, 1)
    fine, coarse = (Trajectories.from_array(x[..., ::n], dt=0.2, channels=["u"], name="data") for n in (1, 4))
    written = predict(made, fine, tmp_path / "fine.npy", steps=2)
    assert (written.shape, written.every) == ((1, 3, 2, 1, 16), 2)
    with pytest.raises(ValueError, match=r"data has the grid \(4,\), but the emulator answers on \(16,\)"):
        predict(made, coarse, tmp_path / "coarse.npy")


def test_a_field_with_gaps_is_all_that_a_reconstruction_needs():
    made, x = emulator(Reconstruct(4, "regular", grid=(16,)), schedule=SCHEDULE), start()
    gappy = torch.full_like(x, torch.nan)
    gappy[..., ::4] = x[..., ::4]
    whole, seen = (made.rollout(given, 1, 2, seeded(2)).states for given in (x, gappy))
    torch.testing.assert_close(seen, whole)
