"""Pictures of a page in headless Chromium, of a report or of the site: python benchmarks/screenshots.py PAGE OUT_PREFIX

Writes OUT_PREFIX-desktop.png, -dark.png and -phone.png, each of the whole page, and -print.pdf. `--screen` keeps the first
screen only; `--part CSS` takes one part of the page. `--views desktop phone` makes fewer. Pictures for the documents:

    python benchmarks/screenshots.py RUN/07-report/index.html docs/img/page --screen --views desktop phone --colours 64
"""

import argparse
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

VIEWS = {
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}, "device_scale_factor": 2, "has_touch": True},
    "print": {"viewport": {"width": 1280, "height": 900}},
}


def taken(page: Page, name: str, given: argparse.Namespace) -> str:
    """Write the picture of one view, and return its name."""
    path = f"{given.prefix}-{name}.{'pdf' if name == 'print' else 'png'}"
    if name == "print":
        page.pdf(path=path, format="A4", margin=dict.fromkeys(("top", "bottom", "left", "right"), "12mm"))
        return path
    if given.part:
        page.locator(given.part).first.screenshot(path=path)
    else:
        page.screenshot(path=path, full_page=not given.screen)
    if given.colours:  # a page has few colours, and a document's pictures are to be small
        Image.open(path).convert("RGB").quantize(given.colours, dither=Image.Dither.NONE).save(path, optimize=True)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("prefix")
    parser.add_argument("--views", nargs="+", choices=VIEWS, default=[*VIEWS])
    parser.add_argument("--screen", action="store_true", help="the first screen only")
    parser.add_argument("--part", help="a CSS selector: the first element that it finds")
    parser.add_argument("--colours", type=int, help="of a small picture")
    given = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("no Chromium was found; install it with: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name in given.views:
            page = browser.new_context(**VIEWS[name]).new_page()
            page.goto(given.page.resolve().as_uri())
            if page.locator("script#data").count():  # a report draws itself
                page.wait_for_selector("html[data-ready]")
            print(taken(page, name, given))
        browser.close()


if __name__ == "__main__":
    main()
