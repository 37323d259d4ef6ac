"""GRIB files of weather centres, through cfgrib where it is installed; only read."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from biasbound.data.extras import extra
from biasbound.data.formats.files import Format, begins
from biasbound.data.formats.netcdf import open_dataset
from biasbound.data.labelled import opened_dataset
from biasbound.data.options import ReadOptions
from biasbound.data.trajectories import Trajectories

__all__ = ["FORMAT"]


def read(path: Path, options: ReadOptions | None = None) -> Trajectories:
    """Open lazily; no index file is left beside it."""
    extra("xarray", path)
    extra("cfgrib", path, "grib")
    opened = partial(open_dataset, path, "cfgrib", indexpath="")
    return opened_dataset(opened, options or ReadOptions(), str(path))


FORMAT = Format("a GRIB file", lambda path: begins(path, b"GRIB"), read)
