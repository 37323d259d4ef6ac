"""Trajectories x⁰ … x^K: generated here, or read from everyone's formats.

Names load when they are first used, so that listing commands does not pay for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

HOMES = {
    "FrameWriter": "formats.stream",
    "ReadOptions": "options",
    "Split": "splits",
    "Trajectories": "trajectories",
    "divided": "splits",
    "from_xarray": "labelled",
}
__all__ = ["FrameWriter", "ReadOptions", "Split", "Trajectories", "divided", "from_array", "from_xarray", "open"]


def __getattr__(name: str) -> Any:
    if name in HOMES:
        return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
    if name == "open":  # whatever the format; `formats.load` by the name that scripts use
        return import_module(f"{__name__}.formats.files").load
    if name == "from_array":
        return import_module(f"{__name__}.trajectories").Trajectories.from_array
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
