"""The reference pages of the site, from the package itself: commands, config fields and the API, as MyST Markdown.

    python docs/reference.py FOLDER     writes them there

The build of the site calls `write`, so that these pages are never older than the code.
"""

import argparse
import ast
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

import biasbound
from biasbound.cli.parser import command_parser
from biasbound.cli.wish import EXAMPLES, STUDY_COMMANDS, _parser
from biasbound.study.config import SECTIONS, Config
from biasbound.study.parsing import presets

MADE = "Made from the code when the site is built (`docs/reference.py`)."
API = tuple(name for name in biasbound.PACKAGES if name not in ("cli",))


# ---------------------------------------------------------------------------------------------------- tables


def row(*cells: str) -> str:
    """A row of a table; a bar inside a cell is text."""
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def table(head: tuple[str, ...], rows: list[str]) -> str:
    return "\n".join([row(*head), row(*[":--"] * len(head)), *rows]) + "\n" if rows else ""


def code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


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


# -------------------------------------------------------------------------------------------------------- API


def modules(package: str) -> list[Any]:
    """The package's modules in order, itself first."""
    root = importlib.import_module(f"biasbound.{package}")
    names = sorted(info.name for info in pkgutil.walk_packages(root.__path__, f"{root.__name__}."))
    return [root, *map(importlib.import_module, names)]


def public(module: Any) -> list[tuple[str, Any]]:
    """Classes and functions that are written there, in their order."""
    return [
        (name, value)
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isroutine(inspect.unwrap(value) if callable(value) else value))
        and getattr(value, "__module__", "") == module.__name__
        and getattr(value, "__name__", "") == name
        and inspect.getdoc(value)
    ]


def api(package: str) -> str:
    """The public classes and functions of a package, with their docstrings."""
    every = modules(package)
    parts = [f"# biasbound.{package}\n\n{MADE}\n\n{_markdown(every[0])}\n"]
    for module in every:
        if module is not every[0]:
            parts.append(f"## {module.__name__.removeprefix('biasbound.')}\n\n{_markdown(module)}\n")
        parts += [_described(module.__name__, name, value) for name, value in public(module)]
    return "\n".join(parts)


def _described(module: str, name: str, value: Any) -> str:
    if not inspect.isclass(value):
        return _directive("function", f"{module}.{name}{_signature(value)}", _markdown(value))
    inside = [
        _directive("method", f"{member}{_signature(thing, skip=True)}", _markdown(thing), colons=3)
        for member, thing in vars(value).items()
        if not member.startswith("_") and inspect.isfunction(thing) and thing.__doc__
    ]
    shown = "" if _unsigned(value) else _signature(value)
    return _directive("class", f"{module}.{name}{shown}", "\n\n".join([_markdown(value), *inside]), colons=4)


def _directive(kind: str, signature: str, body: str, colons: int = 4) -> str:
    return f"{':' * colons}{{py:{kind}}} {signature}\n\n{body}\n{':' * colons}\n"


def _unsigned(value: Any) -> bool:
    """Whether a call of the class says nothing: registries, errors, protocols."""
    return issubclass(value, BaseException | dict) or getattr(value, "_is_protocol", False)


def _signature(value: Any, skip: bool = False) -> str:
    """As it is written, on one line; defaults that are no literals are dots."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    known = vars(sys.modules[value.__module__])

    def written(hint: Any) -> Any:
        return found.empty if hint is found.empty else _plain(hint, known)

    given = list(found.parameters.values())[1 if skip else 0 :]
    kept = [p.replace(annotation=written(p.annotation), default=_literal(p)) for p in given]
    back = found.empty if inspect.isclass(value) else found.return_annotation
    return str(found.replace(parameters=kept, return_annotation=written(back)))


class _Written:
    """A text that is its own repr."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _plain(hint: Any, known: dict[str, Any]) -> Any:
    """Names of classes in full, so that they become links where they are ours; the site shows their last part."""
    text = hint if isinstance(hint, str) else inspect.formatannotation(hint)
    short = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])", "", text).replace("'", '"')

    def linked(match: re.Match[str]) -> str:
        thing = known.get(match[0])
        return f"{thing.__module__}.{thing.__name__}" if inspect.isclass(thing) else match[0]

    return _Written(re.sub(r"\b[A-Z]\w*", linked, short))


def _literal(parameter: inspect.Parameter) -> Any:
    if parameter.default is parameter.empty:
        return parameter.empty
    plain = isinstance(parameter.default, str | int | float | bool | tuple | None.__class__)
    return parameter.default if plain else _Written("...")


def _markdown(value: Any) -> str:
    """A docstring as Markdown, which it nearly is: examples become blocks, and marks of other notations stay text."""
    lines, block, made = (inspect.getdoc(value) or "").splitlines(), False, []
    for line in lines:
        begins = line.lstrip().startswith(">>>")
        if begins and not block:
            made += ["```pycon"]
            block = True
        elif block and not line.strip():
            made += ["```"]
            block = False
        made.append(line.strip() if block else _safe(line))
    return "\n".join([*made, *(["```"] if block else [])])


def _safe(line: str) -> str:
    """Outside code, what would be a role, an emphasis or markup."""
    if line.startswith("    "):
        return line
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(part if i % 2 else re.sub(r"([*_<\[\]|{}$])", r"\\\1", part) for i, part in enumerate(parts))


def first_line(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0]


# ------------------------------------------------------------------------------------------------------ pages


def pages() -> dict[str, str]:
    """{name of a file: its text}."""
    made = {"commands.md": commands(), "config.md": config(), "api.md": index()}
    return made | {f"api-{package}.md": api(package) for package in API}


def index() -> str:
    """What a script needs, and the packages behind it."""
    homes = [
        row(code(f"biasbound.{name}"), code(f"biasbound.{home}"), first_line(getattr(biasbound, name)))
        for name, home in biasbound.HOMES.items()
    ]
    packages = [row(f"[{p}](api-{p}.md)", first_line(importlib.import_module(f"biasbound.{p}"))) for p in API]
    entries = "\n".join(f"api-{p}" for p in API)
    return "\n".join(
        [
            f"# API\n\n{MADE}\n",
            "What a script needs is at the top of the package:\n",
            table(("name", "written in", "what it is"), homes),
            "Behind it, in the order in which data flow:\n",
            table(("package", "what it holds"), packages),
            f"```{{toctree}}\n:hidden:\n:titlesonly:\n\n{entries}\n```\n",
        ]
    )


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
