"""The options of every command that reads a file of trajectories."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbound.cli.kinds import count, positive

if TYPE_CHECKING:
    from biasbound.data.options import ReadOptions

__all__ = ["add_reading", "apart", "reading"]

READ = (
    *("data", "emulator", "what", "against", "file", "files", "folders", "source"),
    *("prediction", "truth", "train", "valid", "test", "schedule"),
)
WRITTEN = ("out", "ladder", "plot", "target")
OPTIONS = ("variable", "channels", "domain", "boundary", "dt", "mask", "dims")


def add_reading(parser: argparse.ArgumentParser) -> None:
    """The options that `reading` reads."""
    group = parser.add_argument_group("reading", "what a file does not say itself")
    group.add_argument("--variable", metavar="A,B", help="the variables to read")
    group.add_argument("--channels", metavar="A,B", help="names for the channels")
    group.add_argument("--domain", metavar="LOW:HIGH,…", help="ends of each space axis, as in --domain=-1:1")
    group.add_argument("--boundary", metavar="KIND,…", help="periodic, open or wall for each space axis, or for all")
    group.add_argument("--dt", type=positive, help="time step")
    group.add_argument("--mask", metavar="NAME", help="variable or static field that is nonzero at valid points")
    group.add_argument("--dims", "--axes", type=count, metavar="D", help="number of space axes")


def reading(given: argparse.Namespace) -> ReadOptions:
    """The options of a command line as one value."""
    from biasbound.data.options import ReadOptions

    told: dict[str, Any] = {name: getattr(given, name) for name in OPTIONS}
    if told["domain"] is not None:
        told["domain"] = [_ends(part) for part in told["domain"].split(",")]
    return ReadOptions.of(told, "options for reading")


def apart(given: Mapping[str, Any]) -> None:
    """Refuse to write over what is read: a file, or one of an emulator's folder."""
    for option in WRITTEN:
        if not (out := Path(given.get(option) or "")).exists() or out == Path():
            continue
        for name in READ:
            told = given.get(name) or ()
            for path in map(Path, told if isinstance(told, list) else [told] if told else []):
                inside = path.is_dir() and not out.is_dir() and name in ("emulator", "what") and _below(out, path)
                if path.exists() and (out.samefile(path) or inside):
                    said = "B" if option == "target" else f"--{option}"
                    whose = f"a file of {path}, which" if inside else "the file that"
                    raise ValueError(f"{said} {out} is {whose} is read, and would be lost; choose another name")


def _below(out: Path, folder: Path) -> bool:
    return folder.resolve() in out.resolve().parents


def _ends(text: str) -> list[float]:
    low, _, high = text.partition(":")
    try:
        ends = [float(low), float(high)]
        if not (math.isfinite(ends[0]) and math.isfinite(ends[1]) and ends[0] < ends[1]):
            raise ValueError(text)
        return ends
    except ValueError:
        raise ValueError(f"--domain takes LOW:HIGH for each space axis, as in 0:1,-1:1; got {text!r}") from None
