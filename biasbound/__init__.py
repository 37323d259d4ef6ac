"""Diffusion emulators for PDEs with bias-constrained noise schedules.

A *schedule* is an increasing list of noise levels. A *denoiser* estimates the clean next state from a noisy
one. A *chain* alternates the two to emulate one time step. A *bias* tells where the chain leaves the denoiser's
training distribution. The *search* picks the sparsest, lowest schedule whose biases stay below τ.

`PACKAGES` lists the packages in the order in which data flows through them; a package imports only what stands
before it. Packages load when they are first used, so that `import biasbound` does not pay for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["PACKAGES", "__version__", "load"]
__version__ = "0.1.0"

PACKAGES = ("data", "flows", "core", "nets", "models", "train", "metrics", "study", "report", "cli")


def __getattr__(name: str) -> Any:
    if name in PACKAGES:
        return import_module(f"{__name__}.{name}")
    if name == "load":
        return import_module(f"{__name__}.models.emulator").load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; its packages are {', '.join(PACKAGES)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *PACKAGES, "load"])
