"""The page's map of two-step biases: its ladder is the one that Python computes."""

import json
import warnings
from dataclasses import replace

import numpy as np
from browsing import drawn_ladder, set_value
from report_study import put

from biasbound.core.bias import Estimate
from biasbound.core.search import ForcedTransition, greedy_schedule, start_level
from biasbound.report.page import write_page
from biasbound.report.parts import Landscape, Search
from biasbound.report.study import read_study


def test_the_slider_draws_the_ladder_of_greedy_schedule(study, tab):
    forced_seen = lengths = 0
    for number, search in enumerate(study.searches):
        tab.select_option("#search-select", value=str(number))
        assert drawn_ladder(tab) == list(search.schedule.sigma)
        found, seen = search.landscape, set()
        clean = {s: Estimate(*found.clean[s], 2, 1) for s in found.levels}
        for rule in ("sigma", "error"):
            tab.select_option("#start-rule", value=rule)
            start = start_level(found.levels, clean.__getitem__, rule)
            for tau in (1.0, 1.002, 1.01, 1.03, 1.05, 1.1, 1.25, 1.5):
                set_value(tab, "#tau", tau)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ForcedTransition)
                    ladder = greedy_schedule(found.levels, found.bias, tau, start=start)
                assert drawn_ladder(tab) == list(ladder.sigma), (search.label, rule, tau)
                forced = len(ladder.meta["forced"])
                assert tab.locator("#overlay .jump.forced").count() == forced
                assert tab.locator("#overlay .jump").count() == len(ladder) - 1
                forced_seen += forced
                seen.add(len(ladder))
        lengths = max(lengths, len(seen))
    assert forced_seen > 0  # both branches of the rule were met
    assert lengths > 2


def rough(rng, count):
    """Biases that do not grow with the jump, rounded so that many equal a τ of the slider."""
    levels = tuple(np.sort(rng.uniform(0.01, 0.99, count)).tolist())
    clean = {s: (round(rng.uniform(0.1, 0.2), 2), 0.02) for s in levels}
    pairs = [(to, up) for to in levels for up in levels if to < up]
    biases = {pair: (round(1 + rng.exponential(0.04), 2), np.inf) for pair in pairs}
    return Landscape(1.05, "error", levels[0], levels, clean, biases)


def test_the_ladder_agrees_on_rough_landscapes_and_ties(visitor, study, tmp_path):
    rng, ties = np.random.default_rng(5), 0
    searches = [Search("adaptive", seed, landscape=rough(rng, 3 + 3 * seed)) for seed in range(6)]
    changed = replace(study, searches=tuple(searches))
    visitor.visit(write_page(changed, tmp_path / "page.html"))
    for number, search in enumerate(searches):
        visitor.tab.select_option("#search-select", index=number)
        found = search.landscape
        clean = {s: Estimate(*found.clean[s], 2, 1) for s in found.levels}
        start = start_level(found.levels, clean.__getitem__, "error")
        for tau in (1.01, 1.02, 1.05, 1.08, 1.2):
            set_value(visitor.tab, "#tau", tau)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ForcedTransition)
                ladder = greedy_schedule(found.levels, found.bias, tau, start=start)
            assert drawn_ladder(visitor.tab) == list(ladder.sigma)
            ties += sum(step["bias"] == tau for step in ladder.meta["steps"])
    assert ties > 0  # equality is within τ


def test_infinite_biases_force_a_step(visitor, copy):
    path = copy / "02-search/adaptive/seed-0/landscape.json"
    found = json.loads(path.read_text())
    for bias in found["biases"]:
        if bias["to"] == found["levels"][0]:
            bias["mean"], bias["stderr"] = None, None
    put(path, found)
    visitor.visit(write_page(read_study(copy), copy / "index.html"))
    assert drawn_ladder(visitor.tab)[:2] == found["levels"][:2]
    assert "forced" in visitor.tab.inner_text("#ladder-note")
    assert "∞" in visitor.tab.inner_text("#ladder-steps")
    assert visitor.said == []


def test_a_cell_tells_its_jump_to_mouse_and_keyboard(study, tab):
    tab.select_option("#search-select", value="0")
    found = study.searches[0].landscape
    to, start = 1, len(found.levels) - 2
    tab.hover(f'.cell[data-to="{to}"][data-from="{start}"]', force=True)
    mean, stderr = found.biases[found.levels[to], found.levels[start]]
    text = tab.inner_text("#cell")
    assert f"{float(f'{mean:.4g}'):g}" in text
    assert f"{float(f'{found.levels[to]:.4g}'):g}" in text
    assert "±" in text
    tab.focus("#heatmap svg")
    tab.keyboard.press("ArrowLeft")
    moved = found.biases[found.levels[to], found.levels[start - 1]][0]
    assert f"{float(f'{moved:.4g}'):g}" in tab.inner_text("#cell")
    assert stderr > 0


def test_reset_returns_to_the_searched_ladder(study, tab):
    tab.select_option("#search-select", value="0")
    set_value(tab, "#tau", 1.4)
    assert "another ladder" in tab.inner_text("#ladder-note")
    tab.click("#tau-reset")
    assert drawn_ladder(tab) == list(study.searches[0].schedule.sigma)
    assert "trained" in tab.inner_text("#ladder-note")
