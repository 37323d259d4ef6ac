"""A browser's tab for the tests of the page, and what they do in it."""

import json


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


def set_value(tab, selector, value, event="input"):
    tab.eval_on_selector(
        selector, "(e, [v, kind]) => { e.value = v; e.dispatchEvent(new Event(kind)); }", [str(value), event]
    )


def drawn_ladder(tab):
    return json.loads(tab.get_attribute("#heatmap", "data-levels"))
