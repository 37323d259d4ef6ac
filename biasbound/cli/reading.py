"""The options of every command that reads a file of trajectories."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from biasbound.cli.kinds import count, positive

if TYPE_CHECKING:
    from biasbound.data.options import ReadOptions

__all__ = ["add_reading", "reading"]

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


def _ends(text: str) -> list[float]:
    low, _, high = text.partition(":")
    try:
        ends = [float(low), float(high)]
        if not (math.isfinite(ends[0]) and math.isfinite(ends[1]) and ends[0] < ends[1]):
            raise ValueError(text)
        return ends
    except ValueError:
        raise ValueError(f"--domain takes LOW:HIGH for each space axis, as in 0:1,-1:1; got {text!r}") from None
