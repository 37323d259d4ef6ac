"""Write the tree of docs/architecture.md from the package: one line per module, the first sentence of its docstring."""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "architecture.md"
ORDER = ("_io", "registry", "data", "flows", "core", "nets", "models", "train", "metrics", "study", "report", "cli")


def sentence(path: Path) -> str:
    """The first line of a module's docstring, without its full stop."""
    told = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
    return told.rstrip(".")


def entries() -> list[tuple[str, str]]:
    """(module, sentence) in the order of the data flow; a package before its modules."""
    package = ROOT / "biasbound"
    found = [("__init__.py", package / "__init__.py")]
    for name in ORDER:
        paths = sorted(
            (package / name).rglob("*.py"), key=lambda p: (p.parent.as_posix(), p.name != "__init__.py", p.name)
        )
        found += [(path.relative_to(package).as_posix(), path) for path in paths]
    return [(name.removesuffix("__init__.py") or name, sentence(path)) for name, path in found]


def table() -> str:
    rows = [f"| `{name}` | {told} |" for name, told in entries()]
    return "\n".join(["| module | what it is |", "| :-- | :-- |", *rows])


def page() -> str:
    """The page with the table as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition("<!-- modules -->\n")
    _, _, after = rest.partition("<!-- end -->")
    return f"{before}<!-- modules -->\n{table()}\n<!-- end -->{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE}: written", file=sys.stderr)
