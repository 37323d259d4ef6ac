"""A table as a value, and its three forms: Markdown, LaTeX and a console's."""

import re
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": "$<$", ">": "$>$", "±": r"$\pm$", "∞": r"$\infty$", "≤": r"$\leq$", "×": r"$\times$",
    "–": "--",
}  # fmt: skip
MARKDOWN = {"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {c: f"\\{c}" for c in "\\|*_`[]$"}


def _escaped(text: str, table: dict[str, str]) -> str:
    """One line of text in which nothing is markup."""
    return "".join(table.get(c, c) for c in re.sub(r"\s+", " ", text).strip())


@dataclass(frozen=True)
class Cell:
    """A value, bold if it is the best of its column, and what stands behind it."""

    value: str
    rest: str = ""
    best: bool = False

    def written(self, escape: Callable[[str], str], bold: str) -> str:
        """With `bold` a pattern for the best value."""
        value = escape(self.value)
        value = bold.format(value) if self.best else value
        return f"{value} {escape(self.rest)}" if self.rest else value


@dataclass(frozen=True)
class Line:
    """One row; `ruled` asks for a thin rule above it."""

    cells: tuple[Cell, ...]
    ruled: bool = False


@dataclass(frozen=True)
class Table:
    """Groups of lines under common columns.

    With `grouped`, the first line of each group names it in the first column.
    """

    title: str
    columns: tuple[str, ...]
    groups: tuple[tuple[Line, ...], ...]
    notes: tuple[str, ...] = ()
    grouped: bool = True
    left: int = 2  # columns of words, which are flush left

    def markdown(self) -> str:
        """A GitHub table, the title above and the notes below it."""
        escape = partial(_escaped, table=MARKDOWN)
        rule = [":--" if i < self.left else "--:" for i in range(len(self.columns))]
        lines = [f"**{escape(self.title)}**", "", _piped(map(escape, self.columns)), _piped(rule)]
        for group in self.groups:
            lines += [_piped(c.written(escape, "**{}**") for c in line.cells) for line in group]
        if self.notes:
            notes = " ".join(map(escape, self.notes))
            lines += ["", *textwrap.wrap(notes, 100, break_long_words=False, break_on_hyphens=False)]
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        """A table environment for the package booktabs."""
        escape = partial(_escaped, table=LATEX)
        count = len(self.columns)
        body = [" & ".join(map(escape, self.columns)) + r" \\"]
        for group in self.groups:
            body.append(r"\midrule")
            for line in group:
                if line.ruled:
                    body.append(rf"\cmidrule(l){{{2 if self.grouped else 1}-{count}}}")
                cells = [c.written(escape, r"\textbf{{{}}}") for c in line.cells]
                body.append(" & ".join(cells) + r" \\")
        caption = escape(" ".join([f"{self.title}.", *self.notes]))
        begin = rf"\begin{{tabular}}{{{'l' * self.left}{'c' * (count - self.left)}}}"
        head = [r"\begin{table}", r"\centering", r"\small", begin, r"\toprule"]
        return "\n".join(
            [*head, *body, r"\bottomrule", r"\end{tabular}", rf"\caption{{{caption}}}", r"\end{table}", ""]
        )

    def text(self) -> str:
        """Plain text in columns; a star follows the best."""
        plain = partial(_escaped, table={})
        body = [[[c.written(plain, "{}*") for c in line.cells] for line in group] for group in self.groups]
        head = [plain(c) for c in self.columns]
        every = [head, *(line for group in body for line in group)]
        widths = [max(len(line[i]) for line in every) for i in range(len(head))]

        def row(line: list[str]) -> str:
            cells = [
                c.ljust(w) if i < self.left else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))
            ]
            return "  ".join(cells).rstrip()

        rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
        lines = [plain(self.title), row(head)]
        for group in body:
            lines += [rule, *map(row, group)]
        return "\n".join([*lines, rule, *map(plain, self.notes)]) + "\n"

    def show(self, console: "Console | None" = None) -> None:
        """To a console: with the best in bold on a terminal, as plain text into a file or pipe."""
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text  # labels are text, never markup

        console = console or Console()
        if not console.is_terminal:
            console.file.write(self.text())
            return
        made = RichTable(title=Text(self.title), caption=Text(" ".join(self.notes)))
        for i, column in enumerate(self.columns):
            made.add_column(Text(column), justify="left" if i < self.left else "right")
        for group in self.groups:
            made.add_section()
            for line in group:
                cells = [
                    Text.assemble((c.value, "bold" if c.best else ""), f" {c.rest}" if c.rest else "")
                    for c in line.cells
                ]
                made.add_row(*cells)
        console.print(made)


def _piped(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
