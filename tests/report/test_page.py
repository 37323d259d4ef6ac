"""The page in a browser: it shows what Python computes, is safe, usable and needs nothing else."""

import re
import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from browsing import Watched, browsers, set_value, skip_without_browser
from report_study import EVIL, METHODS

from biasbound.report.page import write_page
from biasbound.report.study import read_study
from biasbound.report.tables import table1


def test_the_page_loads_in_silence_and_alone(opened, file):
    assert opened.said == []
    assert opened.asked == [file.as_uri()]
    assert opened.tab.locator("main > section:visible").count() == 9


def test_frames_that_stand_alone_have_no_charts_over_time(study, visitor, tmp_path):
    """Their table has every score that such a chart could show."""
    rows = [r for r in study.rows if r.metric != "correlation_time" and (r.step in (None, 1) or r.metric != "mse")]
    single = replace(study, rows=(*rows, replace(rows[0], metric="crps", step=1, value=0.1)))
    visitor.visit(write_page(single, tmp_path / "page.html"))
    assert visitor.said == []
    for part in ("#time", "#ensemble"):
        assert visitor.tab.locator(part).is_hidden()
    assert "Every frame is answered from its own observation" in visitor.tab.inner_text("#player-caption")


def test_text_is_text(opened, tab):
    assert tab.inner_text("#dataset") == EVIL
    assert EVIL in tab.inner_text("#title")
    assert EVIL.replace('"', '\\"') in tab.evaluate("document.getElementById('config').textContent")
    assert tab.evaluate("document.querySelectorAll('script').length") == 2
    assert "dialog" not in opened.said


def only(tab, *names):
    """Show these methods in the player and no others."""
    for box in tab.locator("#p-models label").all():
        box.locator("input").set_checked(box.inner_text() in names)


def told(tab, name):
    return tab.inner_text(f"#panels [data-name='{name}'] .told")


def test_the_player_moves(tab):
    tab.locator("#player").scroll_into_view_if_needed()
    only(tab, "linear")
    set_value(tab, "#p-frame", 0)
    before = told(tab, "linear"), tab.get_attribute("#profile .line.k1", "d")
    set_value(tab, "#p-frame", 25)
    assert (told(tab, "linear"), tab.get_attribute("#profile .line.k1", "d")) != before
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


def test_the_player_shows_the_errors_of_all_chosen_rollouts_side_by_side(study, tab):
    truth = study.truth(3, 40)
    only(tab, *METHODS)
    assert tab.locator("#panels canvas").count() == 2 * len(METHODS) + 2  # the truth, and the scale of its colours
    for trajectory, member, frame in ((0, 0, 39), (2, 1, 10)):
        tab.select_option("#p-trajectory", index=trajectory)
        tab.select_option("#p-member", index=member)
        set_value(tab, "#p-frame", frame)
        for model in study.models:
            error = model.rollout.prediction[member, trajectory, frame] - truth[trajectory, frame]
            shown = re.search(r"RMS error ([\d.]+)(?:·10(⁻?[⁰¹²³⁴-⁹]+))?", told(tab, model.label))
            value = float(shown[1])
            if shown[2]:
                digits = shown[2].translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
                value *= 10.0 ** int(digits)
            assert value == pytest.approx(float(np.sqrt(np.mean(error**2))), rel=0.02)


def test_drift_and_own_error_are_one_entry_of_the_legend_each(study, tab):
    legend = tab.locator("#split-chart .legend button")
    assert legend.all_inner_texts() == list(METHODS)
    lines = tab.locator("#split-chart path.line[data-name]")
    assert lines.count() == 2 * len(METHODS)
    legend.nth(0).click()
    assert lines.count() == 2 * len(METHODS) - 2
    legend.nth(0).click()
    tab.focus("#split-chart .chart svg")
    tab.keyboard.press("End")
    own = next(r for r in study.rows if r.method == "linear" and r.metric == "split_own" and r.step == 40)
    shown = re.search(r"linear, own error: ([\d.]+)", tab.inner_text("#split-chart .tip"))
    assert float(shown[1]) == pytest.approx(own.value**0.5, rel=1e-3)


def test_spread_is_shown_for_ensembles_only(visitor, study, tmp_path):
    sizes = {"linear": 0.5, "unet": 0.0}  # the members of a direct model are equal
    like = [r for r in study.rows if r.metric == "fsd" and r.method in sizes]
    rows = [replace(r, metric=m, value=v) for r in like for m, v in (("crps", 0.1), ("spread_skill", sizes[r.method]))]
    visitor.visit(write_page(replace(study, rows=(*study.rows, *rows)), tmp_path / "page.html"))
    names = visitor.tab.locator("#spread-chart path.line[data-name]").evaluate_all(
        "all => all.map(e => e.dataset.name)"
    )
    assert names == ["linear"]
    assert visitor.tab.locator("#crps-chart path.line[data-name]").count() == 2


def test_lines_can_be_switched_and_read_by_keyboard(tab):
    legend = tab.locator("#error-chart .legend button")
    assert legend.all_inner_texts() == list(METHODS)
    lines = tab.locator("#error-chart path.line[data-name]")
    assert lines.count() == len(METHODS)
    legend.nth(0).focus()
    tab.keyboard.press("Enter")
    assert lines.count() == len(METHODS) - 1
    assert legend.nth(0).get_attribute("aria-pressed") == "false"
    tab.keyboard.press("Enter")
    assert lines.count() == len(METHODS)
    tab.focus("#error-chart .chart svg")
    tab.keyboard.press("End")
    assert "40" in tab.inner_text("#error-chart .tip")


def test_biases_are_shown_with_all_their_statistics(study, tab):
    model = next(m for m in study.models if m.label == "linear")
    number = [m.label for m in study.models if m.bias].index("linear")
    tab.select_option("#bias-select", value="kind:reb")
    worst = max(model.bias, key=lambda level: level.reb)
    rows = {
        r.locator("th").inner_text(): r.locator("td").all_inner_texts()
        for r in tab.locator("#bias-table tbody tr").all()
    }
    at, mean, pooled, q95 = rows["linear"]
    for shown, value in zip(
        (at, mean.split()[0], pooled, q95), (worst.sigma, worst.reb, worst.reb_pooled, worst.reb_q95), strict=True
    ):
        assert float(shown) == pytest.approx(value, rel=1e-3)
    tab.select_option("#bias-select", value=f"model:{number}")
    assert tab.locator("#bias-table tbody tr").count() == 3 * len(model.bias) - 1  # the top has no level above
    tab.focus("#bias-chart .chart svg")
    tab.keyboard.press("Home")
    assert "95th percentile" in tab.inner_text("#bias-chart .tip")


def test_ticks_of_one_axis_have_different_names(visitor, study, tmp_path):
    flat = [replace(m, bias=tuple(replace(r, reb=1 + 1e-5 * i) for i, r in enumerate(m.bias))) for m in study.models]
    visitor.visit(write_page(replace(study, models=tuple(flat)), tmp_path / "page.html"))
    names = visitor.tab.locator('#bias-chart .chart text[text-anchor="end"]').all_text_contents()
    assert len(set(names)) == len(names) > 2


def test_every_control_has_a_name_and_a_visible_focus(tab):
    nameless = tab.evaluate(
        """[...document.querySelectorAll('select, input, textarea, button, svg[tabindex], [role=region]')].filter(e =>
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
    for _ in range(110):
        order.append(tab.evaluate("document.activeElement?.id || document.activeElement?.tagName"))
        tab.keyboard.press("Tab")
    wanted = ["theme", "headline", "search-select", "tau", "start-rule", "tau-reset", "bias-select"]
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


def test_paper_is_white(browser, file):
    watched = Watched(browser, file, color_scheme="dark")
    theme = "document.documentElement.dataset.theme"
    for event, wanted in (("beforeprint", "light"), ("afterprint", "dark")):
        watched.tab.evaluate(f"window.dispatchEvent(new Event('{event}'))")
        assert watched.tab.evaluate(theme) == wanted
    watched.context.close()


def test_a_phone_does_not_scroll_sideways(browser, file, flow, tmp_path):
    watched = Watched(browser, file, viewport={"width": 360, "height": 740}, has_touch=True)
    for page in (file, write_page(read_study(flow), tmp_path / "page.html")):
        watched.visit(page)
        assert watched.tab.evaluate("document.documentElement.scrollWidth") <= 360
        assert watched.said == []
    set_value(watched.tab, "#p-frame", 4)  # of a flow in two dimensions
    assert watched.tab.inner_text("#p-time").startswith("5 of 8")
    watched.context.close()


@pytest.mark.parametrize("gone", ["01-data", "02-search", "03-train", "06-evaluate", "results.jsonl"])
def test_a_partial_run_gives_a_page_of_the_rest(visitor, copy, gone):
    shutil.rmtree(copy / gone) if (copy / gone).is_dir() else (copy / gone).unlink()
    visitor.visit(write_page(read_study(copy), copy / "index.html"))
    assert visitor.said == []
    assert visitor.tab.locator("main > section:visible").count() >= 5


def test_a_broken_rollout_is_reported(visitor, copy):
    file = copy / "05-rollout" / list(METHODS)[-1] / "seed-0/prediction.npy"
    broken = np.load(file)
    broken[:, :, 7:] = np.inf
    np.save(file, broken)
    visitor.visit(write_page(read_study(copy), copy / "index.html"))
    set_value(visitor.tab, "#p-frame", 6)
    assert "RMS error" in told(visitor.tab, list(METHODS)[-1])
    set_value(visitor.tab, "#p-frame", 7)
    assert "broke down" in told(visitor.tab, list(METHODS)[-1])
    assert visitor.said == []


def number(word):
    """What a word of a table says; 1.5·10⁻³, 1.5e-3 and 0.0015 are the same."""
    plain = word.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", "(),")).replace("·10", "e")
    try:
        return float(plain)
    except ValueError:
        return word


def test_the_headline_is_table_1(study, tab):
    table = table1(study.rows).without_zeros()
    wanted = [
        [[number(word) for word in f"{c.value} {c.rest}".split()] for c in line.cells[table.left :]]
        for group in table.groups
        for line in group
    ]
    lines = tab.locator("#headline tbody tr")
    shown = [
        [[*map(number, t.split())] for t in line.locator("td:not(.words)").all_inner_texts()] for line in lines.all()
    ]
    assert shown == wanted
    assert not re.search(r"\de-?\d", tab.inner_text("#headline") + tab.inner_text("#answer")), (
        "as people write numbers"
    )
    best = sum(c.best for group in table.groups for line in group for c in line.cells)
    assert tab.locator("#headline td.best").count() == best > 0
    names = set(" ".join(tab.locator("#headline tbody th").all_inner_texts()).split())
    assert set(METHODS) <= names


def test_names_of_near_marks_do_not_cover_each_other(visitor, study, tmp_path):
    same = {"one_step_mse": 1e-3}  # all methods at one place of the chart
    rows = [replace(r, nfe=3, value=same.get(r.metric, r.value)) for r in study.rows]
    visitor.visit(write_page(replace(study, rows=tuple(rows)), tmp_path / "page.html"))
    names = visitor.tab.locator("#tradeoff .mark-name").all()
    boxes = [name.bounding_box() for name in names]
    assert len(boxes) == len(METHODS)
    edges = sorted((b["y"], b["y"] + b["height"]) for b in boxes)
    assert all(low - 3 <= high for (_, low), (high, _) in pairwise(edges))  # of the line height


def test_a_line_of_the_exploration_goes_from_level_to_level(visitor, study, tmp_path):
    first = study.searches[0]
    found = replace(first.exploration, points=first.exploration.points[::-1])
    changed = replace(study, searches=(replace(first, exploration=found),))
    visitor.visit(write_page(changed, tmp_path / "page.html"))
    lines = visitor.tab.locator("#exploration path.line[data-name]").all()
    assert lines
    for line in lines:
        across = [float(x) for x in re.findall(r"[ML]([\d.]+),", line.get_attribute("d"))]
        assert across == sorted(across)


def test_a_missing_browser_skips_by_name_and_fails_on_a_ci(monkeypatch):
    class Item:
        name, fixturenames = "test_x", ("browser", "tab")

        def __init__(self):
            self.marks = []

        def add_marker(self, mark):
            self.marks.append(mark)

    monkeypatch.setenv("PATH", "")
    for ci, count in (("", 1), ("false", 1), ("true", 0), ("1", 0)):
        monkeypatch.setenv("CI", ci)
        item = Item()
        skip_without_browser([item])
        told = [mark.kwargs["reason"] for mark in item.marks]
        assert told == ["test_x needs a browser: apt-get install chromium"] * count
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"):
        next(browsers())
