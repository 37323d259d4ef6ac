"""A method is a value with one label, and a label names one method."""

import itertools
from dataclasses import asdict, fields, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import SCHEDULE, batch, seeded

from biasbound.core.denoise import PREDICTIONS
from biasbound.core.schedule import SCHEDULES, Schedule
from biasbound.models.diffusion import chain_of
from biasbound.models.method import Method, method, order_of, title_of
from biasbound.models.model import MODELS, Settings
from biasbound.models.task import Forecast
from biasbound.nets import NetSpec
from biasbound.registry import find

EVERY = {
    "schedule": ["adaptive", *SCHEDULES],
    "prediction": [*PREDICTIONS],
    "residual": [False, True],
    "focus": [False, True],
    "unroll": [0, 1, 2, 17],
    "pushforward": [False, True],
    "transition": ["", "renoise", "ddpm", "ddim"],
    "network": ["", "unet", "fno"],
    "calls": [0, 1, 18],
}


def choices(kind, name):
    """Values of a field that a kind of model takes."""
    own = {"finetune": ["", *kind.finetunes], "sampler": ["", *kind.samplers]}
    return own[name] if name in own else EVERY[name]


def taken(kind):
    return sorted({*kind.accepts, *(["network"] if kind.trained else [])})


@st.composite
def methods(draw):
    """Any valid combination of fields."""
    model = draw(st.sampled_from([*MODELS]))
    kind = find(MODELS, model)
    told = {name: draw(st.sampled_from(choices(kind, name))) for name in taken(kind)}
    if not told.get("unroll"):
        told["pushforward"] = False
    return Method(model, **told)


# --- label and value ----------------------------------------------------------------------------------


@given(methods())
def test_a_label_reads_back_as_its_method(made):
    assert method(made.label) == made
    assert method(made) is made


@given(methods())
def test_the_mapping_of_its_fields_is_the_method_too(made):
    assert method(asdict(made)) == made
    defaults = {f.name: f.default for f in fields(Method)}
    assert method({k: v for k, v in asdict(made).items() if v != defaults[k]}) == made


def test_different_methods_have_different_labels():
    """All of them, not a sample."""
    labels = []
    for model in MODELS:
        kind = find(MODELS, model)
        accepts = sorted(kind.accepts)  # a network is one more option of any
        for values in itertools.product(*(choices(kind, name) for name in accepts)):
            told = dict(zip(accepts, values, strict=True))
            if told.get("unroll") or not told.get("pushforward"):
                labels.append(Method(model, **told).label)
    assert len(labels) == len(set(labels)) > 500


@given(methods(), st.randoms(use_true_random=False))
def test_options_may_come_in_any_order(made, random):
    base = made.schedule or made.model
    options = made.label.removeprefix(base).split("-")[1:]
    random.shuffle(options)
    assert method("-".join([base, *options])).label == made.label


@pytest.mark.parametrize(
    ("said", "label"),
    [
        ("unet", "direct"),
        ("unet-residual-ut7", "direct-residual-ut7"),
        ("adaptive-eps", "adaptive"),
        ("adaptive-residual-v", "adaptive-v-residual"),
        ("adaptive-proxy-focus-v", "adaptive-v-focus-proxy"),
        ("log-uniform-ddim-x0", "log-uniform-x0-ddim"),
        ("direct-ut0", "direct"),
        ("direct-ut02", "direct-ut2"),
        ("direct-residual-fno", "direct-fno-residual"),
        ("edm-08-heun-residual", "edm-residual-heun-8"),
    ],
)
def test_other_ways_to_say_it_have_the_one_label(said, label):
    assert method(said).label == label


@pytest.mark.parametrize(
    ("label", "complaint"),
    [
        ("", "unknown method ''"),
        ("magic", "a method is one of direct, refiner, edm, flow, .*, persistence, interpolation, adaptive, linear"),
        ("linearly", "unknown method"),
        ("adaptive-w", "'adaptive-w': there is no option -w"),
        ("direct-ut", "no option -ut"),
        ("adaptive-v-x0", "says its prediction twice"),
        ("adaptive-v-v", "says its prediction twice"),
        ("adaptive-ddim-ddpm", "says its transition twice"),
        ("adaptive-proxy-full", "says its finetune twice"),
        ("direct-ut1-pf1", "says its unroll twice"),
        ("adaptive-residual-residual", "says its residual twice"),
        ("direct-v", "a direct model has no prediction"),
        ("direct-proxy", "finetune is one of full, not 'proxy'"),
        ("direct-ddim", "a direct model has no transition"),
        ("direct-pf0", "pushforward needs at least one"),
        ("refiner-ut1", "a refiner model has no unroll"),
        ("linear-ut1", "a diffusion model has no unroll"),
    ],
)
def test_contradictions_are_refused_by_name(label, complaint):
    with pytest.raises(ValueError, match=complaint) as refused:
        method(label)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        ({"base": "linear"}, "no field 'base'; its fields are model, schedule"),
        ({"schedule": "linear", "residual": 1}, "residual is 1, but it must be like False"),
        ({"model": "direct", "unroll": "2"}, "unroll is '2', but it must be like 0"),
        ({"model": "direct", "unroll": True}, "unroll is True"),
        ({"schedule": None}, "schedule is None"),
        ({}, "a diffusion model needs a schedule: adaptive, linear"),
        ({"model": "diffusion", "schedule": "linaer"}, "did you mean linear"),
        ({"model": "magic"}, "no model 'magic'"),
        ({"schedule": "adaptive", "prediction": "w"}, "no prediction 'w'"),
        ({"schedule": "adaptive", "transition": "euler"}, "transition is one of renoise, ddpm, ddim, not 'euler'"),
        ({"schedule": "adaptive", "finetune": "long"}, "finetune is one of proxy, full, crps, ucrps, not 'long'"),
        ({"model": "direct", "unroll": -1}, "unroll counts frames"),
        ({"model": "direct", "schedule": "linear"}, "a direct model has no schedule"),
    ],
)
def test_a_mapping_with_a_wrong_field_names_it(told, complaint):
    with pytest.raises(ValueError, match=complaint):
        method(told)


def test_a_schedule_file_is_a_method(tmp_path):
    levels = Schedule([0.3])
    levels.save(tmp_path / "one-level.json")
    made = method(f"{tmp_path}/one-level.json-v-residual")
    assert (made.label, made.title) == ("one-level-v-residual", "One level, v-prediction, residual target")
    assert made == Method(schedule=str(tmp_path / "one-level.json"), prediction="v", residual=True)
    assert made.chain() == levels
    assert method(asdict(made)) == made
    with pytest.raises(ValueError, match=r"cannot read schedule nowhere\.json"):
        method("nowhere.json").chain()


# --- names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "title"),
    [
        ("unet", "Direct TF"),
        ("unet-ut1", "Direct UT, U=2"),
        ("unet-residual-pf7", "Direct PF, U=8, residual target"),
        ("linear", "Linear TF"),
        ("log-uniform-v", "Log-uniform TF, v-prediction"),
        ("refiner", "PDE-Refiner"),
        ("refiner-residual", "PDE-Refiner, residual target"),
        ("adaptive", "Adaptive"),
        ("adaptive-proxy", "Adaptive + Proxy UT"),
        ("adaptive-x0-residual-focus", "Adaptive, x0-prediction, residual target, focused"),
        ("adaptive-v-residual-proxy", "Adaptive + Proxy UT, v-prediction, residual target"),
        ("adaptive-ddim-full", "Adaptive + Full UT, ddim"),
        ("adaptive-v-ode", "Adaptive, v-prediction, no fresh noise"),
        ("direct-dilated", "Direct TF, dilated ResNet"),
        ("edm-residual-2m-4", "EDM, residual target, DPM-Solver++(2M), 4 calls"),
        ("flow-1", "Rectified flow, 1 call"),
        ("member-crps", "Direct with noise + CRPS"),
        ("adaptive-v-ucrps", "Adaptive + unrolled CRPS, v-prediction"),
        ("direct-residual-full", "Direct + Full UT, residual target"),
        ("somebody's", "somebody's"),
    ],
)
def test_titles(label, title):
    assert title_of(label) == title


def test_tables_list_direct_models_first_and_searched_ones_last():
    listed = [
        "direct",
        "direct-ut2",
        "direct-ut10",
        "linear",
        "cosine-v",
        "refiner",
        "adaptive",
        "adaptive-v",
        "theirs",
    ]
    assert sorted(set(listed), key=order_of) == listed


# --- what follows from the value ----------------------------------------------------------------------


@given(methods())
def test_a_fine_tuned_method_starts_from_its_own_training(made):
    assert made.emulated == replace(made, sampler="", calls=0)
    assert made.trained == replace(made.emulated, finetune="")
    assert made.explored == replace(made.emulated, finetune="", focus=False)
    assert made.trained.trained == made.trained
    assert made.explored.explored == made.explored


@given(methods())
def test_the_loss_is_that_of_the_value(made):
    recipe = made.recipe(unroll=3, n=1, detach=True)
    assert recipe.share == (find(MODELS, made.model).focus if made.focus else None)
    if made.finetune == "crps":
        assert (recipe.unroll, recipe.members) == (0, 2)
    elif made.finetune == "ucrps":
        assert (recipe.unroll, recipe.members, recipe.detach) == (3, 2, True)
    elif made.finetune:
        assert (recipe.unroll, recipe.between, recipe.n, recipe.detach) == (3, made.finetune, 1, True)
    else:
        assert (recipe.unroll, recipe.between, recipe.detach) == (made.unroll, "own", made.pushforward)


def test_only_a_standard_schedule_is_known_before_a_search():
    assert method("cosine").chain(12) == SCHEDULES["cosine"](12)
    assert method("cosine").chain(12, 0.9) == SCHEDULES["cosine"](12).capped(0.9)
    assert method("adaptive").chain() is method("direct").chain() is None


LABELS = ["direct-ut1", "direct-residual", "linear", "refiner-residual", "adaptive-v-residual", "adaptive-proxy"]


@pytest.mark.parametrize("history", [1, 2])
@pytest.mark.parametrize("label", LABELS)
def test_every_method_makes_a_model_with_a_loss_that_reaches_it(label, history):
    made, task = method(label), Forecast(history)
    spec = NetSpec("unet", task.inputs(1) + 1, 1, (16,), ("periodic",), {"width": 8, "multipliers": [1, 1]}).resolved()
    torch.manual_seed(0)
    settings = Settings(schedule=SCHEDULE, transition="ddim", refinements=2, sigma_min=0.1)
    model = made.build(spec, task, 0.5, made.options(settings))
    model.recipe = made.recipe(unroll=1)
    assert model.frame.target.scale == ((0.5,) if made.residual else ())
    frames = task.window(model.recipe.unroll) + 1
    loss = model.loss(batch(4, told=1, frames=frames), seeded())
    loss.backward()
    assert loss.isfinite()
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())
    if chain := chain_of(model):
        assert (chain.schedule, chain.transition, chain.prediction) == (SCHEDULE, "ddim", made.prediction)
