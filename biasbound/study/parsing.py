"""From YAML files and command lines to a config, and back; what does not fit is refused with the nearest name that exists."""

import argparse
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

import jsonargparse
import yaml

from biasbound._io import check_yaml, plain, read_bounded
from biasbound.study.config import SECTIONS, UNET, Config

# Field docstrings are the help of the command line.
jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)


def _loaded(text: str) -> Any:
    """YAML; a text in place of the section `network` is its name, and unsets what a preset says of the U-Net."""
    check_yaml(text)
    found = jsonargparse.get_loader("yaml")(text)
    if isinstance(found, dict) and isinstance(name := found.get("network"), str):
        found["network"] = {"name": name, **(dict.fromkeys(UNET) if name != "unet" else {})}
    return found


jsonargparse.set_loader("study", _loaded, (yaml.YAMLError,))

UNKNOWN = (  # how jsonargparse says that a name is unknown; what it is; what stands before it
    (r"Group '(\S+)' does not accept option '(\S+)'", "field", ""),
    (r"unrecognized arguments: -+([^\s=]+)", "option", "--"),
    (r"Option '(\S+)' is not accepted", "field", ""),
)
WORDS = {"float": "a number", "int": "a whole number", "NoneType": "null", "str": "a text", "bool": "true or false"}
YAML = 1 << 20  # bytes of a config
NOTHING: tuple[Any, ...] = (None, "", (), [], {}, argparse.SUPPRESS)  # defaults that need no words
PRESETS = Path(__file__).parent / "presets"


def presets() -> dict[str, Path]:
    """The named studies, each a YAML file."""
    return {path.stem: path for path in sorted(PRESETS.glob("*.yaml"))}


def to_yaml(config: Config) -> str:
    """The resolved whole, which `read_config` reads back equal."""
    text: str = yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True, width=100)
    return text


class _Help(jsonargparse.DefaultHelpFormatter):
    """Help for people: defaults that say something, once, and no types of Python."""

    def _get_help_string(self, action: argparse.Action) -> str:
        said = action.help or ""
        if "default" in said or action.default is False or action.default in NOTHING or not action.option_strings:
            return said
        value = action.default
        shown = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        return f"{said} (default: {shown})".replace("%", "%%")

    def _format_action_invocation(self, action: argparse.Action) -> str:
        text = super()._format_action_invocation(action).replace(" \b", "")
        return re.sub(r", --\S+\+ \S+$", "", text)  # lists may be added to


class ConfigParser(jsonargparse.ArgumentParser):
    """Says in one sentence what is wrong, with the nearest name that exists."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, formatter_class=_Help, **options)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        self.exit(2, f"{self.prog}: {self._sentence(message)}; `{self.prog} --help` shows what there is\n")

    def _sentence(self, message: str) -> str:
        text = " ".join(message.split()).replace("<class '", "").replace("'>", "").rstrip(".")
        sentence = re.sub(r"Parser key \"([\w.]+)\": ", r"\1: ", text)
        sentence = re.sub(r"^argument (\S+): (must .*)", r"\1 \2", sentence)
        if union := re.search(r"^(\S+): Does not validate .*?Subtypes: \[(.*?)\] .*Given value: (.*)$", sentence):
            wanted = " or ".join(WORDS.get(kind.strip(), kind.strip()) for kind in union[2].split(","))
            sentence = f"{union[1]} must be {wanted}, got {union[3][:100]}"
        for pattern, kind, mark in UNKNOWN:
            if found := re.search(pattern, sentence):
                name = ".".join(found.groups())
                near = _nearest(name, [a.dest for a in self._actions], mark)
                sentence = f"there is no {kind} {mark}{name}{near}"
                break
        return sentence


class _FileParser(ConfigParser):
    """Of a file alone: what is wrong with it ends no program, because a library may have asked."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise ValueError(f"{self.prog}: {self._sentence(message)}; mend the file, or write it anew") from None


def _nearest(given: str, names: list[str], mark: str) -> str:
    """`, did you mean …?` by the whole name, or by its last part in another section."""
    close = difflib.get_close_matches(given, names, n=1, cutoff=0.6)
    if not close:
        last = given.rpartition(".")[2]
        close = [n for n in names if n.rpartition(".")[2] == last][:1]
    return f"; did you mean {mark}{close[0]}?" if close else ""


def config_parser(
    prog: str, description: str, epilog: str, base: Path | None = None, kind: type[ConfigParser] = ConfigParser
) -> ConfigParser:
    """A parser with every field of `Config` as an option; `base` is a YAML file of defaults."""
    parser = kind(
        prog=prog,
        description=description,
        epilog=epilog,
        default_config_files=[] if base is None else [str(base)],
        default_env=False,
        parser_mode="study",
        usage=f"{prog} [RUN] [--preset NAME] [--config FILE] [--section.field VALUE ...] [options below]",
    )
    parser.add_argument("--config", action="config", help="a YAML file with fields of the study, your own")
    parser.add_class_arguments(Config, None)
    for action in parser._actions:
        if action.dest in SECTIONS:
            action.help = "a YAML file with this section"
        elif action.dest == "print_config":
            action.help = "print the resolved config as YAML, and stop"
    return parser


def made(parser: ConfigParser, given: Any) -> Config:
    """The config of parsed arguments; a field that does not fit is a ValueError."""
    try:
        built = parser.instantiate(given)
    except TypeError as error:
        section = next((s for s in SECTIONS if not isinstance(given.get(s), Mapping | jsonargparse.Namespace)), "?")
        raise ValueError(f"{section} is a section with fields, not {given.get(section)!r}") from error
    return Config(**{f.name: getattr(built, f.name) for f in fields(Config)})


def require_config(path: Path) -> None:
    """Refuse what cannot be a config before anyone parses it."""
    if not path.exists():
        raise ValueError(f"there is no config file {path}")
    try:
        check_yaml(read_bounded(path, YAML).decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text in UTF-8 ({error.reason}); write it as YAML") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{path} cannot be used as YAML: {' '.join(str(error).split())}") from None


def read_config(path: Path, changes: Sequence[str] = ()) -> Config:
    """The config of a YAML file, with changes as on the command line."""
    require_config(path)
    parser = config_parser(str(path), "", "", path, _FileParser)
    return made(parser, parser.parse_args(list(changes)))
