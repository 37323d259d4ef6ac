"""Bounds on the fields of a config, each refused by its name, its value and what would do."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["about", "bounded"]

SEED = 2**63 - 1  # the largest that every generator takes

Bound = Any  # a number, or None for no bound; an int is no float where types are checked at run time


@contextmanager
def about(option: str) -> Iterator[None]:
    """What is refused inside, in the words of a part that knows no options, begins with the option that it is about."""
    try:
        yield
    except ValueError as error:
        if option in str(error) or type(error) is not ValueError:
            raise
        raise ValueError(f"{option}: {error}") from error


def bounded(
    of: Any,
    section: str,
    *names: str,
    least: Bound = None,
    above: Bound = None,
    below: Bound = None,
    most: Bound = None,
) -> None:
    """Refuse a field that is not finite, or outside of its bounds; None is a field that is not set."""
    for name in names:
        value = getattr(of, name)
        if value is None:
            continue
        low = value >= least if least is not None else above is None or value > above
        high = (below is None or value < below) and (most is None or value <= most)
        if math.isfinite(value) and low and high:
            continue
        told = [f"at least {least}"] * (least is not None) + [f"above {above}"] * (above is not None)
        told += [f"below {below}"] * (below is not None) + [f"at most {most}"] * (most is not None)
        raise ValueError(f"{section}.{name} must be {' and '.join(told) or 'finite'}, got {value}")
