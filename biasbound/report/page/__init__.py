"""One self-contained HTML page of a study: no server, no network, nothing loaded from anywhere.

The page is put together from the files beside this one. Its content security policy allows exactly
its own style and script, by their hashes, and no connection at all. Text from a study reaches the
document only as JSON in a data block, in which `<` is escaped, and from there only through
`textContent`.
"""

import base64
import hashlib
import html
import json
from importlib.resources import files
from pathlib import Path

from biasbound._io import write_text
from biasbound.report.page.payload import payload
from biasbound.report.page.rollouts import BUDGET
from biasbound.report.study import Study

SCRIPTS = ("core", "colours", "chart", "greedy", "ladder", "front", "growth", "curves", "player", "tables", "main")


def _asset(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def page(study: Study, budget: int = BUDGET) -> str:
    """The page as text; `budget` bounds the bytes of the rollouts."""
    style = _asset("page.css")
    parts = "\n".join(f"// ---- {name}.js\n{_asset(f'{name}.js')}" for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{parts}}})();\n'
    told = json.dumps(payload(study, budget), allow_nan=False, separators=(",", ":"))
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    values = {
        "title": html.escape(f"{study.title} · biasbound"),
        "policy": html.escape(policy),
        "style": style,
        # `<` occurs only inside strings, where \u003c is the same: no tag can begin or end here.
        "data": told.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"),
        "script": script,
    }
    text = _asset("template.html")
    head, *rest = text.split("{{")
    made = [head]
    for part in rest:  # one pass, so that a value that holds {{…}} stays as it is
        name, after = part.split("}}", 1)
        made += [values[name], after]
    return "".join(made)


def write_page(study: Study, path: Path, budget: int = BUDGET) -> Path:
    """Write the page as one file."""
    write_text(path, page(study, budget))
    return path
