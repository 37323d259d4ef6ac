"""Studies of super-resolution, reconstruction and forecasts with history at smoke size, from data to report, and what they refuse."""

from dataclasses import replace

import numpy as np
import pytest

import biasbound
from biasbound.cli import main
from biasbound.data.layout import Layout
from biasbound.metrics.rows import read_rows, select
from biasbound.models.task import Forecast
from biasbound.models.tasks.reconstruct import Reconstruct
from biasbound.models.tasks.superresolve import Superresolve
from biasbound.report import figures
from biasbound.study.config import TaskConfig
from biasbound.study.graph import study_units
from biasbound.study.parsing import presets, read_config
from biasbound.study.stages.material import Material, open_split, task_of
from biasbound.study.stages.rollout import answered

LAYOUT = Layout("toy", 1, 9, ("u",), (16, 8), 0.5, ((0.0, 1.0), (0.0, 1.0)), ("periodic", "open"))
STUDIES = {
    "kolmogorov-superresolve-smoke": Superresolve(4, grid=(16, 16), periodic=(True, True)),
    "ks-reconstruct-smoke": Reconstruct(8, grid=(64,), periodic=(True,)),
    "ks-history-smoke": Forecast(3),
}


def one(rows, label, metric, step=1):
    (row,) = select(rows, method=label, metric=metric, step=step)
    return row.value


@pytest.mark.long
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_goes_from_data_to_report(name, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", {"ladder": figures.FIGURES["ladder"]})  # the others: tests/report
    run, task = tmp_path / "run", STUDIES[name]
    assert main(["run", str(run), "--preset", name, "--jobs", "1"]) == 0
    rows, config = read_rows(run / "results.jsonl"), read_config(presets()[name])
    searched = next(m for m in config.methods if str(m).startswith("adaptive"))
    assert one(rows, searched, "one_step_mse") < 0.8 * one(rows, task.baseline, "one_step_mse")
    assert one(rows, searched, "crps") < one(rows, task.baseline, "crps")
    for label in (*config.methods, task.baseline):
        found = {row.metric for row in select(rows, method=label)}
        assert {"crps", "ensemble_mse", "spread_skill", "rank", "rank_distance", "energy_high"} <= found
        assert task.advances or not found & {"correlation_time", "never_failed"}
    assert task.advances or "CRPS" in (run / "07-report/table.md").read_text()

    emulator = biasbound.load(run / "03-train" / searched / "seed-0/emulator")
    assert emulator.model.frame.task == task
    test = open_split(run / "01-data", "test")
    made = np.load(run / "05-rollout" / searched / "seed-0/prediction.npy")
    truth = test.read(0, len(test), answered(task, test.layout.frames, config.rollout.steps))
    assert made.shape == (config.rollout.members, *truth.shape)
    first = slice(0, 1) if task.advances else slice(None)  # frames that stand alone are all of step 1
    gap = np.square(made.mean(0, dtype=np.float64) - truth)[:, first].mean()
    assert one(rows, searched, "ensemble_mse") == pytest.approx(gap, rel=1e-4)

    material = Material(lambda split: open_split(run / "01-data", split))
    if task.advances:
        return
    x, y = material.pairs("train", 512, task)
    assert material.scale(task) == pytest.approx(float((y - task.guess(x, y.shape[1])).square().mean().sqrt()))


def test_a_task_is_told_the_grid_and_the_boundaries_of_the_data():
    made = task_of(TaskConfig("superresolve", options={"factor": 2, "by": "subsample"}), LAYOUT)
    assert made == Superresolve(2, "subsample", (16, 8), (True, False))
    assert task_of(TaskConfig(history=3), LAYOUT) == Forecast(3)
    for options, complaint in (
        ({"factor": 3}, "16 × 8 points has no blocks of 3"),
        ({"by": "median"}, "superresolve: .*by"),
        ({"sensors": 8}, "superresolve: .*sensors"),
    ):
        with pytest.raises(ValueError, match=complaint):
            task_of(TaskConfig("superresolve", options=options), LAYOUT)


@pytest.mark.parametrize(("frames", "steps"), [(9, None), (9, 3), (9, 8), (9, 20), (40, 3), (2, 1)])
def test_frames_that_stand_alone_are_evenly_apart(frames, steps):
    found = range(frames)[answered(Reconstruct(), frames, steps)]
    assert len(found) == min(steps or frames, frames - 1)
    assert found.start == found.step  # prediction k is at time k e
    assert frames - found[-1] <= found.step + len(found)


def test_frames_of_a_forecast_follow_those_that_are_given():
    assert [*range(9)[answered(Forecast(2), 9)]] == [2, 3, 4, 5, 6, 7, 8]
    assert [*range(9)[answered(Forecast(), 9, 3)]] == [1, 2, 3]


@pytest.mark.parametrize("label", ["direct-ut1", "cosine-proxy"])
def test_nothing_is_unrolled_where_nothing_advances(label):
    with pytest.raises(ValueError, match=f"reconstruct answers every frame .* {label} has nothing to unroll"):
        study_units(replace(read_config(presets()["ks-reconstruct-smoke"]), methods=("direct", label)))
