"""A study as a value: presets, overrides, and refusals that name the field."""

import re
from dataclasses import replace

import pytest
from calling import program

from biasbound.core.options import SearchOptions
from biasbound.core.schedule import SCHEDULES
from biasbound.models.method import method
from biasbound.nets import NetSpec
from biasbound.study.config import NetworkConfig
from biasbound.study.parsing import config_parser, presets, read_config, to_yaml
from biasbound.train.options import FitOptions, TrainOptions

SCALES = ("smoke", "demo", "mini", "paper")


def test_every_flow_has_every_scale_and_every_other_task_a_smoke_study_and_a_demo():
    expected = {f"{flow}-{scale}" for flow in ("ks", "kolmogorov", "transonic") for scale in SCALES}
    tasks = ("ks-reconstruct", "ks-history", "kolmogorov-superresolve")
    others = {f"{task}-{scale}" for task in tasks for scale in SCALES[:2]}
    assert set(presets()) == expected | others | {"kolmogorov-superresolve64-demo"}


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(presets()))
def test_a_preset_survives_its_own_yaml(name, tmp_path):
    made = read_config(presets()[name])
    (tmp_path / "again.yaml").write_text(to_yaml(made))
    assert read_config(tmp_path / "again.yaml") == made
    assert [method(label).label for label in made.methods] == list(made.methods)


def test_the_command_line_overrides_the_file(tmp_path):
    base = read_config(presets()["ks-smoke"])
    path = presets()["ks-smoke"]
    changed = read_config(path, ["--train.lr", "2e-4", "--seeds", "[3, 4]", "--data.settings", "{nu: 0.9}"])
    assert changed == replace(
        base, seeds=(3, 4), train=replace(base.train, lr=2e-4), data=replace(base.data, settings={"nu": 0.9})
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("train: {lrr: 1}", "did you mean train.lr?"),
        ("trian: {lr: 1}", "did you mean train.lr?"),
        ("train: {lr: fast}", "train.lr"),
        ("train: {batch: 2.5}", "train.batch"),
        ("network: {size: huge}", "network.size"),
        ("search: {levels: many}", "search.levels"),
        ("methods: direct", "methods"),
    ],
)
def test_a_wrong_field_is_named_with_the_nearest_right_one(text, complaint, tmp_path):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ValueError, match=rf"mine\.yaml: .*{re.escape(complaint)}") as stop:
        read_config(tmp_path / "mine.yaml")
    assert len(str(stop.value).splitlines()) == 1


def test_a_file_that_is_no_yaml_is_named(tmp_path):
    (tmp_path / "mine.yaml").write_text("train: [1")
    with pytest.raises(ValueError, match=r"mine\.yaml cannot be used as YAML"):
        read_config(tmp_path / "mine.yaml")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (["--search.tau", "0.9"], "tau"),
        (["--search.levels", "0"], "levels"),
        (["--search.sigma_min", "1.5"], "sigma_min"),
        (["--train.epochs", "3"], "either in updates or in epochs"),
        (["--methods", "[direct, direct]"], "methods"),
        (["--seeds", "[]"], "seeds"),
        (["--data.dataset", "mine"], "data.train"),
        (["--data.valid", "x.h5"], "data.train"),
        (["--data.stride_time", "0"], "data.stride_time"),
        (["--rollout.members", "0"], "rollout.members"),
        (["--evaluate.steps", "[0]"], "evaluate.steps"),
        (["--finetune.unroll", "0"], "finetune.unroll"),
        (["--search.updates", "1"], "search.updates"),
    ],
)
def test_values_that_make_no_sense_are_refused_in_one_sentence(changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        read_config(presets()["ks-smoke"], changes)


def test_a_section_must_have_fields(tmp_path):
    (tmp_path / "mine.yaml").write_text("train: 3")
    with pytest.raises(ValueError, match="train is a section"):
        read_config(tmp_path / "mine.yaml")


def test_help_needs_no_torch_and_leaves_no_option_unexplained(capsys):
    code = (
        "import sys, biasbound.cli as c\nfor words in ['--help'], ['data', '--help'], ['run', '--help']:\n"
        " try: c.main(words)\n except SystemExit: pass\nsys.exit('torch' in sys.modules)"
    )
    run = program(start=("-c", code))
    assert run.returncode == 0, run.stderr
    assert "example: biasbound run" in run.stdout
    parser = config_parser("biasbound run", "", "")
    unexplained = [a.dest for a in parser._actions if not (a.help or "").strip()]
    assert unexplained == []
    (methods,) = (a for a in parser._actions if a.dest == "methods")
    assert all(name in methods.help for name in ("adaptive", "direct", "refiner", *SCHEDULES, "-v", "-proxy"))


def test_options_are_checked_where_they_are_made():
    with pytest.raises(ValueError, match="either in updates or in epochs"):
        TrainOptions()
    with pytest.raises(ValueError, match="lr"):
        FitOptions(updates=1, lr=0.0)
    with pytest.raises(ValueError, match="tau_explore"):
        SearchOptions(tau_explore=0.5)
    assert FitOptions(epochs=2.0, batch=10).total(105) == 20


@pytest.mark.parametrize("name", ["unet", "fno", "dilated", "dit"])
def test_every_network_of_ours_has_a_size(name):
    """As its option of that name says; what is not given is small."""

    def made(**fields):
        return NetSpec(name, 1, 1, (16,), ("periodic",), NetworkConfig(name, **fields).chosen()).resolved()

    assert made(size="large") != made(size="small") == made()
    if name != "unet":
        assert made(size="large") == made(options={"size": "large"})
        with pytest.raises(ValueError, match="size"):
            made(size="paper")
