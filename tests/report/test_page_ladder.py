"""The page's map of two-step biases: its ladder is the one that Python computes."""

import json
import shutil
import warnings

import numpy as np
from browsing import Watched, drawn_ladder, set_value
from report_study import put

from biasbound.core.bias import Estimate
from biasbound.core.search import ForcedTransition, greedy_schedule, start_level
from biasbound.report.page import write_page
from biasbound.report.study import read_study


def test_the_slider_draws_the_ladder_of_greedy_schedule(run, tab):
    study = read_study(run)
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


def test_the_ladder_agrees_on_rough_landscapes_and_ties(browser, run, tmp_path):
    """Biases that do not grow with the jump, rounded so that many equal a τ of the slider."""
    rng, copy = np.random.default_rng(5), shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(copy / "02-search")
    for seed in range(6):
        levels = np.sort(rng.uniform(0.01, 0.99, 3 + 3 * seed)).tolist()
        clean = [{"sigma": s, "mean": round(rng.uniform(0.1, 0.2), 2), "stderr": 0.02} for s in levels]
        biases = [
            {"to": to, "from": up, "mean": round(1 + rng.exponential(0.04), 2), "stderr": None}
            for to in levels
            for up in levels
            if to < up
        ]
        told = {"tau": 1.05, "start": "error", "start_sigma": levels[0], "levels": levels}
        put(copy / f"02-search/adaptive/seed-{seed}/landscape.json", told | {"clean": clean, "biases": biases})
    study = read_study(copy)
    watched = Watched(browser, write_page(study, tmp_path / "page.html"))
    ties = 0
    for number, search in enumerate(study.searches):
        watched.tab.select_option("#search-select", index=number)
        found = search.landscape
        start = start_level(found.levels, lambda s, found=found: Estimate(*found.clean[s], 2, 1), "error")
        for tau in (1.01, 1.02, 1.05, 1.08, 1.2):
            set_value(watched.tab, "#tau", tau)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ForcedTransition)
                ladder = greedy_schedule(found.levels, found.bias, tau, start=start)
            assert drawn_ladder(watched.tab) == list(ladder.sigma)
            ties += sum(step["bias"] == tau for step in ladder.meta["steps"])
    assert ties > 0  # equality is within τ
    watched.context.close()


def test_infinite_biases_force_a_step(browser, run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    path = copy / "02-search/adaptive/seed-0/landscape.json"
    found = json.loads(path.read_text())
    for bias in found["biases"]:
        if bias["to"] == found["levels"][0]:
            bias["mean"], bias["stderr"] = None, None
    put(path, found)
    watched = Watched(browser, write_page(read_study(copy), tmp_path / "page.html"))
    assert drawn_ladder(watched.tab)[:2] == found["levels"][:2]
    assert "forced" in watched.tab.inner_text("#ladder-note")
    assert "∞" in watched.tab.inner_text("#ladder-steps")
    assert watched.said == []
    watched.context.close()


def test_a_cell_tells_its_jump_to_mouse_and_keyboard(run, tab):
    tab.select_option("#search-select", value="0")
    found = read_study(run).searches[0].landscape
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


def test_reset_returns_to_the_searched_ladder(run, tab):
    tab.select_option("#search-select", value="0")
    set_value(tab, "#tau", 1.4)
    assert "another ladder" in tab.inner_text("#ladder-note")
    tab.click("#tau-reset")
    assert drawn_ladder(tab) == list(read_study(run).searches[0].schedule.sigma)
    assert "trained" in tab.inner_text("#ladder-note")
