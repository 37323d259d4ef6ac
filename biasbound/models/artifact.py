"""Models as folders: `config.json`, `model.safetensors`, `schedule.json` and a card that people can read.

Nothing in such a folder is code. Networks are built from their configuration by this package; a model with a network of
one's own is read by giving that network.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from torch import nn

from biasbound._io import replacing
from biasbound.core.denoise import PREDICTIONS, NetDenoiser
from biasbound.core.schedule import Schedule
from biasbound.models.predict import DirectPredictor, Refiner
from biasbound.models.weights import load_tensors, save_tensors
from biasbound.nets import ConditionalNet, DirectNet, UNetConfig

__all__ = ["Kind", "Model", "kind_of", "read_model", "write_model"]

FORMAT, VERSION = "biasbound.emulator", 1
Model = NetDenoiser | DirectPredictor | Refiner
Kind = Literal["diffusion", "direct", "refiner"]
KINDS: dict[type, Kind] = {NetDenoiser: "diffusion", DirectPredictor: "direct", Refiner: "refiner"}


def kind_of(model: Model) -> Kind:
    """What sort of emulator this model makes."""
    return next(kind for cls, kind in KINDS.items() if isinstance(model, cls))


def write_model(
    folder: str | os.PathLike[str],
    model: Model,
    schedule: Schedule | None,
    facts: Mapping[str, Any],
) -> None:
    """Write a new folder, whole or not at all; `facts` are JSON values that come back from `read_model`."""
    with replacing(folder, overwrite=False) as temporary:
        temporary.mkdir()
        weights = temporary / "model.safetensors"
        save_tensors(weights, model.state_dict(), {"format": FORMAT})
        config = _config(model) | {"sha256": _digest(weights), "facts": dict(facts)}
        text = json.dumps(config, indent=1, allow_nan=False) + "\n"
        (temporary / "config.json").write_text(text, encoding="utf-8")
        if schedule is not None:
            schedule.save(temporary / "schedule.json")
        (temporary / "README.md").write_text(_card(model, schedule, facts), encoding="utf-8")


def read_model(
    folder: str | os.PathLike[str], net: nn.Module | None = None
) -> tuple[Model, Schedule | None, dict[str, Any]]:
    """(model, schedule, facts); `net` stands in for a network that this package cannot build."""
    home = Path(folder)
    config = _read_config(home)
    tensors, _ = load_tensors(home / "model.safetensors")
    if _digest(home / "model.safetensors") != config.get("sha256"):
        raise ValueError(
            f"{home / 'model.safetensors'} is not the file that config.json was written with"
        )
    try:
        schedule = Schedule.load(home / "schedule.json") if config["kind"] == "diffusion" else None
        model = _build(config, net)
        model.load_state_dict(tensors)
        return model, schedule, dict(config["facts"])
    except (KeyError, TypeError, RuntimeError, ValueError) as error:
        reason = f"no field {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]
        raise ValueError(f"{home} is not a whole emulator: {reason}") from error


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _config(model: Model) -> dict[str, Any]:
    network = getattr(model.net, "config", None)
    config: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "kind": kind_of(model),
        "network": network.to_dict() if isinstance(network, UNetConfig) else None,
        "residual": model.residual,
    }
    if isinstance(model, NetDenoiser):
        name = next((name for name, cls in PREDICTIONS.items() if type(model) is cls), None)
        if name is None:
            raise ValueError(
                f"a {type(model).__name__} cannot be saved: not one of {', '.join(PREDICTIONS)}"
            )
        return config | {"prediction": name}
    config["channels"] = model.channels
    if isinstance(model, Refiner):
        config |= {"steps": len(model.levels) - 1, "sigma_min": model.levels[-1]}
    return config


def _read_config(home: Path) -> dict[str, Any]:
    path = home / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"{home} is not an emulator: cannot read {path} ({error.strerror})"
        ) from error
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON ({error})") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ValueError(f'{path} is not that of an emulator: expected "format": "{FORMAT}"')
    if config.get("version") != VERSION:
        raise ValueError(
            f"{path} has version {config.get('version')!r}; this release reads version {VERSION}"
        )
    if config.get("kind") not in KINDS.values():
        raise ValueError(f"{path} names an unknown kind of emulator: {config.get('kind')!r}")
    return config


def _build(config: Mapping[str, Any], net: Any) -> Model:
    if net is None:
        if config["network"] is None:
            raise ValueError(
                "its network is not one of biasbound's; pass it as load(folder, net=…)"
            )
        cls = DirectNet if config["kind"] == "direct" else ConditionalNet
        net = cls(UNetConfig.from_dict(config["network"]))
    if config["kind"] == "diffusion":
        return PREDICTIONS[config["prediction"]](net, config["residual"] or None)
    if config["kind"] == "direct":
        return DirectPredictor(net, config["channels"], config["residual"])
    return Refiner(
        net,
        config["channels"],
        steps=config["steps"],
        sigma_min=config["sigma_min"],
        residual=config["residual"],
    )


def _card(model: Model, schedule: Schedule | None, facts: Mapping[str, Any]) -> str:
    parameters = sum(p.numel() for p in model.parameters())
    levels = (
        []
        if schedule is None
        else [f"Noise levels: {', '.join(f'{s:.4g}' for s in schedule.sigma)}.", ""]
    )
    return "\n".join(
        [
            f"# A {kind_of(model)} emulator",
            "",
            f"{parameters:,} parameters, made with biasbound.",
            "",
            *levels,
            "```python",
            "import biasbound",
            "",
            'emulator = biasbound.load("this folder")',
            "rollout = emulator.rollout(x0, steps=100)  # x0: (B, C, *N) in physical units",
            "```",
            "",
            "```json",
            json.dumps(dict(facts), indent=1),
            "```",
            "",
        ]
    )
