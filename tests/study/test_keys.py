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
        ("train", {"accumulate": 2}, set()),
        ("train", {"recompute": True}, set()),
        ("train", {"precision": "bf16"}, units(*TRAINED)),
        ("train", {"tensorboard": True}, set()),
        ("search", {"tau": 1.02}, units(*TRAINED, of=SEARCHED)),
        ("search", {"warm_start": True}, units("train", "finetune", *LATER, of=SEARCHED)),
        ("search", {"start": "sigma"}, units(*TRAINED, of=["adaptive-x0"])),  # which the others follow anyway
        ("finetune", {"unroll": 2}, units("finetune", *LATER, of=["adaptive-proxy"])),
        ("finetune", {"detach": True}, units("finetune", *LATER, of=["adaptive-proxy"])),
        ("finetune", {"warmup": 0.5}, units("finetune", *LATER, of=["adaptive-proxy"])),
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


def test_ways_to_sample_share_one_training():
    labels = ("edm-2", "edm-heun-4", "edm-residual-2", "linear", "linear-ode", "member-crps")
    made = study_units(replace(SMOKE, methods=labels))
    names = [u.name for u in made if u.stage == "train"]
    assert names == [f"03-train/{base}/seed-0" for base in ("edm", "edm-residual", "linear", "member")]
    assert len({u.key for u in made if u.stage == "rollout"}) == len(labels)


def test_fields_that_older_runs_did_not_have_leave_no_trace_at_their_defaults():
    told = {u.stage: u.settings for u in study_units(replace(SMOKE, methods=("linear",))) if u.label == "linear"}
    assert not {"network", "sampler", "calls"} & told["train"]["method"].keys()
    assert "others" not in told["train"]["network"]
    assert "sampled" not in told["rollout"]
    assert not {"split", "members"} & told["evaluate"]["evaluate"].keys()
    asked = replace(SMOKE, methods=("linear-fno",), network=replace(SMOKE.network, others={"fno": {"width": 16}}))
    (train,) = (u.settings for u in study_units(asked) if u.stage == "train")
    assert train["method"]["network"] == train["network"]["name"] == "fno"
    assert train["network"]["options"] == {"width": 16}


def test_options_of_a_peer_make_that_peer_stale_and_unknown_ones_are_refused():
    before = replace(SMOKE, methods=("edm-2", "flow-1"))
    after = replace(before, baselines=replace(SMOKE.baselines, options={"edm": {"sigma_max": 20.0}}))
    changed = {name for name, key in keys(after).items() if keys(before)[name] != key}
    assert {name.split("/")[1] for name in changed} == {"edm", "edm-2"}
    wrong = replace(before, baselines=replace(SMOKE.baselines, options={"edm": {"sigma": 20.0}}))
    with pytest.raises(ValueError, match=r"baselines.options.edm has no sigma; it has calls, mean"):
        keys(wrong)
