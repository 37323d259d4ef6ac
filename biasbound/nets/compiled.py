"""torch.compile for networks: its code is kept between runs, and a machine without a compiler goes on without it.

Compiled kernels add up in another order, so numbers agree with those of the plain network to rounding errors only. A
compiled training that is killed and goes on ends with the same bits (benchmarks/kill_training.py --compile).
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from pathlib import Path

from torch import nn

__all__ = ["compiled"]


def compiled(net: nn.Module, *, sizes_vary: bool = False) -> bool:
    """Compile calls of `net` from now on; False, with a warning, where there is no C++ compiler.

    With `sizes_vary` one code serves all batch sizes from the start. Otherwise each size gets its own: faster, and right
    where there is one. Leaving it to torch would give the first size code of its own, so a training that is resumed could
    go on with other code than it began with.
    """
    name = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(name) is None:
        warnings.warn(
            f"compile is left out, since there is no C++ compiler {name!r} here: install one, or name it in CXX",
            stacklevel=2,
        )
        return False
    if (folder := cache_folder()) is not None:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder))
    net.compile(dynamic=sizes_vary)
    return True


def cache_folder() -> Path | None:
    """Where compiled code is kept: in the user's cache, or, if that cannot be written, where torch puts it."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "biasbound" / "inductor"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
