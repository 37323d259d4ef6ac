"""A process that has done everything once, so that the children that it forks begin at once.

What is kept: modules, the parsers of study commands (each takes longer to make than to use), fonts. `looks` are made in
the process itself, for commands on good files alone. Cases in fresh interpreters (`fresh`) show that this changes no
answer.
"""

from __future__ import annotations

import pkgutil
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import Any

import biasbound


def warmed() -> None:
    """Import the whole package, keep parsers, draw once."""
    for module in pkgutil.walk_packages(biasbound.__path__, "biasbound."):
        if not module.name.endswith(("__main__", "inspector")):
            with suppress(ImportError, ValueError):  # of packages that are not here
                import_module(module.name)
    from matplotlib import font_manager, pyplot

    from biasbound.cli import wish
    from biasbound.study.parsing import presets, read_config

    font_manager.fontManager.findfont("DejaVu Sans")
    pyplot.close("all")
    if not hasattr(wish._parser, "cache_info"):
        wish._parser = lru_cache(maxsize=None)(wish._parser)
    for verb in wish.STUDY_COMMANDS:
        wish._parser(verb, presets()["ks-smoke"])
    read_config(presets()["ks-smoke"])


def looks() -> None:
    """HDF5 files are looked at in this process: a fresh interpreter per call takes longer than most commands."""
    from biasbound.data.formats import guard, inspector

    def asked(path: Any) -> list[Any]:
        return inspector.look(str(path))

    guard._asked = asked
