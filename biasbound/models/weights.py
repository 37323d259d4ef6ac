"""Tensors and JSON in one safetensors file, written atomically, read without trust.

The last `keep` checkpoints of a folder stay; if the newest cannot be read, the one before it is taken.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from biasbound._io import from_json, open_regular, replacing

__all__ = ["DamagedCheckpoint", "load_newest", "load_tensors", "save_numbered", "save_tensors"]

PATTERN = "checkpoint-*.safetensors"


class DamagedCheckpoint(UserWarning):
    """A checkpoint could not be read and an older one was taken."""


def save_tensors(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write named tensors with a JSON object beside them."""
    whole = {name: t.detach().contiguous() for name, t in tensors.items()}
    with replacing(path) as temporary:
        save_file(whole, temporary, {"biasbound": json.dumps(meta, allow_nan=False)})


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(tensors, JSON object); a file that is not ours or not whole is refused with one sentence."""
    try:
        with open_regular(path):
            pass  # safetensors would wait for a pipe
        with safe_open(path, framework="pt") as file:
            note = (file.metadata() or {}).get("biasbound")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise ValueError(f"{path} does not exist") from error
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is not a whole safetensors file ({error}); restore or delete it") from error
    if note is None:
        raise ValueError(f"{path} is a safetensors file, but not one of biasbound's")
    meta: dict[str, Any] = from_json(note, dict[str, Any], f"{path}: what is said beside its tensors")
    return tensors, meta


def save_numbered(
    folder: Path, number: int, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], keep: int = 2
) -> Path:
    """Write checkpoint `number`, then remove all but the last `keep`."""
    path = folder / f"checkpoint-{number:09d}.safetensors"
    save_tensors(path, tensors, meta)
    for old in sorted(folder.glob(PATTERN))[:-keep]:
        old.unlink(missing_ok=True)
    return path


def load_newest(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest readable checkpoint, or None where there is none."""
    every = sorted(folder.glob(PATTERN), reverse=True)
    for path in every:
        try:
            return load_tensors(path)
        except ValueError as error:
            warnings.warn(f"{error}; going back to the checkpoint before it", DamagedCheckpoint, stacklevel=2)
    if every:
        raise ValueError(f"none of the {len(every)} checkpoints in {folder} can be read; delete them to start anew")
    return None
