"""`biasbound data …`: make, look at and convert trajectories.

Nothing heavy is imported before a command runs, so that --help is quick. A command that cannot do what was
asked raises one sentence and leaves the disk as it was; `biasbound.cli` turns it into exit code 2.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from biasbound.cli.reading import add_reading, reading
from biasbound.data.formats import FORMATS
from biasbound.flows import FLOWS
from biasbound.registry import allow, known

__all__ = ["add_parser"]


def add_parser(commands: Any, words: Sequence[str]) -> None:
    """Register `data` and, if `words` (the command line) begin with it, its sub-commands.

    Each sets `run`, which takes the arguments. A flow may be typed as package.module:name.
    """
    data = commands.add_parser("data", help="make, look at and convert trajectories")
    if list(words[:1]) != ["data"]:
        return
    parts = data.add_subparsers(metavar="COMMAND", required=True)
    typed = [word for word in words[1:2] if ":" in word]
    for name in dict.fromkeys((*known(FLOWS), *typed)):
        _add_flow(parts.add_parser(name, help=_title(name)), name)
    info = parts.add_parser("info", help="shape, time step, channels, statistics, provenance")
    info.add_argument("file", type=Path, metavar="FILE", help="any readable file or folder, or a pattern in quotes")
    _add_reading(info)
    info.add_argument("--plot", type=Path, metavar="PNG", help="draw a trajectory into this file")
    info.add_argument("--trajectory", type=int, default=0, metavar="I", help="which to draw")
    info.add_argument("--force", action="store_true", help="replace an existing picture")
    info.set_defaults(run=_info)
    convert = parts.add_parser("convert", help="read A in any format, write it as B")
    convert.add_argument("source", type=Path, metavar="A")
    convert.add_argument("target", type=Path, metavar="B")
    convert.add_argument(
        "--format",
        metavar="NAME",
        help=f"of B: {', '.join(known(FORMATS))} (default: by its ending: .h5, .npy, .nc, .zarr)",
    )
    _add_reading(convert)
    convert.add_argument("--force", action="store_true", help="replace an existing file B")
    convert.set_defaults(run=_convert)


def _title(name: str) -> str:
    """The first line on a flow, read from the text of its module where that is not imported yet."""
    entry = FLOWS.get(name, "")
    if not isinstance(entry, str):
        return (inspect.getdoc(entry) or "").partition("\n")[0]
    spec = find_spec(entry.partition(":")[0]) if entry else None
    if spec is None or spec.origin is None:
        return ""
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def _add_flow(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--size", default="small", help="a named size (default: small)")
    parser.add_argument("--split", choices=("train", "valid", "test"), default="train")
    parser.add_argument("--trajectories", type=int, metavar="N", help="instead of the size's")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the random numbers")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other setting of the flow; may be repeated",
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: all cores)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--force", action="store_true", help="replace FILE, or an unfinished one of other settings")
    parser.set_defaults(run=_generate, flow=name)


def _add_reading(parser: argparse.ArgumentParser) -> None:
    add_reading(parser)
    parser.add_argument("--momentum", action="store_true", default=None, help="ACDM: momentum, not velocity")


def _source(given: argparse.Namespace) -> Any:
    """The source that the options describe."""
    from biasbound.flows.flow import source

    changes: dict[str, Any] = {}
    for text in given.set:
        name, sign, value = text.partition("=")
        if not sign:
            raise ValueError(f"--set takes NAME=VALUE, got {text!r}")
        changes[name] = _value(value)
    if given.trajectories is not None:
        changes["trajectories"] = given.trajectories
    allow([given.flow])
    return source(given.flow, given.size, given.split, given.seed, **changes)


def _value(text: str) -> Any:
    """A JSON value, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _generate(given: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from biasbound.cli.wish import cores
    from biasbound.flows.generate import generate

    source = _source(given)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("trajectories, elapsed"),
        TimeElapsedColumn(),
        TextColumn("remaining"),
        TimeRemainingColumn(),
    )
    # Blocks may take minutes: estimate from the whole run, not from its last 30 seconds.
    bar = Bar(*columns, console=Console(stderr=True), speed_estimate_period=1e9)
    with bar if sys.stderr.isatty() else nullcontext():
        task = bar.add_task(given.flow, total=source.layout.trajectories)
        written = generate(
            source,
            given.out,
            jobs=cores() if given.jobs is None else given.jobs,
            dtype=given.dtype,
            overwrite=given.force,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    size = " × ".join(map(str, source.layout.shape))
    print(f"{given.out}: {size} {'written' if written else 'is there already'}")


def _load(path: Path, given: argparse.Namespace) -> Any:
    from biasbound.data.formats import load

    return load(path, reading(given), **({} if given.momentum is None else {"momentum": given.momentum}))


def _info(given: argparse.Namespace) -> None:
    from biasbound.data.describe import describe

    trajectories = _load(given.file, given)
    print(describe(trajectories))
    if given.plot is not None:
        from biasbound.report.pictures import draw, save_picture

        save_picture(draw(trajectories, given.trajectory), given.plot, given.force)
        print(f"{given.plot}: picture of trajectory {given.trajectory}")


def _convert(given: argparse.Namespace) -> None:
    from biasbound.data.formats import save

    allow([given.format or ""])
    trajectories = _load(given.source, given)
    save(trajectories, given.target, format=given.format, overwrite=given.force)
    size = " × ".join(map(str, trajectories.shape))
    print(f"{given.target}: {size} written")
