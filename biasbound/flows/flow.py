"""From the name of a flow, a size and a split to the source of its trajectories.

A flow is a frozen dataclass whose instances are sources (`biasbound.data.layout.Source`). It has the fields `split`
and `seed`; its other fields are its settings. `sizes` is a class variable, not a field, so it enters neither the
settings nor the provenance. docs/data.md has an example.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, get_type_hints

from biasbound._io import as_kind
from biasbound.data.layout import Source, Split
from biasbound.flows import FLOWS
from biasbound.registry import find


@dataclass(frozen=True)
class Size:
    """Settings of one size: those of every split, and those that only one split has.

    A flow may have several test sets. They are told apart by name, and the setting `test` picks one; the first is the
    default. Without any, the test split has the settings of the validation split.
    """

    every: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    valid: Mapping[str, Any] = field(default_factory=dict)
    tests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def of(self, split: Split, test: str | None = None) -> dict[str, Any]:
        """The settings of one split."""
        if split == "train":
            return {**self.every, **self.train}
        if split == "valid" or not self.tests:
            return {**self.every, **self.valid}
        return {**self.every, **self.tests[next(iter(self.tests)) if test is None else test]}


def _flow(name: str) -> Any:
    found = find(FLOWS, name)
    if not (isinstance(found, type) and is_dataclass(found) and hasattr(found, "sizes")):
        raise ValueError(f"{name} is not a flow: a flow is a dataclass of settings with a class variable `sizes`")
    return found


def sizes(name: str) -> tuple[str, ...]:
    """The names of a flow's sizes."""
    return tuple(_flow(name).sizes)


def settings(name: str) -> tuple[str, ...]:
    """The names of what can be changed in a flow, beside its split and seed."""
    kind = _flow(name)
    several = any(size.tests for size in kind.sizes.values())
    own = [f.name for f in fields(kind) if f.name not in ("split", "seed")]
    return (*own, "test") if several else tuple(own)


def source(name: str, size: str = "small", split: Split = "train", seed: int = 0, **changes: Any) -> Source:
    """The source of one split of a flow at a named size; `changes` override its settings.

    They may be plain JSON values (a list for a tuple, 64 for 64.0). What the flow does not have is refused in one
    sentence, and so is a value of the wrong type.
    """
    kind = _flow(name)
    if size not in sizes(name):
        raise ValueError(f"{name} has no size {size!r}; it has {', '.join(sizes(name))}")
    for setting in changes:
        if setting not in (known := settings(name)):
            raise ValueError(f"{name} has no setting {setting!r}; it has {', '.join(known)}")
    test = changes.pop("test", None)
    if test is not None and test not in (tests := kind.sizes[size].tests):
        raise ValueError(f"{name} has no test set {test!r}; it has {', '.join(tests)}")
    types = get_type_hints(kind)
    given = {n: as_kind(types[n], v, f"setting {n} of {name}") for n, v in changes.items()}
    made: Source = kind(split=split, seed=seed, **kind.sizes[size].of(split, test) | given)
    return made
