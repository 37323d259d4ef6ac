"""Models as folders: `config.json`, `model.safetensors`, `schedule.json` and a card that people can read.

Nothing in such a folder is code, and nothing in it is imported: models, networks and tasks are looked up by name among
those that this process knows. The network of an author's own is a name in the folder, and is given again to read it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from biasbound._io import as_kind, plain, read_json, replacing
from biasbound.core.schedule import Schedule
from biasbound.models.card import card
from biasbound.models.model import MODELS, Frame, Model, make, target_of
from biasbound.models.normalise import Normalisation
from biasbound.models.task import TASKS, Task
from biasbound.models.weights import load_tensors, save_tensors
from biasbound.nets import NetSpec
from biasbound.nets.foreign import Foreign, adopt
from biasbound.registry import NotImported, find, imported, name_of, qualified

__all__ = ["Facts", "read_model", "write_model"]

FORMAT, VERSION = "biasbound.emulator", 2


@dataclass(frozen=True)
class Facts:
    """What an emulator is about, beside its model."""

    channels: tuple[str, ...]
    dt: float
    normalisation: Normalisation
    conditions: tuple[str, ...] = ()  # names of what only informs
    meta: Mapping[str, Any] | None = None  # how it was trained, JSON values


@dataclass(frozen=True)
class _Saved:
    """config.json."""

    format: str
    version: int
    model: str  # a name of MODELS
    options: dict[str, Any]
    network: NetSpec | None  # None: an author's own, of an earlier release
    residual: tuple[float, ...]  # r, empty for the plain target
    task: dict[str, Any]
    sha256: str  # of the weights
    facts: Facts


def write_model(folder: str | os.PathLike[str], model: Model, facts: Facts, name: str = "this folder") -> None:
    """Write a new folder, whole or not at all; its card says to load it by `name`."""
    kind, task = name_of(MODELS, type(model)), model.frame.task
    schedule: Schedule | None = getattr(model, "schedule", None)
    with replacing(folder, overwrite=False) as temporary:
        temporary.mkdir()
        weights = temporary / "model.safetensors"
        save_tensors(weights, model.state_dict(), {"format": FORMAT})
        saved = _Saved(
            format=FORMAT,
            version=VERSION,
            model=kind,
            options=model.spec(),
            network=_spec(model, facts),
            residual=model.frame.target.scale,
            task={"name": name_of(TASKS, type(task)), **asdict(task)},  # type: ignore[call-overload]
            sha256=_digest(weights),
            facts=facts,
        )
        text = json.dumps(plain(saved), indent=1, allow_nan=False) + "\n"
        (temporary / "config.json").write_text(text, encoding="utf-8")
        if schedule is not None:
            schedule.save(temporary / "schedule.json")
        text = card(kind, model, facts, _spec(model, facts).name, name)
        (temporary / "README.md").write_text(text, encoding="utf-8")


def read_model(folder: str | os.PathLike[str], net: Any = None) -> tuple[Model, Facts]:
    """(model, facts); `net` is a network that this package cannot build: a module, or what makes one."""
    home = Path(folder)
    saved = _read_config(home)
    tensors, _ = load_tensors(home / "model.safetensors")
    if _digest(home / "model.safetensors") != saved.sha256:
        raise ValueError(f"{home / 'model.safetensors'} is not the file that config.json was written with")
    try:
        model = _build(saved, net, home, tensors)
        _require_fit(model, tensors)
        model.load_state_dict(tensors)
    except _Unknown as error:
        raise ValueError(f"{home} {error}") from error
    except (LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError, ValueError) as error:
        reason = (
            f"no field {error}"
            if isinstance(error, KeyError)
            else (str(error).splitlines() or [type(error).__name__])[0]
        )
        what = "is not a whole emulator" if net is None else "cannot be read with the network that was given"
        raise ValueError(f"{home} {what}: {reason}") from error
    return model.eval(), saved.facts


class _Unknown(ValueError):
    """A network that only its author, or who knows it, can give."""


def _spec(model: Model, facts: Facts) -> NetSpec:
    """What is kept of its network: all of one of ours, the name of any other."""
    found = getattr(model.net, "spec", None)
    if isinstance(found, NetSpec):
        return found
    channels = model.frame.channels
    return NetSpec(qualified(model.net), model.frame.task.inputs(channels) + len(facts.conditions), channels)


def _require_fit(model: Model, tensors: Mapping[str, Tensor]) -> None:
    own = model.state_dict()
    for name in sorted({*own, *tensors}):
        if name not in tensors or name not in own:
            raise ValueError(f"{'the network' if name in tensors else 'model.safetensors'} has no tensor {name}")
        if own[name].shape != tensors[name].shape:
            here, there = tuple(own[name].shape), tuple(tensors[name].shape)
            raise ValueError(f"{name} has shape {there} in model.safetensors and {here} in the network")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read_config(home: Path) -> _Saved:
    path = home / "config.json"
    if not path.is_file():
        raise ValueError(f"{home} is not an emulator: it has no config.json")
    found: Any = read_json(path, cure="save the emulator again")
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f'{path} is not that of an emulator: expected "format": "{FORMAT}"')
    if found.get("version") == 1:
        found = _from_first_version(found, str(path))
    if found.get("version") != VERSION:
        raise ValueError(f"{path} has version {found.get('version')!r}; this release reads versions 1 and {VERSION}")
    return as_kind(_Saved, found, str(path))


def _from_first_version(old: dict[str, Any], where: str) -> dict[str, Any]:
    """Before models were objects: one flat mapping, and one kind of network."""
    try:
        facts, kind = dict(old["facts"]), old["kind"]
        names = {"diffusion": ("prediction",), "refiner": ("steps", "sigma_min"), "direct": ()}[kind]
        options = {"refinements" if n == "steps" else n: old[n] for n in names}
        if kind == "diffusion":
            options["transition"] = facts["transition"]
        network = old["network"]
        if network is not None:
            own = {k: v for k, v in network.items() if k not in ("in_channels", "out_channels", "noise")}
            given = network["in_channels"] - (network["out_channels"] if network["noise"] else 0)
            network = {"name": "unet", "inputs": given, "outputs": network["out_channels"], "options": own}
        scale = old["residual"] or []
        return {
            **{name: old[name] for name in ("format", "sha256")},
            "version": VERSION,
            "model": kind,
            "options": options,
            "network": network,
            "residual": scale if isinstance(scale, list) else [scale],
            "task": {"name": "forecast", "history": 1},
            "facts": {k: facts[k] for k in ("channels", "dt", "normalisation", "conditions", "meta")},
        }
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{where} is not that of a whole emulator: {error!r}") from None


def _build(saved: _Saved, given: Any, home: Path, tensors: Mapping[str, Tensor]) -> Model:
    kind: Any = find(MODELS, saved.model)
    told = dict(saved.task)
    task: Task = as_kind(find(TASKS, told.pop("name")), told, "task")
    channels, options = len(saved.facts.channels), dict(saved.options)
    mask = tensors.get("mask")
    if not kind.trained:
        net = None
    elif given is None:
        net = _known(saved.network, kind.noisy)
    else:
        inputs = task.inputs(channels) + len(saved.facts.conditions) + (mask is not None)
        spec = saved.network or NetSpec(qualified(given), inputs, channels)
        net = _given(given, spec, kind.noisy, {name.removeprefix("net.") for name in tensors})
    if (home / "schedule.json").exists():
        options["schedule"] = Schedule.load(home / "schedule.json")
    frame = Frame(channels, task, target_of(saved.residual, task, channels), mask)
    return make(saved.model, net, frame, options)


def _known(spec: NetSpec | None, noisy: bool) -> nn.Module:
    """A network by its name, where this process has one."""
    if spec is None:
        raise _Unknown("was trained with a network of its author's; load it with biasbound.load(folder, net=…)")
    try:
        return spec.build(noisy)
    except NotImported as error:
        raise _Unknown(
            f"was trained with a network of its author's, {spec.name}; load it with biasbound.load(folder, "
            f"net={spec.name.rpartition(':')[2]}), or give --network {spec.name}"
        ) from error


def _given(net: Any, spec: NetSpec, noisy: bool, names: set[str]) -> nn.Module:
    """The network that was given; where a module's tensors have the saved names, nothing was around it."""
    thing = imported(net) if isinstance(net, str) else net
    made: Any = adopt(thing, replace(spec, options={}) if isinstance(thing, nn.Module) else spec, noisy)
    if isinstance(made, Foreign) and names == {*made.module.state_dict()}:
        made = made.module
    made.spec = spec
    built: nn.Module = made
    return built
