"""A table as a value, and its three forms: Markdown, LaTeX and a console's."""

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

Rows = list[list[list[str]]]  # rows of cells of lines
LEAST = 16  # characters of a name that is broken

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

    def text(self, width: int | None = None) -> str:
        """Plain text in columns; a star follows the best. What is wider than `width` takes several lines per row."""
        plain = partial(_escaped, table={})
        head: Rows = [[[plain(c)] for c in self.columns]]
        body: list[Rows] = [
            [[[c.written(plain, "{}*")] for c in line.cells] for line in group] for group in self.groups
        ]
        if width is not None and _across(_widths([*head, *chain(*body)])) > width:
            return self.without_zeros()._narrow(width)
        return self._text(head, body, None)

    def _text(self, head: Rows, body: list[Rows], width: int | None) -> str:
        """Rows set under their head, the title above and the notes below."""
        plain = partial(_escaped, table={})
        widths = _widths([*head, *chain(*body)])
        rule = "-" * _across(widths)
        lines = [plain(self.title), *self._set(head[0], widths, low=True)]
        for group in body:
            lines += [rule, *(text for line in group for text in self._set(line, widths))]
        return "\n".join([*lines, rule, *_folded(map(plain, self.notes), width)]) + "\n"

    def without_zeros(self) -> "Table":
        """Without columns in which nothing was counted, and the notes on them."""
        every = list(chain(*self.groups))
        kept = [
            i for i, _ in enumerate(self.columns) if i < self.left or any(c.cells[i].value not in "0–" for c in every)
        ]
        lost = {*self.columns} - {self.columns[i] for i in kept}
        groups = tuple(tuple(replace(row, cells=tuple(row.cells[i] for i in kept)) for row in g) for g in self.groups)
        notes = tuple(note for note in self.notes if note.partition(":")[0] not in lost)
        return replace(self, columns=tuple(self.columns[i] for i in kept), groups=groups, notes=notes)

    def _narrow(self, width: int) -> str:
        """As `text`, with what stands behind a value below it, and with long names broken."""
        head = [[_escaped(column, {}).split() for column in self.columns]]
        body = [[[_stacked(cell) for cell in line.cells] for line in group] for group in self.groups]
        name, widths = self.left - 1, _widths([*head, *chain(*body)])
        room = max(LEAST, width - _across(widths) + widths[name])
        for line in chain(*body):
            line[name] = textwrap.wrap(line[name][0], room, subsequent_indent="  ") or [""]
        return self._text(head, body, width)

    def _set(self, row: list[list[str]], widths: list[int], low: bool = False) -> list[str]:
        """The lines of one row; with `low` a short cell stands at its foot."""
        height = max(map(len, row))
        made = []
        for n in range(height):
            at = [n - (height - len(cell) if low else 0) for cell in row]
            words = [cell[i] if 0 <= i < len(cell) else "" for cell, i in zip(row, at, strict=True)]
            cells = [
                w.ljust(n) if i < self.left else w.rjust(n) for i, (w, n) in enumerate(zip(words, widths, strict=True))
            ]
            made.append("  ".join(cells).rstrip())
        return made


def _stacked(cell: Cell) -> list[str]:
    """A value, and below it what stands behind it."""
    value = _escaped(cell.value, {}) + "*" * cell.best
    return [value, _escaped(cell.rest, {})] if cell.rest else [value]


def _widths(rows: Iterable[list[list[str]]]) -> list[int]:
    """Of every column."""
    return [max(len(word) for cell in column for word in cell) for column in zip(*rows, strict=True)]


def _across(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _folded(notes: Iterable[str], width: int | None) -> list[str]:
    return list(notes) if width is None else [line for note in notes for line in textwrap.wrap(note, width)]


def _piped(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
