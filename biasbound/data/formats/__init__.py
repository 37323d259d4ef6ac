"""Every format that trajectories are read from and written to, told apart by content.

    native, well   HDF5 in The Well's layout (a file, or a folder of files that are joined)
    lpsda          Kuramoto–Sivashinsky files of LPSDA and PDEArena
    sda            Kolmogorov files of SDA, single dataset x
    acdm           ACDM's transonic folders
    numpy          a .npy array with a time step

What cannot be read is refused in one sentence that says what was found and what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from biasbound.data.formats import acdm as foreign_acdm
from biasbound.data.formats import lpsda as foreign_lpsda
from biasbound.data.formats import native, well
from biasbound.data.formats import numpy as foreign_numpy
from biasbound.data.formats import sda as foreign_sda
from biasbound.data.joined import concatenate
from biasbound.data.trajectories import Trajectories

__all__ = ["FORMATS", "detect", "load", "load_splits", "save"]

EXPECTED = "HDF5 in The Well's layout, an LPSDA/PDEArena file, an SDA file with x, an ACDM folder, or .npy"
HDF5 = b"\x89HDF\r\n\x1a\n"
SPLIT = re.compile(r"(?<![a-z])(train|valid|val|test)(?![a-z])")


@dataclass(frozen=True)
class Format:
    """How to read (with which options beside the path) and write a format."""

    read: Callable[..., Trajectories]
    write: Callable[..., None]
    options: tuple[str, ...] = ("dt",)
    suffixes: tuple[str, ...] = (".h5", ".hdf5")


def _read_well(path: Path, dt: float | None = None) -> Trajectories:
    """One file, or all HDF5 files of a folder joined along the trajectories."""
    if path.is_file():
        return well.read(path, dt)
    return concatenate([well.read(file, dt) for file in _hdf5_files(path)], str(path))


FORMATS = {
    "native": Format(_read_well, native.write),
    "lpsda": Format(foreign_lpsda.read, foreign_lpsda.write),
    "sda": Format(foreign_sda.read, foreign_sda.write),
    "acdm": Format(foreign_acdm.read, foreign_acdm.write, ("dt", "momentum"), ()),
    "numpy": Format(foreign_numpy.read, foreign_numpy.write, ("dt", "space"), (".npy",)),
}


def _hdf5_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix in (".h5", ".hdf5"))


def _open_hdf5(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except OSError as error:
        found = re.search(r"truncated file: eof = (\d+).*stored_eof = (\d+)", str(error))
        what = f"truncated ({found[1]} of {found[2]} bytes)" if found else f"unreadable ({error})"
        raise ValueError(f"{path}: found {what} HDF5, expected a whole file; copy it again") from None


def detect(path: Path) -> str:
    """The name of the format of a file or folder, or a ValueError that says what was found."""
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder")
    if path.is_dir():
        return _detect_folder(path)
    with path.open("rb") as file:
        head = file.read(8)
    if not head:
        raise ValueError(f"{path}: found an empty file, expected {EXPECTED}")
    if head.startswith(foreign_numpy.MAGIC):
        return "numpy"
    if head != HDF5:
        raise ValueError(f"{path}: found a file that begins with {head!r}, expected {EXPECTED}")
    with _open_hdf5(path) as file:
        if well.is_well(file):
            return "native"
        if foreign_lpsda.is_lpsda(file):
            return "lpsda"
        if foreign_sda.is_sda(file):
            return "sda"
        raise ValueError(f"{path}: found HDF5 with {sorted(file)[:8]}, expected {EXPECTED}")


def _detect_folder(path: Path) -> str:
    if foreign_acdm.is_acdm(path):
        return "acdm"
    files = _hdf5_files(path)
    if not files:
        found = sorted(p.name for p in path.iterdir())[:5]
        raise ValueError(f"{path}: found a folder with {found}, expected {EXPECTED}")
    if len({_split_of(file) for file in files}) > 1:
        names = [file.name for file in files]
        raise ValueError(f"{path}: found one file a split, {names}; name one of them")
    kinds = {detect(file) for file in files}
    if kinds != {"native"}:
        raise ValueError(f"{path}: found files of the formats {sorted(kinds)}; name one of them")
    return "native"


def _named(format: str) -> str:
    """The format of this name; The Well's layout is the native one."""
    name = "native" if format == "well" else format
    if name not in FORMATS:
        raise ValueError(f"there is no format {format!r}; there are {', '.join(FORMATS)}")
    return name


def load(path: str | Path, *, format: str | None = None, **options: Any) -> Trajectories:
    """Open trajectories lazily, whatever their format.

    Options: `dt` overrules the time step of foreign files; `momentum=True` leaves ACDM's momentum as it
    is; `space` is the number of space axes of a .npy array.
    """
    path = Path(path)
    try:
        found = detect(path)
        if format is not None and _named(format) != found:
            raise ValueError(f"{path}: found the format {found}, but {format} was asked for")
        unknown = [name for name in options if name not in FORMATS[found].options]
        if unknown:
            raise ValueError(f"{path}: the format {found} has no option {unknown[0]}")
        return FORMATS[found].read(path, **options)
    except (LookupError, TypeError, AttributeError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{path}: found damaged contents ({error}); copy it again") from None


def save(trajectories: Trajectories, path: str | Path, *, format: str | None = None, overwrite: bool = False) -> None:
    """Write trajectories (as a view shows them); .h5 is native and .npy NumPy unless told otherwise."""
    path = Path(path)
    if format is None:
        known = [name for name, f in FORMATS.items() if path.suffix in f.suffixes]
        if not known:
            raise ValueError(f"{path}: its ending names no format; give one of {', '.join(FORMATS)}")
        format = known[0]
    FORMATS[_named(format)].write(trajectories, path, overwrite=overwrite)


def _split_of(path: Path) -> str | None:
    found = SPLIT.search(path.stem.lower())
    return found[1].replace("val", "valid").replace("validid", "valid") if found else None


def load_splits(folder: str | Path, **options: Any) -> dict[str, Trajectories]:
    """The splits that stand as separate files or folders in one folder, told by their names.

    `KS_train_512.h5`, `valid.h5`, `test/…`: each of train, valid (or val) and test at most once.
    """
    folder = Path(folder)
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        split = _split_of(path) if path.suffix != ".json" else None
        if split is None:
            continue
        if split in found:
            raise ValueError(f"{folder}: {found[split].name} and {path.name} both look like {split}")
        found[split] = path
    if not found:
        raise ValueError(f"{folder}: found no file or folder named by train, valid or test")
    return {split: load(path, **options) for split, path in found.items()}
