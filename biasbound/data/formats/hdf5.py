"""A cheap look at HDF5 files, with one sentence where they are damaged, and at the names of files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import h5py

__all__ = ["hdf5_files", "holds", "is_hdf5", "split_of", "top_names"]

MAGIC = b"\x89HDF\r\n\x1a\n"
SPLIT = re.compile(r"(?<![a-z])(train|valid|val|test)(?![a-z])")


def is_hdf5(path: Path) -> bool:
    """Whether the file begins as HDF5 does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _open(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except OSError as error:
        found = re.search(r"truncated file: eof = (\d+).*stored_eof = (\d+)", str(error))
        what = f"truncated ({found[1]} of {found[2]} bytes)" if found else f"unreadable ({error})"
        raise ValueError(f"{path}: found {what} HDF5, expected a whole file; copy it again") from None


def holds(path: Path, test: Callable[[h5py.File], bool]) -> bool:
    """Whether the path is an HDF5 file that passes a test; a damaged one is refused."""
    if not is_hdf5(path):
        return False
    with _open(path) as file:
        return test(file)


def top_names(path: Path) -> list[str]:
    """The groups and datasets at the root of a file."""
    with _open(path) as file:
        return sorted(file)


def hdf5_files(folder: Path) -> list[Path]:
    """The HDF5 files of a folder, by their endings."""
    return sorted(p for p in folder.iterdir() if p.suffix in (".h5", ".hdf5"))


def split_of(path: Path) -> str | None:
    """The split that a name like KS_train_512.h5 tells."""
    found = SPLIT.search(path.stem.lower())
    return None if found is None else "valid" if found[1] == "val" else found[1]
