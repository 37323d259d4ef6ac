"""Pictures of a report's page in headless Chromium: python benchmarks/screenshots.py PAGE OUT_PREFIX

Writes OUT_PREFIX-desktop.png, -dark.png and -phone.png, each of the whole page.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

VIEWS = {
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}, "device_scale_factor": 2},
}


def main(page_path: str, prefix: str) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("no Chromium was found; install it with: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, view in VIEWS.items():
            page = browser.new_context(**view).new_page()
            page.goto(Path(page_path).resolve().as_uri())
            page.wait_for_selector("html[data-ready]")
            page.screenshot(path=f"{prefix}-{name}.png", full_page=True)
            print(f"{prefix}-{name}.png")
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
