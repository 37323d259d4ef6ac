"""The page in a real browser: what it draws is what Python computes, and it is safe, usable and alone."""

import json
import re
import shutil
import warnings

import numpy as np
import pytest
from report_study import EVIL, METHODS, fabricate, put

from biasbound.bias import Estimate
from biasbound.report.page import write_page
from biasbound.report.study import read_study
from biasbound.report.tables import table1
from biasbound.search import ForcedTransition, greedy_schedule, start_level


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fabricate(tmp_path_factory.mktemp("page") / "run", dataset=EVIL)


@pytest.fixture(scope="module")
def file(run):
    return write_page(read_study(run), run / "index.html")


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail(
            "no Chromium was found to open the page with; install it: apt-get install chromium"
        )
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


class Watched:
    """A tab that keeps what the page says and asks for."""

    def __init__(self, browser, file, **view):
        self.said, self.asked = [], []
        self.context = browser.new_context(**view)
        self.tab = self.context.new_page()
        self.tab.on("console", lambda message: self.said.append(message.text))
        self.tab.on("pageerror", lambda error: self.said.append(str(error)))
        self.tab.on("dialog", lambda dialog: (self.said.append("dialog"), dialog.dismiss()))
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.tab.goto(file.as_uri())
        self.tab.wait_for_selector("html[data-ready]", timeout=10_000)


@pytest.fixture(scope="module")
def opened(browser, file):
    watched = Watched(browser, file, viewport={"width": 1280, "height": 900})
    yield watched
    watched.context.close()


@pytest.fixture
def tab(opened):
    return opened.tab


def set_value(tab, selector, value, event="input"):
    tab.eval_on_selector(
        selector,
        "(e, [v, kind]) => { e.value = v; e.dispatchEvent(new Event(kind)); }",
        [str(value), event],
    )


def drawn_ladder(tab):
    return json.loads(tab.get_attribute("#heatmap", "data-levels"))


def test_the_page_loads_in_silence_and_alone(opened, file):
    assert opened.said == []
    assert opened.asked == [file.as_uri()]
    assert opened.tab.locator("main > section:visible").count() == 8


def test_text_is_text(opened, tab):
    assert tab.inner_text("#dataset") == EVIL
    assert EVIL in tab.inner_text("#title")
    assert EVIL.replace('"', '\\"') in tab.evaluate(
        "document.getElementById('config').textContent"
    )
    assert tab.evaluate("document.querySelectorAll('script').length") == 2
    assert "dialog" not in opened.said


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
        clean = [
            {"sigma": s, "mean": round(rng.uniform(0.1, 0.2), 2), "stderr": 0.02} for s in levels
        ]
        biases = [
            {"to": to, "from": up, "mean": round(1 + rng.exponential(0.04), 2), "stderr": None}
            for to in levels
            for up in levels
            if to < up
        ]
        told = {"tau": 1.05, "start": "error", "start_sigma": levels[0], "levels": levels}
        put(
            copy / f"02-search/adaptive/seed-{seed}/landscape.json",
            told | {"clean": clean, "biases": biases},
        )
    study = read_study(copy)
    watched = Watched(browser, write_page(study, tmp_path / "page.html"))
    ties = 0
    for number, search in enumerate(study.searches):
        watched.tab.select_option("#search-select", index=number)
        found = search.landscape
        start = start_level(
            found.levels, lambda s, found=found: Estimate(*found.clean[s], 2, 1), "error"
        )
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


def test_the_player_moves(tab):
    tab.locator("#player").scroll_into_view_if_needed()
    set_value(tab, "#p-frame", 0)
    before = tab.inner_text("#p-readout"), tab.get_attribute("#profile .line.k1", "d")
    set_value(tab, "#p-frame", 25)
    assert (tab.inner_text("#p-readout"), tab.get_attribute("#profile .line.k1", "d")) != before
    assert tab.inner_text("#p-time").startswith("26 of 40")
    tab.click("#p-play")
    assert tab.inner_text("#p-play") == "Pause"
    for _ in range(100):  # the page's policy forbids the eval behind wait_for_function
        if int(tab.input_value("#p-frame")) > 27:
            break
        tab.wait_for_timeout(50)
    assert int(tab.input_value("#p-frame")) > 27
    tab.click("#p-play")
    stopped = tab.input_value("#p-frame")
    assert tab.inner_text("#p-play") == "Play"
    tab.wait_for_timeout(300)
    assert tab.input_value("#p-frame") == stopped


def test_the_player_shows_the_error_of_each_rollout(run, tab):
    study = read_study(run)
    truth = study.truth(3, 40)
    last = list(METHODS)
    for number, model in enumerate(study.models):
        assert model.label == last[number]
        tab.select_option("#p-model", index=number)
        for trajectory, member, frame in ((0, 0, 39), (2, 1, 10)):
            tab.select_option("#p-trajectory", index=trajectory)
            tab.select_option("#p-member", index=member)
            set_value(tab, "#p-frame", frame)
            error = model.rollout.prediction[member, trajectory, frame] - truth[trajectory, frame]
            shown = re.search(
                r"RMS error ([\d.]+)(?:·10(⁻?[⁰¹²³⁴-⁹]+))?", tab.inner_text("#p-readout")
            )
            value = float(shown[1])
            if shown[2]:
                digits = shown[2].translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
                value *= 10.0 ** int(digits)
            assert value == pytest.approx(float(np.sqrt(np.mean(error**2))), rel=0.02)


def test_lines_can_be_switched_and_read_by_keyboard(tab):
    legend = tab.locator("#mse-chart .legend button")
    assert legend.all_inner_texts() == list(METHODS)
    lines = tab.locator("#mse-chart path.line[data-name]")
    assert lines.count() == 4
    legend.nth(0).focus()
    tab.keyboard.press("Enter")
    assert lines.count() == 3
    assert legend.nth(0).get_attribute("aria-pressed") == "false"
    tab.keyboard.press("Enter")
    assert lines.count() == 4
    tab.focus("#mse-chart .chart svg")
    tab.keyboard.press("End")
    assert "40" in tab.inner_text("#mse-chart .tip")


def test_every_control_has_a_name_and_a_visible_focus(tab):
    nameless = tab.evaluate(
        """[...document.querySelectorAll('select, input, button, svg[tabindex], [role=region]')].filter(e =>
             !(e.labels?.length || e.textContent.trim() || e.getAttribute('aria-label'))).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    for selector in ("#theme", "#tau", "#heatmap svg", "#p-play", "#headline"):
        tab.keyboard.press("Tab")  # the last input was the keyboard: focus is drawn
        tab.focus(selector)
        width = tab.eval_on_selector(selector, "e => getComputedStyle(e).outlineWidth")
        assert width == "3px", selector


def test_tab_reaches_every_control_in_order(tab):
    tab.focus(".skip")
    order = []
    for _ in range(60):
        order.append(tab.evaluate("document.activeElement?.id || document.activeElement?.tagName"))
        tab.keyboard.press("Tab")
    wanted = [
        "theme",
        "headline",
        "search-select",
        "tau",
        "start-rule",
        "tau-reset",
        "bias-select",
    ]
    places = [order.index(name) for name in wanted if name in order]
    assert len(places) == len(wanted)
    assert places == sorted(places)


def test_dark_and_light(browser, file):
    watched = Watched(browser, file, color_scheme="dark")
    tab = watched.tab

    def brightness(selector, what):
        return tab.eval_on_selector(
            selector,
            "(e, what) => getComputedStyle(e)[what].match(/[\\d.]+/g).slice(0, 3).map(Number).reduce((a, b) => a + b) / 3",
            what,
        )

    assert brightness("body", "backgroundColor") < 60
    assert brightness("body", "color") > 200
    tab.click("#theme")
    assert brightness("body", "backgroundColor") > 200
    assert brightness("body", "color") < 60
    tab.click("#theme")
    assert brightness("body", "backgroundColor") < 60
    watched.context.close()


@pytest.mark.parametrize("rank", [1, 2])
def test_a_phone_does_not_scroll_sideways(browser, file, tmp_path, rank):
    if rank == 2:
        run = fabricate(tmp_path / "run", rank=2, points=16, frames=9, methods=["unet"])
        file = write_page(read_study(run), tmp_path / "page.html")
    watched = Watched(browser, file, viewport={"width": 360, "height": 740}, has_touch=True)
    wide = watched.tab.evaluate("document.documentElement.scrollWidth")
    assert wide <= 360
    assert watched.said == []
    if rank == 2:
        set_value(watched.tab, "#p-frame", 4)
        assert watched.tab.inner_text("#p-time").startswith("5 of 8")
    watched.context.close()


@pytest.mark.parametrize(
    "gone", ["01-data", "02-search", "03-train", "06-evaluate", "results.jsonl"]
)
def test_a_partial_run_gives_a_page_of_the_rest(browser, run, tmp_path, gone):
    copy = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(copy / gone) if (copy / gone).is_dir() else (copy / gone).unlink()
    watched = Watched(browser, write_page(read_study(copy), tmp_path / "page.html"))
    assert watched.said == []
    assert watched.tab.locator("main > section:visible").count() >= 5
    watched.context.close()


def test_a_broken_rollout_is_said_to_be(browser, run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    file = copy / "05-rollout/adaptive-v/seed-0/prediction.npy"
    broken = np.load(file)
    broken[:, :, 7:] = np.inf
    np.save(file, broken)
    watched = Watched(browser, write_page(read_study(copy), tmp_path / "page.html"))
    set_value(watched.tab, "#p-frame", 6)
    assert "RMS error" in watched.tab.inner_text("#p-readout")
    set_value(watched.tab, "#p-frame", 7)
    assert "broke down" in watched.tab.inner_text("#p-readout")
    assert watched.said == []
    watched.context.close()


def test_the_headline_is_table_1(run, tab):
    study = read_study(run)
    table = table1(study.rows)
    wanted = [
        [f"{c.value} {c.rest}".split() for c in line.cells[table.left :]]
        for group in table.groups
        for line in group
    ]
    lines = tab.locator("#headline tbody tr")
    shown = [
        [text.split() for text in line.locator("td:not(.words)").all_inner_texts()]
        for line in lines.all()
    ]
    assert shown == wanted
    best = sum(c.best for group in table.groups for line in group for c in line.cells)
    assert tab.locator("#headline td.best").count() == best > 0
    names = set(" ".join(tab.locator("#headline tbody th").all_inner_texts()).split())
    assert set(METHODS) <= names
