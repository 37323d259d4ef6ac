"""Diffusion emulators for PDEs with bias-constrained noise schedules.

A *schedule* is an increasing list of noise levels. A *denoiser* estimates the clean next state from a noisy
one. A *chain* alternates the two to emulate one time step. A *bias* tells where the chain leaves the denoiser's
training distribution. The *search* picks the sparsest, lowest schedule whose biases stay below τ.

    import biasbound as bb
    data = bb.open("KS.mat", variable="uu")                      # or bb.from_array, bb.from_xarray
    train, valid, test = data.split_time(0.7, 0.15, 0.15, gap=5)
    fitted = bb.fit(train, valid, minutes=5)
    rollout = fitted.emulator.rollout(test.first(), steps=25, members=8)
    print(bb.score(rollout, test, baselines=["persistence"]))

`PACKAGES` lists the packages in the order in which data flows through them; a package imports only what stands
before it. Packages load when they are first used, so that `import biasbound` does not pay for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

PACKAGES = ("data", "flows", "core", "nets", "models", "train", "metrics", "study", "report", "fitting", "cli")
HOMES = {  # what a script needs, and where it is written
    "Emulator": "models.emulator",
    "Fitted": "fitting",
    "Rollout": "models.emulator",
    "Schedule": "core.schedule",
    "Trajectories": "data",
    "diagnose": "core.diagnose",
    "fit": "fitting",
    "from_array": "data",
    "from_xarray": "data",
    "load": "models.emulator",
    "open": "data",
    "optimal_schedules": "core.front",
    "predict": "study.stages.rollout",
    "score": "metrics.scores",
}
__all__ = ["PACKAGES", "__version__", *HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in PACKAGES:
        return import_module(f"{__name__}.{name}")
    if name in HOMES:
        return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; its packages are {', '.join(PACKAGES)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *PACKAGES, *HOMES])
