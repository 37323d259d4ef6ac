"""The page's map of two-step biases: its ladder is the one that Python computes."""

import json
import warnings
from dataclasses import replace

import numpy as np
from browsing import drawn_ladder, set_value
from report_study import put

from biasbound.core.bias import Estimate
from biasbound.core.schedule import Schedule
from biasbound.core.search import ForcedTransition, greedy_schedule, start_level
from biasbound.report.page import write_page
from biasbound.report.searches import Front, FrontPoint, Landscape, Search
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


def grown_page(tab, study):
    """The grown search, chosen in the section of the ladder."""
    number = next(i for i, s in enumerate(study.searches) if s.growth)
    tab.select_option("#search-select", value=str(number))
    return study.searches[number]


def at_calls(tab, calls):
    """Move the front's cursor to a number of calls, by keyboard."""
    tab.focus("#front-chart .chart svg")
    tab.keyboard.press("Home")
    for _ in range(calls - 1):
        tab.keyboard.press("ArrowRight")


def test_every_point_of_the_front_is_taken_by_click_and_by_key(study, tab, tmp_path):
    search = grown_page(tab, study)
    points = search.front.front
    assert len(points) > 2
    for point in points:
        at_calls(tab, point.calls)
        assert f"calls {point.calls}" in tab.inner_text("#front-chart .tip")
        tab.keyboard.press("Enter")
        assert drawn_ladder(tab) == list(point.sigma)
        assert tab.locator("#overlay .jump").count() == point.calls - 1
        put(tmp_path / "taken.json", tab.input_value("#front-json"))
        taken = Schedule.load(tmp_path / "taken.json")
        assert taken.sigma == point.sigma
        assert taken.meta["error"] == point.mean
    tab.click("#front-chart .chart svg", position={"x": 75, "y": 140})  # at the left: one call
    assert drawn_ladder(tab) == list(points[0].sigma)
    assert "another ladder" in tab.inner_text("#ladder-note")
    tab.click("#tau-reset")
    assert drawn_ladder(tab) == list(search.schedule.sigma)


def test_the_taken_ladder_can_be_copied_and_downloaded(study, opened, tab, tmp_path):
    search = grown_page(tab, study)
    with tab.expect_download() as saved:
        tab.click("#front-save")
    saved.value.save_as(tmp_path / "saved.json")
    assert Schedule.load(tmp_path / "saved.json") == search.schedule
    assert saved.value.suggested_filename.endswith(f"-{len(search.schedule)}.json")
    tab.click("#front-copy")
    assert "Copied" in tab.inner_text("#front-done")
    assert opened.said == []


def test_the_front_rings_the_study_s_and_the_greedy_ladder(study, visitor, tab, tmp_path):
    search = grown_page(tab, study)
    assert tab.locator('#front-chart .ring[data-name="the study\'s ladder"]').count() == 1
    elsewhere = Schedule(search.schedule.sigma, {"greedy": [0.123, search.schedule.sigma[-1]]})
    changed = replace(study, searches=(replace(search, schedule=elsewhere),))
    visitor.visit(write_page(changed, tmp_path / "page.html"))
    assert visitor.tab.locator('#front-chart .ring[data-name="greedy ladder"]').count() == 0
    assert "not measured" in visitor.tab.inner_text("#front-readout")


def test_the_growth_shows_every_measurement_to_mouse_and_keyboard(study, tab):
    found = grown_page(tab, study).growth
    tried = [(n, level) for n in range(len(found.rounds)) for level in found.tried(n)]
    assert tab.locator("#growth-map .tried").count() == len(tried)
    assert tab.locator("#growth-map .tried.feasible").count() == sum(found.feasible(*one) for one in tried)
    assert tab.locator("#growth-map .rung").count() == len(found.rounds[-1].ladder)
    tab.focus("#growth-map svg")
    seen = set()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "ArrowUp"):
        tab.keyboard.press(key)
        seen.add(tab.inner_text("#growth-cell"))
    assert len(seen) >= 4
    number, level = tried[-1]
    tab.dispatch_event(f'#growth-map .tried[data-cell="{len(tried) - 1}"]', "pointermove")
    text = tab.inner_text("#growth-cell")
    for value in (level.own, level.two_step, level.own_q95, level.two_step_q95, level.sigma):
        assert f"{float(f'{value:.4g}'):g}" in text
    assert f"{found.rounds[number].update:,}" in text


def test_searches_with_a_unit_of_their_own_have_no_growth(study, tab):
    tab.select_option("#search-select", value="0")
    assert study.searches[0].growth is None
    for part in ("#front", "#growth"):
        assert tab.locator(part).is_hidden()


def test_a_ladder_that_did_not_grow_has_no_jump(visitor, study, tmp_path):
    search = next(s for s in study.searches if s.growth)
    top = search.landscape.levels[-1]
    alone = replace(search.landscape, levels=(top,), clean={top: (0.3, 0.01)}, biases={}, start_sigma=top)
    one = replace(
        search, landscape=alone, schedule=Schedule([top]), front=Front((FrontPoint(1, (top,), 0.3, 0.01),), 1)
    )
    visitor.visit(write_page(replace(study, searches=(one,)), tmp_path / "page.html"))
    assert drawn_ladder(visitor.tab) == [top]
    for part in ("#heatmap", "#colourbar", "#tau", "#tau-reset", "#front"):
        assert not visitor.tab.locator(part).is_visible(), f"{part} has nothing to show"
    assert "one network call" in visitor.tab.locator("#ladder .single-only").inner_text()
    assert visitor.tab.inner_text("#ladder-title") == "1 level, 1 network call per frame"
    assert visitor.tab.locator("#growth").is_visible(), "what was tried is the reason"
    assert visitor.said == []
