"""Packages that only some formats need, and what they say about files that they cannot read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from biasbound.registry import extra

__all__ = ["extra", "reading"]


@contextmanager
def reading(where: object, what: str) -> Iterator[None]:
    """Turn whatever a foreign reader raises on a damaged file, each has its own kinds, into one sentence."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        said = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{where}: found {what} that cannot be read ({said[:200]}); copy it again") from None
