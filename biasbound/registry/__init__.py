"""From the names that people type to the things that they mean.

Each kind of thing (schedules, predictions, networks, models, formats, flows, metrics, tasks) has one plain dict, in the
package that it belongs to. An entry is the thing itself, or the text `package.module:name` of one of ours that is
imported when it is first asked for. Three ways to add to a dict:

- in Python, assign to it: `SCHEDULES["mine"] = my_schedule`;
- from an installed package, an entry point in the group `biasbound.<kind>`;
- on a command line or in one's own config, `package.module:name` in place of a name.

A name that comes out of a loaded file (an emulator, a run folder, a data file) never imports anything: only texts that
were passed to `allow` are.
"""

import difflib
import importlib
import inspect
import pickle
import sys
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class NotImported(ValueError):
    """A name that is not known here and that only the user may have imported."""


class _Home(NamedTuple):
    kind: str
    entries: dict[str, Any]
    built_in: frozenset[str]


_HOMES: dict[str, _Home] = {}
_ALLOWED: set[str] = set()
_PLUGGED: set[str] = set()  # kinds whose entry points were loaded


class Additions(NamedTuple):
    """What this process knows beyond the built-in names, for a worker process."""

    allowed: frozenset[str]
    entries: Mapping[str, Mapping[str, Any]]


def home(kind: str, built_in: dict[str, Any]) -> dict[str, Any]:
    """Declare `built_in` as the dict of a kind (plural: "schedules"); returns it."""
    _HOMES[kind] = _Home(kind, built_in, frozenset(built_in))
    return built_in


def kinds() -> dict[str, dict[str, Any]]:
    """Every declared registry by its kind."""
    return {kind: found.entries for kind, found in _HOMES.items()}


def known(registry: dict[str, T]) -> tuple[str, ...]:
    """The names of a registry, those of installed packages included."""
    _plug(_home_of(registry))
    return tuple(registry)


def find(registry: dict[str, T], name: str) -> T:
    """The thing of this name; an unknown one is refused with those that there are."""
    own = _home_of(registry)
    _plug(own)
    if name not in registry and ":" in name:
        if name not in _ALLOWED:
            raise NotImported(
                f"{own.kind[:-1]} {name!r} would have to be imported, which no loaded file may ask for: give it on the "
                "command line or in your own config"
            )
        registry[name] = imported(name)
    if name not in registry:
        near = difflib.get_close_matches(name, registry, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"there is no {own.kind[:-1]} {name!r}: there are {', '.join(registry)}{hint}")
    value = registry[name]
    if isinstance(value, str):  # one of ours, imported when it is first asked for
        value = registry[name] = imported(value)
    return value


def name_of(registry: dict[str, T], thing: T) -> str:
    """Under which name a thing is registered."""
    found = next((name for name in registry if find(registry, name) is thing), None)
    if found is None:
        raise ValueError(f"{thing!r} is not one of the {_home_of(registry).kind}")
    return found


def allow(names: Iterable[str]) -> None:
    """Texts `package.module:name` that the user typed and that `find` may import."""
    _ALLOWED.update(name for name in names if ":" in name)


def enrol(registry: dict[str, Any], thing: Any) -> str:
    """The name by which `find` gives what a Python call was given: a text that the user typed is that name.

    A thing goes by its own `module:name`, an object by that of its class; it stands there in place of an earlier one.
    """
    if isinstance(thing, str):
        allow([thing])
        return thing
    registry[name := qualified(thing)] = thing
    return name


def qualified(thing: Any) -> str:
    """`module:name` of a class or function, and of an object's class."""
    while isinstance(thing, partial):
        thing = thing.func
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}:{named.__qualname__}"


def additions() -> Additions:
    """All that was added to the registries or allowed since their packages were loaded."""
    added = {  # what the user typed is imported again: a module in the current folder has no other way to a worker
        found.kind: {n: v for n, v in found.entries.items() if n not in found.built_in and n not in _ALLOWED}
        for found in _HOMES.values()
    }
    for kind, name, thing in ((kind, n, v) for kind, new in added.items() for n, v in new.items()):
        try:
            pickle.dumps(thing)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(
                f"{kind[:-1]} {name!r} cannot be sent to other processes ({error}): make it of functions and classes "
                "at the top of a module, or give --jobs 1"
            ) from None
    return Additions(frozenset(_ALLOWED), {kind: new for kind, new in added.items() if new})


def restore(told: Additions) -> None:
    """In a worker process: know what its parent knows."""
    allow(told.allowed)
    for kind, entries in told.entries.items():
        if kind in _HOMES:
            _HOMES[kind].entries.update(entries)
        else:
            _PENDING.setdefault(kind, {}).update(entries)


_PENDING: dict[str, dict[str, Any]] = {}  # of registries whose package is not loaded yet


def _home_of(registry: dict[str, Any]) -> _Home:
    own = next(found for found in _HOMES.values() if found.entries is registry)
    registry.update(_PENDING.pop(own.kind, {}))
    return own


def _plug(own: _Home) -> None:
    """Add what installed packages offer, once; ours cannot be replaced."""
    if own.kind in _PLUGGED:
        return
    _PLUGGED.add(own.kind)
    for point in entry_points(group=f"biasbound.{own.kind}"):
        if point.name in own.entries:
            continue
        try:
            own.entries[point.name] = point.load()
        except Exception as error:  # noqa: BLE001 - a broken package must not break the others
            warnings.warn(f"{own.kind[:-1]} {point.name!r} of {point.value} cannot be used: {error}", stacklevel=4)


def imported(name: str) -> Any:
    """What `package.module:name` stands for, modules in the current folder included."""
    module, _, thing = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), thing)
    except Exception as error:  # whatever a module does while it is imported
        raise ValueError(f"cannot import {name}: {str(error) or type(error).__name__}") from error
    finally:
        sys.path.pop(0)


def extra(package: str, where: object, bundle: str | None = "io") -> Any:
    """A package of one of our extras (or of none), or one sentence that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        name = package.partition(".")[0]
        wanted = name if bundle is None else f"'biasbound[{bundle}]'"
        raise ValueError(f"{where} needs {name}: install it with pip install {wanted}") from None


def described(registry: dict[str, Any]) -> dict[str, str]:
    """Each name with the first line of what it stands for."""
    found = {}
    for name in known(registry):
        text = inspect.getdoc(find(registry, name)) or ""
        found[name] = text.partition("\n")[0]
    return found
