"""One way into numba for the whole package.

Compiled code is cached on disk. numba looks for a folder that can be written (NUMBA_CACHE_DIR, beside the source, the
user's cache); in a read-only install without a home there is none, and the kernels are then compiled once a process.
Its cache is keyed by the file that holds a function and not by the files of the functions that it calls, so a kernel
here calls only kernels of its own module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numpy.typing import NDArray

Array = NDArray[Any]  # float32 or float64
F = TypeVar("F", bound=Callable[..., Any])

# Division by zero gives ∞, not an exception, so that loops vectorise. No fast arithmetic: a fused a·b + c appears or
# not with how a kernel was inlined, and then a fresh compilation and its cached copy would give different bits.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True}


def jit(function: F) -> F:
    """Compile `function` for the argument types of each first call; its type stays as written."""
    plain = inspect.unwrap(function)  # below a run-time type checker, which numba cannot compile
    try:
        return cast("F", numba.njit(plain, cache=True, **_OPTIONS))
    except RuntimeError:  # no folder for the cache
        return cast("F", numba.njit(plain, **_OPTIONS))
