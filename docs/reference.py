"""The reference pages of the site, from the package itself: commands, config fields and the API, as MyST Markdown.

    python docs/reference.py FOLDER     writes them there

The build of the site calls `write`, so that these pages are never older than the code.
"""

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

from api_pages import API, api, first_line, index
from page_parts import MADE, code, row, table

from biasbound.cli.parser import command_parser
from biasbound.cli.wish import EXAMPLES, STUDY_COMMANDS, _parser
from biasbound.study.config import SECTIONS, Config
from biasbound.study.parsing import presets

# -------------------------------------------------------------------------------------------------- commands


def commands() -> str:
    """Every command with its arguments, from the parsers."""
    parts = [f"# Command line\n\n{MADE} `biasbound COMMAND --help` says the same.\n", _study_commands()]
    parser = command_parser(["data"])
    for name, sub, what in _subparsers(parser):
        if name not in STUDY_COMMANDS:
            parts += _command(name, sub, what)
    return "\n".join(parts)


def _subparsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            told = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, sub in action.choices.items():
                yield name, sub, told.get(name, "")


def _command(name: str, parser: argparse.ArgumentParser, what: str) -> list[str]:
    """A command and those below it, each with a heading of its own."""
    made = [f"## biasbound {name}\n", f"{_sentence(what or parser.description or '')}\n", _options(parser._actions)]
    if parser.epilog and parser.epilog.startswith("example: "):
        made.append(f"```text\n{parser.epilog.removeprefix('example: ')}\n```\n")
    for part, sub, told in _subparsers(parser):
        made += _command(f"{name} {part}", sub, told)
    return [text for text in made if text.strip()]


def _study_commands() -> str:
    """The commands of a study share their options."""
    own = {f.name for f in fields(Config)}
    parser = _parser("run", None)
    actions = [a for a in parser._actions if a.dest.partition(".")[0] not in own and a.dest != "print_config"]
    verbs = [row(f"`biasbound {verb}`", what, code(EXAMPLES[verb])) for verb, (_, what, _) in STUDY_COMMANDS.items()]
    return "\n".join(
        [
            "## Studies\n",
            table(("command", "what it does", "example"), verbs),
            "All of them take these options, and every field of the [config](config.md) as `--section.field VALUE`.",
            "`--print_config` prints the resolved config.\n",
            _options(actions),
        ]
    )


def _options(actions: list[argparse.Action]) -> str:
    rows = []
    for action in actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction | argparse._VersionAction):
            continue
        rows.append(row(code(_spelling(action)), _default(action), _help(action)))
    return table(("argument", "default", "meaning"), rows)


def _spelling(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else None
    if action.choices and value is None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return value or action.dest.upper()
    name = max(action.option_strings, key=len).removesuffix("+")  # lists may be added to
    return name if action.nargs == 0 else f"{name} {value or action.dest.rpartition('.')[2].upper()}"


def _default(action: argparse.Action) -> str:
    if action.required and action.option_strings:
        return "required"
    shown = action.default not in (None, argparse.SUPPRESS, False, [], "") and action.dest != "jobs"  # cores differ
    return code(action.default) if shown else ""


def _help(action: argparse.Action) -> str:
    """Its help without the defaults that it repeats, and with names of fields as text."""
    return re.sub(r" ?\(default:? [^)]*\)", "", (action.help or "").replace("%%", "%")).replace("*", "\\*")


def _sentence(text: str) -> str:
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}" if text else ""


# ---------------------------------------------------------------------------------------------- config fields


def config() -> str:
    """Every field of a study's config, from the dataclasses and the docstrings of their fields."""
    simple = [f for f in fields(Config) if f.name not in SECTIONS]
    told = _field_docs(Config)
    names = ", ".join(f"`{name}`" for name in presets())
    parts = [
        f"# Config of a study\n\n{MADE} `biasbound run --preset NAME --print_config` prints all of it for a preset.\n",
        f"Presets: {names}.\n",
        table(("field", "type", "default", "meaning"), [_field(Config, f, told) for f in simple]),
    ]
    for name, kind in SECTIONS.items():
        parts.append(f"## {name}\n\n{_sentence(first_line(kind))}\n")
        told = _field_docs(kind)
        parts.append(
            table(("field", "type", "default", "meaning"), [_field(kind, f, told, name) for f in fields(kind)])
        )
    return "\n".join(parts)


def _field(kind: Any, field: Any, told: dict[str, str], section: str = "") -> str:
    if field.default is not MISSING:
        default = field.default
    else:
        default = field.default_factory() if field.default_factory is not MISSING else ""
    name = f"{section}.{field.name}" if section else field.name
    hint = get_type_hints(kind).get(field.name, field.type)
    return row(code(name), code(_type(hint)), code(repr(default)), told.get(field.name, "").replace("*", "\\*"))


def _type(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and not getattr(hint, "__args__", ()) else str(hint)
    return re.sub(r"\b(typing|collections\.abc|pathlib)\.", "", text)


def _field_docs(kind: type) -> dict[str, str]:
    """{field: the docstring below it}, those of its parents included."""
    found: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        if not is_dataclass(parent):
            continue
        body = ast.parse(inspect.cleandoc(inspect.getsource(parent))).body[0].body
        for here, after in pairwise(body):
            if (
                isinstance(here, ast.AnnAssign)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                found[here.target.id] = str(after.value.value)
    return found


# ------------------------------------------------------------------------------------------------------ pages


def pages() -> dict[str, str]:
    """{name of a file: its text}."""
    made = {"commands.md": commands(), "config.md": config(), "api.md": index()}
    return made | {f"api-{package}.md": api(package) for package in API}


def write(folder: Path) -> list[Path]:
    """Write all pages; those that have not changed keep their time, so that Sphinx does not read them again."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, text in pages().items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
        made.append(path)
    return made


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("\n".join(map(str, write(Path(sys.argv[1])))))
