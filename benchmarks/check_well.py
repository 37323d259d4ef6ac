"""Does The Well's own loader read our files, and do we read theirs? (`make check-well`)

Makes an environment with the-well (beside this package's, as it pins other libraries), generates a small file
of each flow, reads every pair of frames with WellDataset and with ours, and compares all values bit by bit.
Then the same for the file that the-well itself writes for tests. Prints a line a file; fails at a difference.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import numpy as np

from biasbound.cli import main
from biasbound.data.formats import load
from biasbound.data.trajectories import Trajectories
from biasbound.flows import FLOWS
from biasbound.registry import known

HERE = Path(__file__).parent
READER = HERE / "well_reader.py"
WELL = "the-well==1.2.0"
BOUNDARY = {"wall": 0, "open": 1, "periodic": 2}  # The Well's codes


def environment(folder: Path) -> Path:
    """A Python that has the-well, made at the first call."""
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if not ready.exists():
        venv.create(folder, with_pip=True)
        pins = (HERE.parent / "constraints.txt").read_text().splitlines()
        kept = [pin for pin in pins if pin.split("==")[0] in ("torch", "numpy", "h5py")]
        limits = folder / "constraints.txt"
        limits.write_text("\n".join(kept))
        pip = [python, "-m", "pip", "install", "--quiet", "-c", limits, WELL]
        subprocess.run(list(map(str, pip)), check=True)
        ready.touch()
    return python


def well_reads(python: Path, folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What WellDataset gives for the files of a folder."""
    out = folder / "dump.npz"
    subprocess.run([str(python), str(READER), "dump", str(folder), str(out)], check=True)
    with np.load(out, allow_pickle=False) as arrays:
        found = {name: arrays[name] for name in arrays}
    return found, json.loads(str(found.pop("metadata")))


def same(what: str, theirs: np.ndarray, ours: np.ndarray) -> None:
    if theirs.shape != ours.shape or not np.array_equal(theirs, ours.astype(theirs.dtype)):
        raise SystemExit(f"{what} differs: The Well {theirs.shape}, ours {ours.shape}")


def compare(ours: Trajectories, found: dict[str, np.ndarray], told: dict[str, Any]) -> int:
    """Every pair of frames, scalar, constant field, time and boundary; returns the number of pairs."""
    pairs = ours.pairs()
    s, k = np.divmod(np.arange(len(pairs)), pairs.per_trajectory)
    order = [ours.channels.index(name) for name in told["fields"]]
    frames = pairs[:].frames.numpy()[:, :, order]
    for i, name in enumerate(("input_fields", "output_fields")):
        same(name, found[name], np.moveaxis(frames[:, i : i + 1], 2, -1))
    if told["constant_fields"]:
        grid = ours.layout.grid
        held = [np.broadcast_to(ours.static[n], (len(ours), *grid))[s] for n in told["constant_fields"]]
        same("constant_fields", found["constant_fields"], np.stack(held, -1))
    if told["constant_scalars"]:
        values = np.stack([ours.parameters[n][s] for n in told["constant_scalars"]], -1)
        same("constant_scalars", found["constant_scalars"], values)
    for i, name in enumerate(("input_scalars", "output_scalars")):
        if told["scalars"]:
            values = np.stack([ours.series[n][s, k + i] for n in told["scalars"]], -1)
            same(name, found[name], values[:, None])
    edges = np.array([[BOUNDARY[kind]] * 2 for kind in ours.layout.boundary], dtype=np.float32)
    same("boundary_conditions", found["boundary_conditions"], np.tile(edges, (len(pairs), 1, 1)))
    points = np.stack(np.meshgrid(*ours.coordinates, indexing="ij"), -1)
    same("space_grid", found["space_grid"], np.broadcast_to(points, (len(pairs), *points.shape)))
    if not np.allclose(found["output_time_grid"] - found["input_time_grid"], ours.dt, rtol=1e-4):
        raise SystemExit("the time step differs")
    return len(pairs)


def check(python: Path, path: Path, name: str) -> None:
    ours = load(path)
    pairs = compare(ours, *well_reads(python, path.parent))
    held = f"{len(ours.parameters)} parameters, {len(ours.series)} series, {len(ours.static)} masks"
    print(f"{name:12} {' × '.join(map(str, ours.shape)):24} {pairs:5} pairs equal; {held}")


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=HERE.parent / "build" / "well")
    parser.add_argument("files", type=Path, nargs="*", help="check these instead of fresh ones")
    given = parser.parse_args()
    python = environment(given.venv)
    with tempfile.TemporaryDirectory() as temporary:
        for i, file in enumerate(given.files):
            folder = Path(temporary, str(i))
            folder.mkdir()
            (folder / "data.h5").symlink_to(file.resolve())
            check(python, folder / "data.h5", file.name)
        for flow in () if given.files else known(FLOWS):
            path = Path(temporary, flow, "data.h5")
            path.parent.mkdir()
            if main(["data", flow, "--size", "smoke", "--jobs", "1", "--out", str(path)]):
                sys.exit(2)
            check(python, path, flow)
        theirs = Path(temporary, "theirs", "data.h5")
        theirs.parent.mkdir()
        subprocess.run([str(python), str(READER), "dummy", str(theirs)], check=True)
        check(python, theirs, "The Well's")


if __name__ == "__main__":
    run()
