"""What a format is, cheap looks at files that several formats share, and how to open and save whatever the format."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import h5py

from biasbound._io import open_regular
from biasbound.data.edges import recognise_mask
from biasbound.data.formats import FORMATS
from biasbound.data.formats.guard import looked_at
from biasbound.data.join import concatenate
from biasbound.data.options import ReadOptions, applied
from biasbound.data.trajectories import Trajectories
from biasbound.registry import find, known

HDF5 = b"\x89HDF\r\n\x1a\n"
Paths = str | Path | Sequence[str | Path]
MANY = 10_000  # files of a folder that are joined
SPLIT = re.compile(r"(?<![a-z])(train|valid|val|test)(?![a-z])")


@dataclass(frozen=True)
class Format:
    """One format of files or folders.

    `matches(path)` tells, from a cheap look at what stands there, whether the path has this format. `read(path)`
    opens it, lazily where that is possible; its further arguments are the format's options. `write(trajectories,
    path, overwrite=…)` saves, and refuses what the format cannot hold; without it the format is only read. A target
    with one of the `suffixes` is written in this format unless another is named. docs/data.md has an example.
    """

    title: str  # with its article, as in "expected a .npy array"
    matches: Callable[[Path], bool]
    read: Callable[..., Trajectories]
    write: Callable[..., None] | None = None
    suffixes: tuple[str, ...] = ()
    masks: bool = False  # whether what it writes keeps a mask

    def __post_init__(self) -> None:
        object.__setattr__(self, "__doc__", self.title)  # what `registry.described` shows


def begins(path: Path, magic: bytes) -> bool:
    """Whether this is a file whose first bytes are these."""
    if not path.is_file():
        return False
    with open_regular(path) as file:
        return file.read(len(magic)) == magic


def opened(path: Path) -> h5py.File:
    """An HDF5 file, looked at in a child process first; a damaged one is refused in one sentence."""
    try:
        return h5py.File(looked_at(path), "r")
    except OSError as error:
        found = re.search(r"truncated file: eof = (\d+).*stored_eof = (\d+)", str(error))
        what = f"truncated ({found[1]} of {found[2]} bytes)" if found else f"unreadable ({error})"
        raise ValueError(f"{path}: found {what} HDF5, expected a whole file; copy it again") from None


def holds(path: Path, test: Callable[[h5py.File], bool]) -> bool:
    """Whether the path is an HDF5 file that passes a test."""
    if not begins(path, HDF5):
        return False
    with opened(path) as file:
        return test(file)


def hdf5_files(folder: Path) -> list[Path]:
    """The HDF5 files of a folder, by their endings."""
    return [p for p in _entries(folder) if p.suffix in (".h5", ".hdf5")]


def _entries(folder: Path) -> list[Path]:
    """What a folder holds, by name; one with too much is hardly one of data."""
    found = list(islice(folder.iterdir(), MANY + 1))
    if len(found) > MANY:
        raise ValueError(f"{folder}: found more than {MANY:,} files; name the folder that holds the data alone")
    return sorted(found)


def split_of(path: Path) -> str | None:
    """The split that a name like KS_train_512.h5 tells."""
    found = SPLIT.search(path.stem.lower())
    return None if found is None else "valid" if found[1] == "val" else found[1]


def detect(path: Path) -> str:
    """The name of the format of a file or folder, or a ValueError that says what was found."""
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder")
    for name in known(FORMATS):
        if _named(name).matches(path):
            return name
    files = hdf5_files(path) if path.is_dir() else []
    if len({split_of(file) for file in files}) > 1:
        raise ValueError(f"{path}: found one file per split, {[file.name for file in files]}; name one of them")
    if files:
        raise ValueError(f"{path}: found files of the formats {sorted({*map(detect, files)})}; name one of them")
    *first, last = [_named(name).title for name in known(FORMATS)]
    raise ValueError(f"{path}: found {_contents(path)}, expected {', '.join(first)} or {last}")


def _contents(path: Path) -> str:
    """What stands at a path that no format recognises."""
    if path.is_dir():
        return f"a folder with {[p.name for p in _entries(path)][:5]}"
    if begins(path, HDF5):
        with opened(path) as file:
            return f"HDF5 with {sorted(file)[:8]}"
    with open_regular(path) as stream:
        head = stream.read(8)
    return f"a file that begins with {head!r}" if head else "an empty file"


def _named(name: str) -> Format:
    """The format of this name; The Well's layout is the native one."""
    found = find(FORMATS, "native" if name == "well" else name)
    if not isinstance(found, Format):
        raise ValueError(f"{name} is not a format: expected a `biasbound.data.formats.Format`")
    return found


def load(path: Paths, options: ReadOptions | None = None, *, format: str | None = None, **more: Any) -> Trajectories:
    """Open trajectories lazily, whatever their format.

    A list of paths, a pattern such as `runs/*.mat`, or a folder of files is one set, each file with its trajectories.
    `options` or keywords say what a file does not say: `variable`, `channels`, `domain`, `boundary`, `dt`, `mask`,
    `dims` (`ReadOptions`). A format may have more: `momentum=True` leaves ACDM's momentum as it is.

    >>> import numpy as np
    >>> np.save("waves.npy", np.zeros((3, 10, 1, 16)))
    >>> load("waves.npy", dt=0.1, channels=["u"])  # biasbound.open
    Trajectories(waves.npy: 3 × 10 × 1 × 16, dt 0.1, u)
    """
    name, files = _files(path)
    if len(files) > 1:
        found = concatenate([load(file, options, format=format, **more) for file in files], name)
        return replace(found, layout=replace(found.layout, name=Path(name).stem.strip("*?_-. ") or found.layout.name))
    if not (files[0].is_file() or files[0].is_dir()) and files[0].exists():
        raise ValueError(f"{files[0]}: found a pipe or a device, expected a file or a folder")
    try:
        return _load(files[0], format, (options.given() if options else {}) | more)
    except (ValueError, OSError) as error:
        if files[0].name in str(error) and not isinstance(error, UnicodeError):
            raise
        raise ValueError(f"{files[0]}: found damaged contents ({error}); copy it again") from None
    except ImportError:
        raise
    except Exception as error:  # noqa: BLE001 - each reader has its own kinds, memory and depth among them
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"{files[0]}: found damaged contents ({said}); copy it again") from None


def _load(path: Path, format: str | None, told: dict[str, Any]) -> Trajectories:
    name = format if format and path.exists() and _named(format).matches(path) else detect(path)
    if format not in (None, name):
        raise ValueError(f"{path}: found the format {name}, but {format} was asked for")
    read = _named(name).read
    _, *own = inspect.signature(read).parameters
    if "axes" in told and "axes" not in own:
        told = {"dims" if option == "axes" else option: value for option, value in told.items()}
    general = [f.name for f in fields(ReadOptions)]
    for option in told:
        if option not in (*own, *general) or option == "options":
            have = ", ".join(dict.fromkeys(o for o in (*own, *general) if o != "options"))
            raise ValueError(f"{path}: the format {name} has no option {option!r}; it has {have}")
    options = ReadOptions.of({option: told[option] for option in told if option in general}, str(path))
    if "options" in own:
        found = read(path, options=options, **{option: told[option] for option in told if option not in general})
    else:
        taken = {option: told[option] for option in told if option in own}
        found = applied(read(path, **taken), replace(options, **dict.fromkeys({*general} & {*taken})))
    return recognise_mask(found)


def _files(given: Paths) -> tuple[str, list[Path]]:
    """The name of what was given, and its files; a path that a format reads as a whole is one of them."""
    if not isinstance(given, str | Path):
        files = [Path(path) for path in given]
        if not files:
            raise ValueError("no file was given; give at least one")
        return (str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"), files
    path = Path(given)
    if not path.exists() and any(sign in path.name for sign in "*?["):
        files = sorted(path.parent.glob(path.name))
        if not files:
            raise ValueError(f"{path}: no file matches this pattern")
        return str(path), files
    if path.is_dir() and not any(_named(name).matches(path) for name in known(FORMATS)):
        files = [p for p in _entries(path) if p.suffix != ".json" and not p.name.startswith(".")]
        kinds = {next((n for n in known(FORMATS) if _named(n).matches(p)), None) for p in files}
        if len(kinds) == 1 and None not in kinds and len({split_of(p) for p in files}) == 1:
            return str(path), files
    return str(path), [path]


def save(trajectories: Trajectories, path: str | Path, *, format: str | None = None, overwrite: bool = False) -> None:
    """Write trajectories as a view shows them; without `format`, the ending of the path decides."""
    path = Path(path)
    names = known(FORMATS)
    if format is None:
        format = next((n for n in names if path.suffix in _named(n).suffixes), None)
    if format is None:
        raise ValueError(f"{path}: its ending names no format; give one of {', '.join(names)}")
    write = _named(format).write
    if write is None:
        raise ValueError(f"{path}: the format {format} can be read but not written")
    if trajectories.mask is not None and not _named(format).masks:
        able = ", ".join(n for n in names if _named(n).masks)
        raise ValueError(f"{path}: the format {format} cannot hold a mask; write one of {able}")
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
