"""Every format that trajectories are read from and written to, told apart by content.

    native     HDF5 in The Well's layout (a file, or a folder of files that are joined); also called well
    lpsda      Kuramoto–Sivashinsky files of LPSDA and PDEArena
    sda        Kolmogorov files of SDA, with the single dataset x
    acdm       ACDM's folders of transonic flow
    numpy      a .npy array with a time step
    matlab     .mat files of versions 5 and 7.3 (extra io)
    netcdf     NetCDF 3 and 4 (extra io to read)
    zarr       Zarr stores (extra io)
    grib       GRIB files (extra grib)

Each format has one file here, with its `Format`. To add one: `FORMATS["mine"] = Format(…)`; the built-in formats are
asked first. What cannot be read is refused in one sentence that says what was found and what was expected. Nothing
heavy is imported before a format is asked for, so that --help can list them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from biasbound.registry import home

if TYPE_CHECKING:
    from biasbound.data.formats.files import Format, detect, load, load_splits, save

__all__ = ["FORMATS", "Format", "detect", "load", "load_splits", "save"]

NAMES = ("native", "lpsda", "sda", "acdm", "numpy", "matlab", "netcdf", "zarr", "grib")
FORMATS: dict[str, Any] = home("formats", {name: f"biasbound.data.formats.{name}:FORMAT" for name in NAMES})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.files"), name)
