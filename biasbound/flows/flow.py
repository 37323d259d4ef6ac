"""From the name of a flow, a size and a split to the source of its trajectories.

A flow is a frozen dataclass whose instances are sources (`biasbound.data.layout.Source`). It has the fields `split`
and `seed`; its other fields are its settings. `sizes` is a class variable, not a field, so it enters neither the
settings nor the provenance. docs/data.md has an example.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, get_type_hints

import torch

from biasbound._io import as_kind, plain
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


def source(name: str, size: str = "small", split: Split = "train", seed: int = 0, **changes: Any) -> Source:
    """The source of one split of a flow at a named size; `changes` override its settings.

    They may be plain JSON values (a list for a tuple, 64 for 64.0). What the flow does not have is refused in one
    sentence, and so is a value of the wrong type.
    """
    found = find(FLOWS, name)
    if not (isinstance(found, type) and is_dataclass(found) and hasattr(found, "sizes")):
        raise ValueError(f"{name} is not a flow: a flow is a dataclass of settings with a class variable `sizes`")
    kind: Any = found
    sizes: Mapping[str, Size] = kind.sizes
    if size not in sizes:
        raise ValueError(f"{name} has no size {size!r}; it has {', '.join(sizes)}")
    settings = [f.name for f in fields(kind) if f.name not in ("split", "seed")]
    settings += ["test"] if any(one.tests for one in sizes.values()) else []
    if unknown := [setting for setting in changes if setting not in settings]:
        raise ValueError(f"{name} has no setting {unknown[0]!r}; it has {', '.join(settings)}")
    test = changes.pop("test", None)
    if test is not None and test not in (tests := sizes[size].tests):
        raise ValueError(f"{name} has no test set {test!r}; it has {', '.join(tests)}")
    types = get_type_hints(kind)
    given = {n: as_kind(types[n], v, f"setting {n} of {name}") for n, v in changes.items()}
    if "device" in given:
        _require_device(given["device"], name)
    try:
        made: Source = kind(split=split, seed=seed, **sizes[size].of(split, test) | given)
    except ArithmeticError as error:  # of numbers that are larger or smaller than any flow
        raise ValueError(f"{name} cannot be computed with {plain(given)} ({error}); choose other settings") from None
    return made


def _require_device(device: str, name: str) -> None:
    try:
        torch.empty(0, device=device).cpu()  # of meta there is nothing to bring back
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ValueError(f"setting device of {name}: {device!r} is not here; use cpu") from None


def settings_of(changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same settings of a flow, none of which is one of `source`'s own arguments."""
    if taken := sorted({"name", "size", "split", "seed"} & changes.keys()):
        raise ValueError(f"{taken[0]} is not among a flow's settings: it has an option of its own")
    return changes
