"""Pieces of Markdown that the reference pages are made of."""

MADE = "Made from the code when the site is built (`docs/reference.py`)."


def row(*cells: str) -> str:
    """A row of a table; a bar inside a cell is text."""
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def table(head: tuple[str, ...], rows: list[str]) -> str:
    return "\n".join([row(*head), row(*[":--"] * len(head)), *rows]) + "\n" if rows else ""


def code(text: object) -> str:
    return f"`{text}`" if str(text) else ""
