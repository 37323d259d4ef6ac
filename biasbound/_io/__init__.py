"""How this package meets the disk and other processes.

Files are put in place whole or not at all. JSON is read in one place, checked against the type that it should hold, and
damage becomes one sentence. Locks die with their owner.
"""

import errno
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from biasbound._io.limits import backed, check_yaml, listed, open_regular, read_bounded
from biasbound._io.names import checked_name, no_links, shown
from biasbound._io.processes import cores, obey, workers

__all__ = [
    "WriteFailed",
    "as_kind",
    "backed",
    "check_yaml",
    "checked_name",
    "cores",
    "damaged",
    "from_json",
    "listed",
    "lock",
    "make_folder",
    "no_links",
    "obey",
    "open_regular",
    "plain",
    "read_bounded",
    "read_json",
    "read_lines",
    "remove",
    "replacing",
    "require_room",
    "shown",
    "spare_data",
    "sync",
    "workers",
    "write_json",
    "write_lines",
    "write_text",
]  # fmt: skip

T = TypeVar("T")
# What a file system without locks answers, as Lustre mounted without them; runs have a sign beside (`study.hold`).
DATA = (b"\x89HDF", b"\x93NUMPY", b"CDF", b"PK\x03\x04", b"MATLAB", b"GRIB")  # how files of data begin
WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


def sync(path: Path) -> None:
    """Have a file, or a folder's entries, on the disk before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> Path:
    """A folder with those above it, each on the disk before the next; one that is there stays."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)
    return path


def remove(path: Path) -> None:
    """Delete a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _refuse(path: Path, overwrite: bool) -> None:
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: the folder {path.parent} does not exist; create it first")
    if path.is_dir():
        raise ValueError(f"{path} is a folder, which is never replaced; choose another name")
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists already; choose another name or allow it with --force")


class WriteFailed(ValueError):
    """HDF5 met a full disk. It cannot close what it could not write, and crashes when it tries again: end soon."""


@contextmanager
def replacing(path: str | os.PathLike[str], overwrite: bool = True) -> Iterator[Path]:
    """A temporary neighbour of `path` to write (a file or a folder), which takes its place at the end.

    Until then `path` is as it was, also after a power cut or on a full disk. On an error the neighbour is removed;
    what a killed process left behind is overwritten by the next one.
    """
    path = Path(path)
    _refuse(path, overwrite)
    temporary = path.with_name(f".{path.name}.writing")
    with lock(path.with_name(f".{path.name}.lock")):
        remove(temporary)
        try:
            yield temporary
            for part in [*temporary.rglob("*"), temporary] if temporary.is_dir() else [temporary]:
                sync(part)
            _refuse(path, overwrite)
            if temporary.is_dir():
                path.unlink(missing_ok=True)  # a file cannot become a folder in one step
            os.replace(temporary, path)
            sync(path.parent)
        except BaseException as error:
            with suppress(OSError):
                remove(temporary)
            if isinstance(error, RuntimeError) and (found := re.search(r"error message = '([^']*)'", str(error))):
                raise WriteFailed(f"cannot write {path}: {found[1]}") from error
            raise


@contextmanager
def lock(path: Path) -> Iterator[bool]:
    """Hold `path` as a lock file, or refuse. The system frees it when the process ends, however.

    False where the file system has no locks: then nobody is refused.
    """
    locked = True
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if path.is_symlink():
                raise ValueError(f"{path} is a symbolic link, not our lock; remove it") from None
            raise ValueError(f"cannot write in {path.parent}: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise ValueError(
                f"another process is writing here ({path} is locked); wait until it ends, or choose another place"
            ) from None
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                os.close(descriptor)
                raise
            locked = False
        with suppress(FileNotFoundError):
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                break
        os.close(descriptor)  # the last owner removed the file between the two calls: try again
    try:
        yield locked
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def spare_data(path: str | os.PathLike[str]) -> Path:
    """The same path, refused where a file of data stands that something else would replace."""
    path = Path(path)
    if path.is_file():
        with path.open("rb") as file:
            if file.read(8).startswith(DATA):
                raise ValueError(f"{path} holds data, which nothing of another kind replaces; choose another name")
    return path


def require_room(path: Path, size: int, cure: str) -> None:
    """Refuse to begin a file of `size` bytes on a disk that has fewer left."""
    if path.parent.is_dir() and size > (left := shutil.disk_usage(path.parent).free):
        raise ValueError(f"{path} would take {size:,} bytes, and its disk has {left:,} left; {cure}")


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write UTF-8 text atomically."""
    with replacing(spare_data(path)) as temporary:
        temporary.write_text(text, encoding="utf-8")


def plain(value: Any) -> Any:
    """JSON values: dataclasses as objects, tuples as lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, tuple | list) else value


@contextmanager
def damaged(where: object, cure: str) -> Iterator[None]:
    """Whatever goes wrong inside, while something from a file is put to use, is one sentence about `where`."""
    try:
        yield
    except (ValueError, OSError):
        raise  # a sentence already
    except Exception as error:  # each library has its own kinds
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"{where} is damaged ({type(error).__name__}: {said}); {cure}") from error


_ADAPTERS: dict[Any, Any] = {}


def _adapter(kind: Any) -> Any:
    """pydantic's reader of a type, kept, because making one is slow; beartype knows no `TypeAdapter[Any]`."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def _reason(error: ValidationError) -> str:
    """The first thing that is wrong, and where in the value it stands."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    said = str(first["msg"]).removeprefix("Value error, ")  # of our own checks
    return f"{place}: {said}" if place else said


def as_kind(kind: type[T] | Any, value: Any, where: str) -> T:
    """A JSON value as `kind` (a dataclass, a TypedDict, list[…]), or one sentence that begins with `where`."""
    try:
        text = json.dumps(value)
    except RecursionError:
        raise ValueError(f"{where}: nested too deeply") from None
    made: T = from_json(text, kind, where)
    return made


def from_json(text: str | bytes, kind: type[T] | Any, where: str) -> T:
    """The value of a JSON text, checked against `kind`; what is wrong is one sentence that begins with `where`."""
    try:
        made: T = _adapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        raise ValueError(f"{where}: {_reason(error)}") from None
    return made


def read_json(path: Path, kind: type[T] | Any = Any, cure: str = "restore or delete it") -> T:
    """The value of a JSON file, checked against `kind`; what is damaged is one sentence that ends with `cure`."""
    try:
        made: T = _adapter(kind).validate_json(read_bounded(path), strict=True)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        raise ValueError(f"{path} is damaged ({_reason(error)}); {cure}") from None
    return made


def read_lines(path: Path, kind: type[T] | Any = dict[str, Any], *, torn: bool = False) -> list[T]:
    """One value per line of a JSON-lines file. `torn` drops a last line that a killed process left unfinished."""
    try:
        lines = read_bounded(path).split(b"\n")
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    found: list[T] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(_adapter(kind).validate_json(line, strict=True))
        except ValidationError as error:
            if torn and number == len(lines):
                break
            raise ValueError(f"{path}, line {number} is damaged ({_reason(error)})") from None
    return found


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Write a value as JSON, atomically; NaN and infinity are refused, since JSON has neither."""
    text = json.dumps(plain(value), indent=indent, allow_nan=False, ensure_ascii=False)
    write_text(path, text + "\n")


def write_lines(path: Path, values: Iterable[Any]) -> None:
    """Write one JSON value per line, atomically."""
    lines = (json.dumps(plain(v), allow_nan=False, ensure_ascii=False) + "\n" for v in values)
    write_text(path, "".join(lines))
