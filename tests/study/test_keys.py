"""Keys are made of what units read: a change makes stale exactly the units that depend on it."""

from dataclasses import replace

import pytest

from biasbound.core.denoise import PREDICTIONS
from biasbound.core.schedule import SCHEDULES, Schedule
from biasbound.metrics import METRICS
from biasbound.study.folder import STAGES
from biasbound.study.graph import study_units
from biasbound.study.parsing import presets, read_config

LABELS = ("direct", "linear", "cosine-ddim", "refiner", "adaptive", "adaptive-x0", "adaptive-proxy")
SMOKE = read_config(presets()["ks-smoke"], ["--methods", f"[{','.join(LABELS)}]"])
CHAINS = ("linear", "cosine-ddim", *LABELS[4:])
SEARCHED = LABELS[4:]
EVERY = (*LABELS, "persistence")  # beside them in every study
LATER = ("rollout", "evaluate")
TRAINED = ("search", "train", "finetune", *LATER)


def keys(config):
    return {unit.name: unit.key for unit in study_units(config)}


BEFORE = keys(SMOKE)


def stale(config=SMOKE):
    """Names of the units that a changed config, or a changed registry, makes stale."""
    now = keys(config)
    assert now.keys() == BEFORE.keys()
    return {name for name in now if now[name] != BEFORE[name]}


def units(*stages, of=LABELS):
    """Names of the units of these stages and labels."""
    return {u.name for u in study_units(SMOKE) if u.stage in stages and (u.label in of or u.stage == "data")}


def changed(section, **fields):
    return replace(SMOKE, **{section: replace(getattr(SMOKE, section), **fields)})


@pytest.mark.parametrize(
    ("section", "fields", "touched"),
    [
        ("data", {"seed": 7}, units(*STAGES, of=EVERY)),
        ("data", {"held_out": {"trajectories": 3}}, units(*STAGES, of=EVERY)),
        ("task", {"history": 2}, units(*TRAINED, of=EVERY)),
        ("network", {"width": 16}, units(*TRAINED)),
        ("train", {"lr": 1e-4}, units(*TRAINED)),
        ("train", {"optimiser": "adamw"}, units(*TRAINED)),
        ("train", {"checkpoint_every": 7}, set()),
        ("train", {"compile": True}, set()),
        ("train", {"tensorboard": True}, set()),
        ("search", {"tau": 1.02}, units(*TRAINED, of=SEARCHED)),
        ("search", {"warm_start": True}, units("train", "finetune", *LATER, of=SEARCHED)),
        ("search", {"start": "sigma"}, units(*TRAINED, of=["adaptive-x0"])),  # which the others follow anyway
        ("finetune", {"unroll": 2}, units("finetune", *LATER, of=["adaptive-proxy"])),
        ("finetune", {"detach": True}, units("finetune", *LATER, of=["adaptive-proxy"])),
        ("baselines", {"levels": 10}, units("train", *LATER, of=["linear", "cosine-ddim"])),
        ("baselines", {"refinements": 5}, units("train", *LATER, of=["refiner"])),
        ("rollout", {"members": 3}, units(*LATER, of=EVERY)),
        ("rollout", {"transition": "ddpm"}, units(*TRAINED, of=set(CHAINS) - {"cosine-ddim"})),
        ("evaluate", {"pairs": 5}, units("evaluate", of=EVERY)),
    ],
)
def test_a_change_makes_stale_exactly_what_depends_on_it(section, fields, touched):
    assert stale(changed(section, **fields)) == touched


def test_a_schedule_registered_anew_makes_its_methods_stale(monkeypatch):
    monkeypatch.setitem(SCHEDULES, "linear", lambda levels: Schedule([0.1, 0.5, 0.9]))
    assert stale() == units("train", *LATER, of=["linear"])


def test_a_prediction_with_another_start_rule_makes_its_searches_stale(monkeypatch):
    monkeypatch.setitem(PREDICTIONS, "x0", replace(PREDICTIONS["x0"], start="sigma"))
    assert stale() == units(*TRAINED, of=["adaptive-x0"])


def test_a_registered_metric_makes_the_scores_stale(monkeypatch):
    monkeypatch.setitem(METRICS, "mine", lambda scene: ())
    assert stale() == units("evaluate", of=EVERY)


def test_further_methods_and_seeds_make_nothing_stale():
    more = keys(replace(SMOKE, methods=(*SMOKE.methods, "sigmoid"), seeds=(0, 1), title="other"))
    assert BEFORE.items() <= more.items()


def test_another_field_of_a_method_is_another_unit_that_shares_what_is_the_same():
    plainly, focused = (
        {u.stage: u for u in study_units(replace(SMOKE, methods=(label,))) if u.label != "persistence"}
        for label in ("adaptive-v-proxy", "adaptive-v-focus-proxy")
    )
    assert focused["search"].key == plainly["search"].key  # before it there is no lowest level to focus on
    assert focused["data"].key == plainly["data"].key
    assert all(focused[stage].key != plainly[stage].key for stage in ("train", "finetune", *LATER))
