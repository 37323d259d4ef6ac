"""Small good files, and the data commands run in this process."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from biasbound.cli import main
from biasbound.data.formats import save
from biasbound.data.trajectories import Trajectories


def run(*arguments: object) -> int:
    """`biasbound data …`; its exit code."""
    return main(["data", *map(str, arguments)])


def good_file(path: Path) -> Path:
    """A native file."""
    t = Trajectories.from_array(
        np.random.default_rng(0).normal(size=(2, 4, 1, 8)).astype(np.float32),
        dt=0.25,
        channels=["u"],
        parameters={"mach": np.array([0.5, 0.75])},
        provenance={"seed": 12},
    )
    save(t, path)
    return path


def acdm_folder(path: Path) -> Path:
    """Two simulations of three frames in ACDM's layout."""
    t = Trajectories.from_array(
        np.random.default_rng(0).uniform(0.5, 1, (2, 3, 4, 6, 4)).astype(np.float32),
        dt=0.1,
        channels=["velocity_x", "velocity_y", "density", "pressure"],
        boundary=["open", "open"],
        parameters={"mach": np.array([0.5, 0.6])},
    )
    save(t, path, format="acdm")
    return path
