"""torch.compile for networks: its code is kept between runs, and a machine that cannot compile goes on without it.

Compiled kernels add up in another order, so numbers agree with those of the plain network to rounding errors only. A
compiled training that is killed and goes on ends with the same bits (benchmarks/kill_training.py --compile).
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

__all__ = ["compiled"]


def compiled(net: Any, *, sizes_vary: bool = False) -> bool:
    """Compile calls of `net` from now on; False, with a warning, where there is no C++ compiler, or nothing to compile.

    With `sizes_vary` one code serves all batch sizes from the start. Otherwise each size gets its own: faster, and right
    where there is one. Leaving it to torch would give the first size code of its own, so a training that is resumed could
    go on with other code than it began with.

    A compiler that turns out to be of no use is told in a warning at the first call, and the plain network goes on.
    """
    if not isinstance(net, nn.Module):
        return False
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
    if net._compiled_call_impl is not None:
        net._compiled_call_impl = _or_plain(net, net._compiled_call_impl, name)
    return True


def _or_plain(net: nn.Module, fast: Callable[..., Any], compiler: str) -> Callable[..., Any]:
    """`fast`, until compiling fails: without the headers of Python, say, or on a full disk."""

    def call(*inputs: Any, **named: Any) -> Any:
        try:
            return fast(*inputs, **named)
        except RuntimeError as error:
            from torch._dynamo.exc import BackendCompilerFailed

            if not isinstance(error, BackendCompilerFailed):
                raise
            why = str(error.inner_exception).partition("\n")[0][:120]
            warnings.warn(
                f"compile is left out, since {compiler!r} could not compile the network ({why}): mend it, or name another "
                "compiler in CXX",
                stacklevel=2,
            )
            net._compiled_call_impl = None
            return net(*inputs, **named)

    return call


def cache_folder() -> Path | None:
    """Where compiled code is kept: in the user's cache, or, if that cannot be written, where torch puts it."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "biasbound" / "inductor"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
