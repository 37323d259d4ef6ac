"""What a format is: how to recognise, read and write it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from biasbound.data.trajectories import Trajectories

__all__ = ["Format"]


@dataclass(frozen=True)
class Format:
    """One format of files or folders.

    `matches(path)` tells, from a cheap look at what stands there, whether the path has this format. `read(path)`
    opens it, lazily where that is possible; its further arguments are the format's options. `write(trajectories,
    path, overwrite=…)` saves, and refuses what the format cannot hold; without it the format is only read. A target
    with one of the `suffixes` is written in this format unless another is named.

        def read(path: Path, dt: float = 1.0) -> Trajectories:
            return Trajectories.from_array(np.loadtxt(path)[None, :, None], dt=dt, name=str(path))

        FORMATS["text"] = Format("a table of numbers", lambda path: path.suffix == ".txt", read)
    """

    title: str  # with its article, as in "expected a .npy array"
    matches: Callable[[Path], bool]
    read: Callable[..., Trajectories]
    write: Callable[..., None] | None = None
    suffixes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "__doc__", self.title)  # what `registry.described` shows

    @property
    def options(self) -> tuple[str, ...]:
        """The names that `read` takes beside the path."""
        return tuple(inspect.signature(self.read).parameters)[1:]
