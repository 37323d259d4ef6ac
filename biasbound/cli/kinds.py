"""Kinds of numbers on a command line; the parser puts the option's name before what they say."""

import argparse
import math

__all__ = ["count", "number", "positive", "seed", "share"]

MOST = 10**9  # of things that are counted
LARGEST = 2**63 - 1  # seed that every generator takes


def number(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text[:60]!r}") from None


def count(text: str) -> int:
    """A whole number from 1."""
    if not 1 <= (found := number(text)) <= MOST:
        raise argparse.ArgumentTypeError(f"must be at least 1 and at most {MOST:,}, got {text[:60]}")
    return found


def seed(text: str) -> int:
    """A whole number from 0."""
    if not 0 <= (found := number(text)) <= LARGEST:
        raise argparse.ArgumentTypeError(f"must be at least 0 and below 2⁶³, got {text[:60]}")
    return found


def positive(text: str) -> float:
    """A finite number above 0."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found > 0):
        raise argparse.ArgumentTypeError(f"must be above 0 and finite, got {text[:60]!r}")
    return found


def share(text: str) -> float:
    """A number between 0 and 1, both left out."""
    if not (found := positive(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, got {text[:60]}")
    return found
