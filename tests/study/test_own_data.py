"""One's own files through the stages, what a plan counts, and what is refused before anything runs."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from calling import TINY

import biasbound
from biasbound.cli import main
from biasbound.data.formats import save
from biasbound.data.trajectories import Trajectories
from biasbound.metrics.rows import read_rows
from biasbound.models.task import Forecast
from biasbound.study.execute import Manner, make_units
from biasbound.study.folder import open_run
from biasbound.study.graph import study_units
from biasbound.study.parsing import presets, read_config
from biasbound.study.stages.material import Material, network_for, open_split

SHORT = ["--methods=direct,adaptive-proxy", *TINY]


def waves(count, frames=12, points=16, channels=1):
    """Travelling waves with a speed that is a parameter of their own."""
    generator = np.random.default_rng(0)
    x = 2 * np.pi * np.arange(points) / points
    t = np.arange(frames)[:, None]
    phase = generator.uniform(0, 6, (count, 1, 1))
    speed = generator.uniform(0.1, 0.5, count)
    fields = np.sin(x + phase - speed[:, None, None] * t)[:, :, None].repeat(channels, 2)
    return Trajectories.from_array(fields.astype(np.float32), dt=0.1, parameters={"speed": speed})


@pytest.mark.long
def test_ones_own_file_is_divided_used_in_place_and_conditioned_on(tmp_path):
    save(waves(20), tmp_path / "mine.h5")
    command = ["evaluate", str(tmp_path / "r"), *SHORT]
    command += ["--data.dataset", "waves", "--data.train", str(tmp_path / "mine.h5")]
    command += ["--data.conditions", "[speed]", "--data.stride_time", "1"]
    assert main(command) == 0
    sizes = {s: open_split(tmp_path / "r/01-data", s).shape for s in ("train", "valid", "test")}
    assert [shape[0] for shape in sizes.values()] == [16, 2, 2]
    assert not list((tmp_path / "r/01-data").glob("*.h5"))
    emulator = biasbound.load(tmp_path / "r/04-finetune/adaptive-proxy/seed-0/emulator")
    assert emulator.conditions == ("speed",)
    assert {r.dataset for r in read_rows(tmp_path / "r/results.jsonl")} == {"waves"}


def test_nan_in_any_split_of_ones_own_file_stops_the_data_stage(tmp_path, capsys):
    fields = waves(20).read(0, 20)
    fields[3, 2, 0, 1] = np.nan
    np.save(tmp_path / "mine.npy", fields)
    command = ["train", str(tmp_path / "r"), *SHORT]
    command += ["--data.dataset", "waves", "--data.train", str(tmp_path / "mine.npy")]
    command += ["--data.options", "{dt: 0.1, axes: 1}", "--data.stride_time", "1"]
    assert main(command) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("biasbound")]
    assert len(said) == 1
    assert "01-data failed" in said[0]
    assert "found nan" in said[0]


def test_material_is_in_the_networks_units(tmp_path):
    save(waves(20), tmp_path / "mine.h5")
    config = read_config(
        presets()["ks-smoke"],
        ["--data.dataset", "w", "--data.train", str(tmp_path / "mine.h5"), "--data.stride_time", "1"],
    )
    run = open_run(tmp_path / "r", config)
    make_units(run, study_units(config, upto="data"), Manner(), lambda event: None)
    material, task = Material(partial(open_split, run.path / "01-data")), Forecast()
    batch, items = material.batches(2)
    everything = batch(np.arange(items))
    assert everything.frames.shape[1] == 3
    assert everything.frames.mean().abs() < 0.05
    assert everything.frames.std() == pytest.approx(1, abs=0.05)
    x, y = material.pairs("train", 10**6, task)
    spread = (y - x).square().mean().sqrt().item()
    assert material.scale(task) == pytest.approx(spread, rel=1e-3)


def test_the_network_fits_the_grid():
    """18 points on a periodic axis can be halved once."""
    layout = waves(2, points=18).layout
    config = read_config(presets()["ks-smoke"])
    spec = network_for(replace(config.network, multipliers=(1, 1, 1)), layout, Forecast())
    assert spec.resolved().options["halvings"] == [1]


@pytest.mark.long
def test_a_dry_run_writes_nothing_and_names_every_unit(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--preset", "transonic-paper", "--dry-run"]) == 0
    said = capsys.readouterr().out
    for unit in study_units(read_config(presets()["transonic-paper"])):
        assert unit.name in said
    assert "FLOP" in said
    assert list(tmp_path.iterdir()) == []
