"""Cases of damaged files: a specimen and a seed name each, so that any can be made again."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from arena import Case
from mutate import damaged
from specimens import SPECIMENS, Specimen

DEAR = {"config": 6, "run folder": 2, "Zarr": 2}  # one in so many rounds, because each takes long


class Shelf:
    """The good specimens, made once."""

    def __init__(self, home: Path | None = None) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="specimens-", dir=home))
        self.good: dict[str, Path] = {}

    def cases(self, count: int, first: int = 0) -> Iterator[Case]:
        """`count` cases from number `first` on, all kinds in turn."""
        number, left = first, count
        while left:
            for specimen in SPECIMENS:
                if left and number % DEAR.get(specimen.name, 1) == 0:
                    left -= 1
                    yield self.case(specimen, number)
            number += 1

    def case(self, specimen: Specimen, number: int) -> Case:
        if specimen.name not in self.good:
            folder = self.home / str(len(self.good))
            folder.mkdir()
            self.good[specimen.name] = specimen.make(folder)
        good = self.good[specimen.name]
        return f"{specimen.name} #{number}", partial(_act, specimen, good, number)


def _act(specimen: Specimen, good: Path, number: int, folder: Path) -> None:
    rng = random.Random(f"{specimen.name} {number}")
    specimen.use(damaged(good, folder, rng))
