"""Kinds of numbers on a command line; the parser puts the option's name before what they say.

A parser of configs asks again with the number that it has read.
"""

import argparse
import math
from pathlib import Path

__all__ = ["count", "few", "folder", "number", "positive", "seed", "share"]

MOST = 10**9  # of things that are counted
FEW = 1000  # of things whose work grows with their square, or that nobody waits for
LARGEST = 2**63 - 1  # seed that every generator takes


def number(text: object) -> int:
    """A whole number."""
    try:
        return int(str(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, got {str(text)[:60]!r}") from None


def count(text: object) -> int:
    """A whole number from 1."""
    if not 1 <= (found := number(text)) <= MOST:
        raise argparse.ArgumentTypeError(f"must be at least 1 and at most {MOST:,}, got {str(text)[:60]}")
    return found


def folder(text: str) -> Path:
    """A folder, there or yet to be made."""
    if (found := Path(text)).exists() and not found.is_dir():
        raise argparse.ArgumentTypeError(f"must be a folder, and {text} is a file")
    return found


def few(text: object) -> int:
    """A whole number from 1 to 1,000."""
    if not 1 <= (found := number(text)) <= FEW:
        raise argparse.ArgumentTypeError(f"must be at least 1 and at most {FEW:,}, got {str(text)[:60]}")
    return found


def seed(text: object) -> int:
    """A whole number from 0."""
    if not 0 <= (found := number(text)) <= LARGEST:
        raise argparse.ArgumentTypeError(f"must be at least 0 and below 2⁶³, got {str(text)[:60]}")
    return found


def positive(text: object) -> float:
    """A finite number above 0."""
    try:
        found = float(str(text))
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found > 0):
        raise argparse.ArgumentTypeError(f"must be above 0 and finite, got {str(text)[:60]!r}")
    return found


def share(text: object) -> float:
    """A number between 0 and 1, both left out."""
    if not (found := positive(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, got {str(text)[:60]}")
    return found
