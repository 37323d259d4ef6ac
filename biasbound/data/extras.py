"""Packages that only some formats need, and what they say about files that they cannot read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

__all__ = ["extra", "reading"]


def extra(package: str, where: object, bundle: str = "io") -> Any:
    """A package of one of our extras, or one sentence that says how to get it."""
    try:
        return import_module(package)
    except ImportError:
        name = package.partition(".")[0]
        raise ValueError(f"{where} needs {name}: install it with pip install 'biasbound[{bundle}]'") from None


@contextmanager
def reading(where: object, what: str) -> Iterator[None]:
    """Turn whatever a foreign reader raises on a damaged file, each has its own kinds, into one sentence."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        said = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{where}: found {what} that cannot be read ({said[:200]}); copy it again") from None
