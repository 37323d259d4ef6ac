"""The first screen says in words what the table says in numbers."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from test_tables import unit

from biasbound.report.answer import answers
from biasbound.report.study import Study


def told(rows, **parts):
    """The answers of these rows, as one text each."""
    return [" ".join(one.sentences) for one in answers(Study(Path(), "waves", "waves", rows=tuple(rows), **parts))]


ROWS = (
    *unit("waves", "persistence", size=700.0, nfe=0),
    *unit("waves", "direct-residual", size=1.5, nfe=1),
    *unit("waves", "cosine-v", size=8.0, nfe=20),
    *unit("waves", "adaptive-v", nfe=3),
)


def test_the_best_emulator_is_named_with_its_calls_beside_the_direct_model_and_persistence():
    (text,) = told(ROWS)
    first, *rest = text.split(". ")
    assert (
        first
        == "Adaptive, v-prediction is the most accurate of 3 emulators over one step, with 3 network calls per frame"
    )
    assert "1.00e-7 over one step and 1.00e-5 over ten" in rest[0]
    assert "The direct model (1 network call) has 1.50 times" in rest[1]
    assert "Persistence has 700 times" in rest[2]
    assert "one seed" not in text, "1.5 is more than a seed changes"


def test_a_guess_that_no_emulator_beats_is_told_with_what_to_do():
    (text,) = told([*unit(method="persistence", nfe=0), *unit(method="direct", size=1.01, nfe=1)])
    assert "Persistence has 0.99 times that error" in text
    assert "no emulator beats it" in text
    assert "beats" not in told(ROWS)[0]


def test_ratios_do_not_depend_on_units():
    (one,), (other,) = (told([replace(r, value=c * r.value) for r in ROWS]) for c in (1.0, 4.0))
    times = [re.findall(r"([\d.,]+) times", text) for text in (one, other)]
    assert times[0] == times[1] != []


def test_where_the_direct_model_is_best_the_next_one_stands_beside_it():
    rows = [*unit(method="direct", nfe=1), *unit(method="adaptive", size=1.1, nfe=2), *unit(method="linear", size=9.0)]
    (text,) = told(rows)
    assert text.startswith("Direct TF is the most accurate")
    assert "Next is Adaptive (2 network calls), with 1.10 times" in text
    assert "one seed" in text


def test_another_that_is_better_over_ten_steps_is_named():
    later = [replace(r, value=50 * r.value) if r.step == 10 else r for r in unit(method="adaptive", nfe=2)]
    (text,) = told([*unit(method="direct", size=2.0, nfe=1), *later])
    assert "Over ten steps Direct TF (1 network call) is better: 2.00e-5." in text
    assert "over ten" not in told(unit(method="direct"))[0].partition(". ")[0]


def test_what_broke_is_never_the_best_and_nothing_is_said_of_nothing():
    lost = [replace(r, value=None) if r.metric == "mse" else r for r in unit(method="adaptive", size=0.1, broken=2.0)]
    (text,) = told([*unit(method="direct"), *lost])
    assert text.startswith("Direct TF is the only emulator")
    assert told(lost) == told(unit(method="persistence")) == told(()) == []
    (text,) = told(unit(method="adaptive", broken=2.0))
    assert "2 of its trajectories became non-finite." in text


def test_seeds_ledgers_and_datasets_are_told():
    seeds = [*unit(method="direct", seed=0, ledger=100), *unit(method="direct", seed=1, size=3.0, ledger=200)]
    (text,) = told(seeds)
    assert "means over 2 seeds; the best one-step error varies by 71\u00a0%" in text
    assert "Ledgers differ by a factor of up to 2," in text
    both = told([*unit("ks"), *unit("kolmogorov")])
    assert ["Kolmogorov flow" in one for one in both] == [True, False]


def test_frames_that_stand_alone_have_no_steps():
    (text,) = told([r for r in ROWS if r.metric == "mse" and r.step == 1])
    assert "step" not in text
    assert "1.50 times that error." in text


def test_an_ensemble_is_judged_by_its_score_where_frames_stand_alone():
    """The least error of single answers is that of the mean, which no member looks like."""
    first = [r for r in ROWS if r.metric == "mse" and r.step == 1]
    scores = {"direct-residual": 3.0, "cosine-v": 1.0, "adaptive-v": 2.0}
    ensembles = [replace(r, metric="crps", value=scores[r.method]) for r in first if r.method in scores]
    (text,) = told([*first, *ensembles])
    assert text.startswith("Adaptive, v-prediction is the most accurate")
    assert "As an ensemble Cosine TF, v-prediction (20 network calls) is the best: its CRPS is 1.00e0." in text
    assert "As an ensemble" not in told(ROWS)[0]


def test_ensembles_of_rollouts_have_a_score_at_every_step_and_are_judged_by_their_errors():
    scores = [replace(r, metric="crps") for r in ROWS if r.metric == "mse"]
    assert len({r.step for r in scores}) > 1
    assert told([*ROWS, *scores]) == told(ROWS)


def test_reasons_come_from_the_chain_and_the_front(study):
    (found,) = answers(study)
    assert found.label == "adaptive-scaled"
    (model,) = (m for m in study.models if m.label == found.label)
    assert f"at most {max(level.reb for level in model.bias):.3f} times" in found.reasons[0]
    (front,) = (s.front for s in study.searches if s.front)
    assert f"{front.chosen} network call" in found.reasons[1]


def test_the_page_begins_with_the_answer(study, tab):
    (found,) = answers(study)
    shown = re.sub(r"[ \n]+", " ", tab.inner_text("#answer"))
    assert shown.startswith(found.sentences[0])
    spoken = [
        re.split(r"\d\S*e-?\d+", sentence)[0] for sentence in (*found.sentences, *found.reasons)
    ]  # up to a number
    places = [shown.index(sentence) for sentence in spoken]
    assert places == sorted(places)
    assert tab.inner_text("#answer .verdict strong") == found.title
    assert tab.is_checked(f"#p-models label:has-text('{found.label}') input")


@pytest.mark.parametrize("tau", [1.001, 1.02, 1.4])
def test_the_colour_bar_shows_where_tau_lies(tab, tau):
    tab.eval_on_selector("#tau", "(e, v) => { e.value = v; e.dispatchEvent(new Event('input')); }", str(tau))
    shown = tab.inner_text("#tau-value")
    assert tab.text_content("#colourbar-tau text") == f"τ = {shown}"
    tab.click("#tau-reset")
