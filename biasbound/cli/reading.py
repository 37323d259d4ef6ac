"""What a file does not say of itself, as options of every command that reads one."""

from __future__ import annotations

import argparse
from typing import Any


def add_reading(parser: argparse.ArgumentParser) -> None:
    given = parser.add_argument_group("reading", "what the file does not say of itself")
    given.add_argument("--variable", metavar="NAME", help="the variable to read; several with commas")
    given.add_argument("--channels", metavar="NAMES", help="names for the channels, with commas")
    given.add_argument("--domain", metavar="LOW:HIGH", help="ends of each space axis, with commas: -1:1,0:2")
    given.add_argument("--boundary", metavar="KIND", help="periodic, open or wall; one per space axis, with commas")
    given.add_argument("--dt", type=float, help="time step, where the format has none")
    given.add_argument("--mask", metavar="NAME", help="variable or static field that is nonzero at valid points")
    given.add_argument("--dims", "--axes", type=int, metavar="D", help="number of space axes")
    given.add_argument("--momentum", action="store_true", default=None, help="ACDM: momentum, not velocity")


def reading(given: argparse.Namespace) -> dict[str, Any]:
    """The options that were given, as `biasbound.data.formats.load` takes them."""
    told = {
        name: getattr(given, name) for name in ("variable", "channels", "boundary", "dt", "mask", "dims", "momentum")
    }
    if given.domain is not None:
        told["domain"] = [_ends(text) for text in given.domain.split(",")]
    return {name: value for name, value in told.items() if value is not None}


def _ends(text: str) -> list[float]:
    low, _, high = text.partition(":")
    try:
        return [float(low), float(high)]
    except ValueError:
        hint = "as in --domain=-1:1,0:2"
        raise ValueError(f"--domain takes LOW:HIGH for each space axis, {hint}, not {text!r}") from None
