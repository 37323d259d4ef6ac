"""Open and save trajectories, whatever their format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from biasbound.data.formats import FORMATS
from biasbound.data.formats.format import Format
from biasbound.data.formats.hdf5 import hdf5_files, is_hdf5, split_of, top_names
from biasbound.data.trajectories import Trajectories
from biasbound.registry import find, known

__all__ = ["detect", "load", "load_splits", "save"]


def detect(path: Path) -> str:
    """The name of the format of a file or folder, or a ValueError that says what was found."""
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder")
    for name in known(FORMATS):
        if _named(name).matches(path):
            return name
    if path.is_dir():
        _refuse_mixture(path)
    raise ValueError(f"{path}: found {_contents(path)}, expected {_expected()}")


def _refuse_mixture(folder: Path) -> None:
    """Refuse a folder of HDF5 files that do not belong together."""
    files = hdf5_files(folder)
    if len({split_of(file) for file in files}) > 1:
        names = [file.name for file in files]
        raise ValueError(f"{folder}: found one file per split, {names}; name one of them")
    kinds = sorted({detect(file) for file in files})
    if kinds:
        raise ValueError(f"{folder}: found files of the formats {kinds}; name one of them")


def _contents(path: Path) -> str:
    """What stands at a path that no format recognises."""
    if path.is_dir():
        return f"a folder with {sorted(p.name for p in path.iterdir())[:5]}"
    if is_hdf5(path):
        return f"HDF5 with {top_names(path)[:8]}"
    with path.open("rb") as file:
        head = file.read(8)
    return f"a file that begins with {head!r}" if head else "an empty file"


def _expected() -> str:
    *first, last = [_named(name).title for name in known(FORMATS)]
    return f"{', '.join(first)} or {last}"


def _named(name: str) -> Format:
    """The format of this name; The Well's layout is the native one."""
    found = find(FORMATS, "native" if name == "well" else name)
    if not isinstance(found, Format):
        raise ValueError(f"{name} is not a format: expected a `biasbound.data.formats.Format`")
    return found


def load(path: str | Path, *, format: str | None = None, **options: Any) -> Trajectories:
    """Open trajectories lazily, whatever their format.

    Options: `dt` overrides the time step of foreign files; `momentum=True` leaves ACDM's momentum as it is; `axes` is
    the number of space axes of a .npy array.
    """
    path = Path(path)
    try:
        if format is not None and path.exists() and _named(format).matches(path):
            name = format
        else:
            name = detect(path)
            if format is not None:
                raise ValueError(f"{path}: found the format {name}, but {format} was asked for")
        chosen = _named(name)
        for option in options:
            if option not in chosen.options:
                raise ValueError(
                    f"{path}: the format {name} has no option {option!r}; it has {', '.join(chosen.options) or 'none'}"
                )
        return chosen.read(path, **options)
    except (LookupError, TypeError, AttributeError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{path}: found damaged contents ({error}); copy it again") from None


def save(trajectories: Trajectories, path: str | Path, *, format: str | None = None, overwrite: bool = False) -> None:
    """Write trajectories as a view shows them; without `format`, the ending of the path decides (.h5 native, .npy)."""
    path = Path(path)
    names = known(FORMATS)
    if format is None:
        format = next((n for n in names if path.suffix in _named(n).suffixes), None)
    if format is None:
        raise ValueError(f"{path}: its ending names no format; give one of {', '.join(names)}")
    write = _named(format).write
    if write is None:
        raise ValueError(f"{path}: the format {format} can be read but not written")
    write(trajectories, path, overwrite=overwrite)


def load_splits(folder: str | Path, **options: Any) -> dict[str, Trajectories]:
    """The splits that stand as separate files or folders in one folder, recognised by their names.

    `KS_train_512.h5`, `valid.h5`, `test/…`: each of train, valid (or val) and test at most once.
    """
    folder = Path(folder)
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        split = split_of(path) if path.suffix != ".json" else None
        if split is None:
            continue
        if split in found:
            raise ValueError(f"{folder}: {found[split].name} and {path.name} both look like {split}")
        found[split] = path
    if not found:
        raise ValueError(f"{folder}: found no file or folder named by train, valid or test")
    return {split: load(path, **options) for split, path in found.items()}
