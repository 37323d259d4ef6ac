"""Ways to damage an HDF5 file where it hurts: its global heap, its datatypes, its declared shapes."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np


@contextmanager
def sentence(name: object) -> Iterator[None]:
    """All goes well, or one sentence says what is wrong, and of what."""
    try:
        yield
    except ValueError as error:
        if str(name) not in str(error):
            raise AssertionError(f"{error} does not name {name}") from error


def with_heap(path: Path) -> Path:
    """A file whose texts stand in a global heap, as strings of any length do."""
    with h5py.File(path, "w") as file:
        file["x"] = np.ones((2, 4, 1, 8), np.float32)
        file["x"].attrs["note"] = "a text of any length"
        file["x"].attrs["names"] = np.array(["one", "three"], dtype=h5py.string_dtype())
    return path


def heap_size(path: Path, size: int) -> None:
    """Change the size of the first object of the global heap: it stands 8 bytes into the object, after the head."""
    data = bytearray(path.read_bytes())
    place = data.index(b"GCOL") + 16 + 8
    data[place : place + 8] = struct.pack("<Q", size % 2**64)
    path.write_bytes(data)


def text_length(path: Path, size: int) -> None:
    """Change the length of a text that an attribute points to: 4 bytes before the address of its heap."""
    data = bytearray(path.read_bytes())
    heap = struct.pack("<Q", data.index(b"GCOL"))
    place = data.index(heap)
    data[place - 4 : place] = struct.pack("<I", size % 2**32)
    path.write_bytes(data)


def declared(path: Path, shape: tuple[int, ...]) -> Path:
    """A tiny file with an array of which it says much and holds nothing."""
    with h5py.File(path, "w") as file:
        file.create_dataset("x", shape, "f4", chunks=(1,) * (len(shape) - 1) + (16,))
    return path
