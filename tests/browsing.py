"""A browser for the tests of the page, a tab that is watched, and what the tests do in it."""

import json
import os
import shutil

import pytest

CURE = "needs a browser: apt-get install chromium"


def skip_without_browser(items):
    """Skip, by name, the tests that need a browser where there is none; on a CI they fail."""
    if shutil.which("chromium") is None and not on_ci():
        for item in items:
            if "browser" in item.fixturenames:
                item.add_marker(pytest.mark.skip(reason=f"{item.name} {CURE}"))


def on_ci():
    return os.environ.get("CI", "").lower() in ("1", "true")


def browsers():
    """A generator that yields one browser and closes it."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail(f"this test {CURE}")
    from playwright.sync_api import sync_playwright

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
        self.visit(file)

    def visit(self, file):
        """Another page in the same tab, with nothing said or asked yet."""
        self.said.clear()
        self.asked.clear()
        self.tab.goto(file.as_uri())
        self.tab.wait_for_selector("html[data-ready]", timeout=10_000)


def set_value(tab, selector, value, event="input"):
    tab.eval_on_selector(
        selector, "(e, [v, kind]) => { e.value = v; e.dispatchEvent(new Event(kind)); }", [str(value), event]
    )


def drawn_ladder(tab):
    return json.loads(tab.get_attribute("#heatmap", "data-levels"))
