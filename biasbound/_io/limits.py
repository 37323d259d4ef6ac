"""How much a file may ask for: regular files only, and bounds on size, depth and expansion before anything is parsed."""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["backed", "check_yaml", "listed", "open_regular", "read_bounded"]

TEXT = 256 << 20  # bytes of a JSON file; the largest that we write are landscapes and logs of some megabytes
YAML = 1 << 20  # bytes of a config
DEPTH = 50  # of nested lists and mappings in a config
NODES = 100_000  # of a config with its aliases written out
FILES = 100_000  # of a folder of data
SMALL = 64 << 20  # declared bytes that need no proof
DENSEST = 2000  # declared over stored bytes: deflate reaches 1032


@contextmanager
def open_regular(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to read from its beginning; a pipe, a device or a folder is refused, and never waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path} is not a regular file (a pipe, a device or a folder); give one")
    with os.fdopen(descriptor, "rb") as file:
        yield file


def read_bounded(path: str | os.PathLike[str], most: int = TEXT) -> bytes:
    """All bytes of a regular file that has at most so many."""
    with open_regular(path) as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise ValueError(f"{path} has more than {most:,} bytes, which no file of its kind needs; check what it is")
    return found


def listed(folder: Path, most: int = FILES) -> list[Path]:
    """All regular files below a folder, by name; one with too many is hardly a folder of data."""
    try:
        found = list(islice((p for p in folder.rglob("*") if p.is_file()), most + 1))
    except OSError as error:
        raise ValueError(f"{folder} cannot be looked through ({error}); name the folder of the data alone") from None
    if len(found) > most:
        raise ValueError(f"{folder} holds more than {most:,} files; name the folder that holds the data alone")
    return sorted(found)


def backed(name: str, shape: Sequence[int], itemsize: int, path: Path) -> None:
    """Refuse an array that declares far more bytes than the file or folder at `path` can hold, compressed or not."""
    sizes = tuple(map(int, shape))
    declared = prod(sizes) * itemsize  # Python's integers: NumPy's overflow
    if declared <= SMALL and all(0 <= n <= SMALL for n in sizes):
        return
    stored = stored_bytes(path, -(-declared // DENSEST))
    if declared > DENSEST * stored or max(sizes) > max(SMALL, DENSEST * stored):
        raise ValueError(
            f"{name}: found an array of shape {sizes}, which takes {declared:,} bytes, in {stored:,} bytes; copy it again"
        )


def stored_bytes(path: Path, enough: int) -> int:
    """Bytes of a file, or of a folder's files until there are `enough`."""
    if not path.is_dir():
        return path.stat().st_size
    total = 0
    for place, _, files in os.walk(path):
        total += sum(os.stat(os.path.join(place, name)).st_size for name in files)
        if total >= enough:
            break
    return total


def check_yaml(text: str) -> None:
    """Refuse a YAML text that is too long, nested too deeply, too large with its aliases written out, or ambiguous.

    The events of the parser come one by one, without recursion; its trees do not.
    """
    import yaml

    if len(text) > YAML:
        raise yaml.YAMLError(f"more than {YAML:,} characters of YAML")
    if not any(sign in text for sign in "[{*&:-"):
        return  # a plain value
    sizes, anchors, open_anchors, keys = [0], dict[str, int](), list[str | None](), _Keys()
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        keys.meet(event)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in open_anchors:
                raise yaml.YAMLError(f"the alias *{event.anchor} stands inside what it names")
            sizes[-1] += anchors.get(str(event.anchor), 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            sizes.append(1)
            open_anchors.append(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            size, anchor = sizes.pop(), open_anchors.pop()
            sizes[-1] += size
            if anchor is not None:
                anchors[anchor] = size
        elif isinstance(event, yaml.ScalarEvent):
            sizes[-1] += 1
        if len(sizes) > DEPTH:
            raise yaml.YAMLError(f"lists and mappings are nested more than {DEPTH} deep")
        if sizes[-1] > NODES:
            raise yaml.YAMLError(f"more than {NODES:,} values, aliases written out")


class _Keys:
    """The keys of the mappings that are open; one that stands twice is refused, where YAML's readers take the last."""

    def __init__(self) -> None:
        self.open: list[set[str] | None] = []  # None: a list
        self.value: list[bool] = []  # whether a value comes next

    def meet(self, event: Any) -> None:
        import yaml

        if isinstance(event, yaml.CollectionEndEvent):
            self.open.pop(), self.value.pop()
            return
        if not isinstance(event, yaml.NodeEvent):
            return
        here = self.open[-1] if self.open else None
        if here is not None:
            if isinstance(event, yaml.ScalarEvent) and not self.value[-1]:
                if event.value in here:
                    place = f", line {event.start_mark.line + 1}" if event.start_mark else ""
                    raise yaml.YAMLError(f"{event.value} stands twice{place}; keep one")
                here.add(event.value)
            self.value[-1] = not self.value[-1]
        if isinstance(event, yaml.CollectionStartEvent):
            self.open.append(set() if isinstance(event, yaml.MappingStartEvent) else None)
            self.value.append(False)
