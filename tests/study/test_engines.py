"""A study computed by other engines: the same rows, jobs that die are given again, failures stay one sentence."""

import os
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from calling import refused
from stumbling import nothing, stumbling

from biasbound.metrics.rows import read_rows
from biasbound.study import engines
from biasbound.study.config import ExecuteConfig
from biasbound.study.engines import ENGINES, Terms, spread
from biasbound.study.execute import Manner, make_units
from biasbound.study.folder import open_run
from biasbound.study.graph import study_units
from biasbound.study.parsing import presets, read_config

LEAN = ["--train.updates", "4", "--train.evaluations", "1", "--evaluate.gradients", "0", "--evaluate.pairs", "4"]
LEAN += ["--rollout.steps", "5", "--rollout.members", "1"]


class Lost(Exception):
    """What the engine below raises when it loses a job."""


class Handle:
    def __init__(self, call, tell, lost):
        self.call, self.tell, self.lost = call, tell, lost

    def done(self):
        return True

    def result(self):
        if self.lost:
            raise Lost("the node is gone")
        return self.call(self.tell)


class Flaky:
    """Computes here and at once, but loses the first jobs of every call."""

    def __init__(self, losses):
        self.room, self.losses, self.told, self.given = 3, losses, [], []

    def submit(self, call, name, stage):
        self.given.append((name, stage))
        return Handle(call, self.told.append, [n for n, _ in self.given].count(name) <= self.losses)

    def finished(self, handles):
        return list(handles)

    def news(self):
        told = self.told[:]
        self.told.clear()
        return told

    def lost(self, error):
        return isinstance(error, Lost)


def flaky(losses, opened, terms):
    @contextmanager
    def engine():
        opened.append(Flaky(losses))
        yield opened[-1]

    return engine()


def study(path, *changes):
    config = read_config(presets()["ks-smoke"], ["--methods=[direct]", *LEAN, *changes])
    return open_run(path, config), study_units(config)


def rows_of(run):
    return [row for unit in sorted(run.path.glob("06-evaluate/*/seed-*/rows.jsonl")) for row in read_rows(unit)]


@pytest.mark.long
def test_jobs_that_an_engine_loses_are_given_again(tmp_path, monkeypatch):
    here, units = study(tmp_path / "here")
    assert not make_units(here, units, Manner(), lambda event: None).failed
    opened = []
    monkeypatch.setitem(ENGINES, "flaky", partial(flaky, 2, opened))
    there, units = study(tmp_path / "there")
    seen = []
    outcome = make_units(there, units, Manner(executor="flaky"), seen.append)
    assert not outcome.failed
    stages = {stage for _, stage in opened[0].given}
    assert stages == {"data", "train", "rollout", "evaluate"}  # blocks of data are jobs too
    assert {e.unit for e in seen if e.kind == "done"} == {u.name for u in units}
    assert [replace(r, seconds=0.0) for r in rows_of(there)] == [replace(r, seconds=0.0) for r in rows_of(here)]


@pytest.mark.long
def test_a_job_that_dies_again_and_again_is_a_failure(tmp_path, monkeypatch):
    run, units = study(tmp_path / "run")
    make_units(run, [u for u in units if u.stage == "data"], Manner(), lambda event: None)
    monkeypatch.setitem(ENGINES, "flaky", partial(flaky, engines.TRIES, []))
    outcome = make_units(run, units, Manner(executor="flaky"), lambda event: None)
    assert "died 3 times" in outcome.failed["03-train/direct/seed-0"]
    assert "the node is gone" in outcome.failed["03-train/direct/seed-0"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["submitit", "dask"])
def test_a_killed_process_is_replaced(name, tmp_path, monkeypatch):
    seen = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(seen))  # where the job finds its call
    asked = ExecuteConfig(resources={"data": {"timeout_min": 5}} if name == "submitit" else {}, cluster="local")
    with ENGINES[name](Terms(tmp_path, 2, asked, nothing)) as engine:
        assert list(spread(engine, {"a": partial(stumbling, tmp_path / "mark")}, "data")) == [7]


def test_an_engine_and_its_resources_are_checked_before_anything_is_made(tmp_path, capsys):
    refused(["evaluate", tmp_path / "r", "--preset", "ks-smoke", "--executor", "cloud"], capsys, "cloud", "submitit")
    wrong = ["--execute.resources", "{training: {gpus_per_node: 1}}"]
    refused(["evaluate", tmp_path / "r", "--preset", "ks-smoke", *wrong], capsys, "execute.resources", "training")
    assert not (tmp_path / "r").exists()


def test_resources_that_no_worker_has_are_refused_instead_of_waited_for(tmp_path):
    asked = ExecuteConfig(resources={"train": {"GPU": 1}})
    with (
        pytest.raises(ValueError, match=r"execute\.resources.*execute\.address"),
        ENGINES["dask"](Terms(tmp_path, 2, asked, nothing)),
    ):
        pass
