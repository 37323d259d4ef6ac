"""`biasbound data …`: make, look at and convert trajectories.

Nothing heavy is imported before a command runs, so that --help is quick. A command that cannot do what was
asked raises one sentence and leaves the disk as it was; `biasbound.cli` turns it into exit code 2.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

__all__ = ["SOURCES", "add_parser"]

SOURCES = {  # command → module and class of the source, what it is
    "ks": ("biasbound.flows.ks", "KuramotoSivashinsky", "the Kuramoto–Sivashinsky equation"),
    "kolmogorov": ("biasbound.flows.kolmogorov", "KolmogorovFlow", "two-dimensional Kolmogorov flow"),
    "transonic": ("biasbound.flows.transonic", "TransonicCylinder", "transonic flow past a cylinder"),
}


def add_parser(commands: Any) -> None:
    """Register `data` and its sub-commands; each sets `run`, which takes the arguments."""
    data = commands.add_parser("data", help="make, look at and convert trajectories")
    parts = data.add_subparsers(metavar="COMMAND", required=True)
    for name, (_, _, what) in SOURCES.items():
        _add_source(parts.add_parser(name, help=f"generate {what}"), name)
    info = parts.add_parser("info", help="shape, time step, channels, statistics, provenance")
    info.add_argument("file", type=Path, metavar="FILE", help="any readable file or folder")
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
        choices=("native", "well", "lpsda", "sda", "acdm", "numpy"),
        help="of B; by its ending otherwise (.h5 native, .npy NumPy)",
    )
    _add_reading(convert)
    convert.add_argument("--force", action="store_true", help="replace an existing file B")
    convert.set_defaults(run=_convert)


def _add_source(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--preset", default="small", help="a named size (default: small)")
    parser.add_argument("--split", choices=("train", "valid", "test"), default="train")
    parser.add_argument("--trajectories", type=int, metavar="N", help="instead of the preset's")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other setting of the generator; may be repeated",
    )
    parser.add_argument("--workers", type=int, metavar="W", help="processes (default: all cores)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--force", action="store_true", help="replace FILE, or an unfinished one of other settings")
    parser.set_defaults(run=_generate, flow=name)


def _add_reading(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dt", type=float, help="time step, where the format has none")
    parser.add_argument("--momentum", action="store_true", default=None, help="ACDM: momentum, not velocity")
    parser.add_argument("--space", type=int, metavar="D", help=".npy: number of space axes")


def _source(given: argparse.Namespace) -> Any:
    """The source that the options describe."""
    import dataclasses
    import importlib
    import inspect

    module_name, class_name, _ = SOURCES[given.flow]
    module = importlib.import_module(module_name)
    kind = getattr(module, class_name)
    preset = module.preset
    if given.preset not in module.PRESETS:
        known = ", ".join(module.PRESETS)
        raise ValueError(f"data {given.flow} has no preset {given.preset!r}; it has {known}")
    changes: dict[str, Any] = {}
    for text in given.set:
        name, sign, value = text.partition("=")
        if not sign:
            raise ValueError(f"--set takes NAME=VALUE, got {text!r}")
        changes[name] = _value(value)
    if given.trajectories is not None:
        changes["trajectories"] = given.trajectories
    settings = {field.name for field in dataclasses.fields(kind)} | {
        name for name, p in inspect.signature(preset).parameters.items() if p.kind == p.KEYWORD_ONLY
    }
    for name in changes:
        if name not in settings:
            raise ValueError(f"data {given.flow} has no setting {name}; it has {sorted(settings)}")
    return preset(given.preset, given.split, seed=given.seed, **changes)


def _value(text: str) -> Any:
    """A JSON value, lists as tuples, or else the text itself."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value


def _generate(given: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

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
    # Blocks may take minutes: estimate from the whole run, not from its last half minute.
    bar = Bar(*columns, console=Console(stderr=True), speed_estimate_period=1e9)
    with bar if sys.stderr.isatty() else nullcontext():
        task = bar.add_task(given.flow, total=source.layout.trajectories)
        written = generate(
            source,
            given.out,
            workers=given.workers if given.workers is not None else _cores(),
            dtype=given.dtype,
            overwrite=given.force,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    size = " × ".join(map(str, source.layout.shape))
    print(f"{given.out}: {size} {'written' if written else 'is there already'}")


def _cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _load(path: Path, given: argparse.Namespace) -> Any:
    from biasbound.data.formats import load

    options = {name: getattr(given, name) for name in ("dt", "momentum", "space")}
    return load(path, **{name: value for name, value in options.items() if value is not None})


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

    trajectories = _load(given.source, given)
    save(trajectories, given.target, format=given.format, overwrite=given.force)
    size = " × ".join(map(str, trajectories.shape))
    print(f"{given.target}: {size} written")
