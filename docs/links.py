"""Whether every link of the built site leads somewhere: python docs/links.py build/site

Files and anchors of the site are looked up. Addresses elsewhere are counted, not visited: a build needs no network.
"""

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The anchors of a page, and what it links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value and tag != "link":
                self.links.append(value)


@cache
def read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def broken(site: Path) -> tuple[list[str], int, int]:
    """(links that lead nowhere, local links, links elsewhere)."""
    found, local, elsewhere = [], 0, 0
    for path in sorted(site.rglob("*.html")):
        for link in read(path).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                elsewhere += 1
                continue
            local += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            known = target.suffix == ".html" and target.is_file() and anchor in read(target).anchors
            if not target.exists() or (anchor and not known):
                found.append(f"{path.relative_to(site)}: {link}")
    return found, local, elsewhere


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found, local, elsewhere = broken(Path(sys.argv[1]).resolve())
    print("\n".join(found))
    if found:
        sys.exit(f"{len(found)} of {local} local links lead nowhere")
    print(f"{local} local links lead somewhere; {elsewhere} links elsewhere were not visited")


if __name__ == "__main__":
    main()
