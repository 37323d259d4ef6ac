"""Small good files, and the data commands run in this process."""

from __future__ import annotations

from dataclasses import replace
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


FLOWS = {
    "ks": (("u",), (16,), ("periodic",)),
    "kolmogorov": (("velocity_x", "velocity_y"), (8, 8), ("periodic",) * 2),
    "transonic": (("velocity_x", "velocity_y", "density", "pressure"), (12, 6), ("open",) * 2),
}


def flow(name: str, dtype="float32", **facts) -> Trajectories:
    channels, grid, boundary = FLOWS[name]
    rng = np.random.default_rng(3)
    fields = rng.uniform(0.5, 1.5, (3, 7, len(channels), *grid)).astype(dtype)
    if name == "transonic":
        facts = {
            "parameters": {"mach": np.array([0.51, 0.6, 0.7]), "reynolds": np.full(3, 1e4)},
            "series": {"drag": rng.random((3, 7)), "lift": rng.random((3, 7))},
            "static": {"mask": (rng.random(grid) > 0.1).astype(np.float32)},
        } | facts
    t = Trajectories.from_array(
        fields,
        dt=0.2,
        channels=channels,
        domain=[(0.0, 2 * np.pi)] * len(grid),
        boundary=boundary,
        provenance={"seed": 1, "split": "valid", "list": [1, 2.5]},
        **facts,
    )
    return replace(t, layout=replace(t.layout, name=name))


def same(a: Trajectories, b: Trajectories, facts=True) -> None:
    assert np.array_equal(a.read(0, len(a)), b.read(0, len(b)))
    assert (a.channels, a.dt, a.layout.grid) == (b.channels, b.dt, b.layout.grid)
    assert a.layout.boundary == b.layout.boundary
    assert np.allclose(a.layout.domain, b.layout.domain, rtol=1e-12)
    if facts:
        for kind in ("parameters", "series", "static"):
            mine, other = getattr(a, kind), getattr(b, kind)
            assert {*mine} == {*other}
            for name in mine:
                assert np.array_equal(mine[name], other[name])
