"""The API pages of the site: public classes and functions of every package, with their docstrings."""

import importlib
import inspect
import pkgutil
import re
import sys
from typing import Annotated, Any, get_args, get_origin

from page_parts import MADE, code, row, table

import biasbound

API = tuple(name for name in biasbound.PACKAGES if name not in ("cli",))


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


def _bare(hint: Any) -> Any:
    """Without the checks that a file's schema adds to a type: they are shown as addresses in memory."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    return hint.copy_with(tuple(map(_bare, get_args(hint)))) if hasattr(hint, "copy_with") else hint


def _plain(hint: Any, known: dict[str, Any]) -> Any:
    """Names of classes in full, so that they become links where they are ours; the site shows their last part."""
    text = hint if isinstance(hint, str) else inspect.formatannotation(_bare(hint))
    short = re.sub(r"\b(?!biasbound\.)(?<!\.)(?:[a-z_]\w*\.)+(?=[A-Za-z])", "", text).replace("'", '"')

    def linked(match: re.Match[str]) -> str:
        thing = known.get(match[0])
        return f"{thing.__module__}.{thing.__name__}" if inspect.isclass(thing) else match[0]

    return _Written(re.sub(r"(?<![\w.])[A-Z]\w*", linked, short))


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
