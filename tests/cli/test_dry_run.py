"""What is told before a study of one's own data begins: strides that a preset brings, faults of the data, time."""

import re

import numpy as np
import pytest
from calling import called, refused

from biasbound.cli.wish import wish_of
from biasbound.study.graph import study_units
from biasbound.study.parsing import presets, read_config
from biasbound.study.plan import plan
from biasbound.study.preview import seconds

OWN = ["--data.dataset", "mine", "--data.train", "mine.npy", "--data.options", "{dt: 0.1, dims: 1}", "--jobs", "1"]
ALL = ["--data.stride_time", "1", "--data.stride_space", "1"]


@pytest.fixture
def fields(tmp_path, monkeypatch):
    """Twenty trajectories of noise, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).normal(size=(20, 12, 1, 32)).astype(np.float32)
    np.save("mine.npy", values)
    return values


@pytest.mark.long
def test_strides_of_a_preset_on_ones_own_data_are_told(fields, tmp_path, capsys):
    start = ["r", "--preset", "ks-demo", *OWN, "--method", "direct"]
    code, _, said = called(["train", *start, "--dry-run"], capsys)
    assert code == 0
    (said,) = [line for line in said.splitlines() if line.startswith("warning: ")]
    for part in ("ks-demo", "mine.npy", "frame in 4", "point in 4", "--data.stride_time 1 --data.stride_space 1"):
        assert part in said
    (tmp_path / "own.yaml").write_text("data: {stride_time: 2}\n")
    for chosen in (["--data.stride_time=2"], ["--config", "own.yaml"]):
        said = wish_of("train", [*start, *chosen]).warning
        assert "stride_space" in said
        assert "stride_time" not in said
    assert wish_of("train", [*start, *ALL]).warning == ""
    assert wish_of("train", ["r", "--preset", "ks-demo"]).warning == ""  # its own flow


def test_a_dry_run_looks_at_ones_own_data_and_writes_nothing(fields, tmp_path, capsys):
    start = ["run", "r", "--preset", "ks-smoke", *OWN, *ALL, "--method", "direct", "--dry-run"]
    code, said, wrong = called(start, capsys)
    assert code == 0, wrong
    for part in (
        "train: 16 × 12 × 1 × 32",
        "valid: 2 × 12 × 1 × 32",
        "test: 2 × 12 × 1 × 32",
        "80 % train",
        "mine.npy",
    ):
        assert part in said
    assert re.search(r"about \d\S* (s|min|h|days) of training", said)
    for place in (3, 17):  # whichever split it is in, it is told where it stands in the file
        broken = fields.copy()
        broken[place, 2, 0, 1] = np.nan
        np.save("mine.npy", broken)
        refused(start, capsys, "mine.npy", f"nan in trajectory {place}, frame 2, channel u")
    np.save("mine.npy", fields[:, :1])
    refused(start, capsys, "it needs 2 frames, but trajectories of mine have 1")
    assert [p.name for p in tmp_path.iterdir()] == ["mine.npy"]


def test_the_time_of_a_training_grows_with_its_operations():
    config = read_config(presets()["ks-smoke"], ["--methods", "[direct,direct-ut1]"])
    once, twice = plan(config, study_units(config))
    a, b = seconds(config, [once, twice])
    assert b / a == pytest.approx(twice.flops / once.flops)
    assert 0 < a < 600
    assert seconds(config, []) == []


def test_a_network_that_is_too_large_is_not_timed():
    config = read_config(presets()["transonic-paper"], ["--methods", "[direct]"])
    assert seconds(config, plan(config, study_units(config))) == []
