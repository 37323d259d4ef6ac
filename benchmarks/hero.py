"""The README's picture, rollouts beside the truth: python benchmarks/hero.py KS_RUN METHOD KOLMOGOROV_RUN METHOD OUT.png

Above Kuramoto–Sivashinsky in space and time, below the vorticity of Kolmogorov flow at some frames: the truth, the emulator
from the same initial state, and their difference. Both runs are run folders whose methods were rolled out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.gridspec import SubplotSpec

from biasbound.metrics import vorticity
from biasbound.study.stages.material import open_split

TRAJECTORY = 3
SHOWN = (1, 5, 10, 20)  # frames of the lower part
INK = "#1c2733"


def pair(run: Path, method: str) -> tuple[np.ndarray, np.ndarray, float]:
    """(truth, prediction) of one trajectory, each (K, C, *N), and the time between frames."""
    test = open_split(run / "01-data", "test")
    made = np.load(run / "05-rollout" / method / "seed-0" / "prediction.npy", mmap_mode="r", allow_pickle=False)
    prediction = np.asarray(made[0, TRAJECTORY])
    return np.asarray(test.read(TRAJECTORY, TRAJECTORY + 1)[0, 1 : len(prediction) + 1]), prediction, test.dt


def clear(axes: Axes) -> None:
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set_visible(False)


def in_time(figure: plt.Figure, place: SubplotSpec, run: Path, method: str, title: str) -> None:
    truth, made, dt = pair(run, method)
    rows = place.subgridspec(3, 1, hspace=0.12)
    most = float(np.abs(truth).max())
    for i, (name, field) in enumerate({"truth": truth, "emulator": made, "difference": made - truth}.items()):
        axes = figure.add_subplot(rows[i])
        axes.imshow(
            field[:, 0].T, aspect="auto", cmap="RdBu_r", vmin=-most, vmax=most, extent=(dt, dt * len(field), 0, 1)
        )
        clear(axes)
        axes.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
        if i == 0:
            axes.set_title(title, fontsize=10, loc="left", color=INK)
    axes.set_xticks([dt, dt * len(truth)], [f"t = {dt:g}", f"t = {dt * len(truth):g}"], fontsize=8)
    axes.tick_params(length=0)


def in_frames(figure: plt.Figure, place: SubplotSpec, run: Path, method: str, title: str) -> None:
    truth, made, _ = pair(run, method)
    swirl = [np.asarray(vorticity(field[None]))[0] for field in (truth, made)]
    most = float(np.abs(swirl[0]).max())
    rows = place.subgridspec(3, len(SHOWN), hspace=0.04, wspace=0.04)
    for i, (name, field) in enumerate(
        {"truth": swirl[0], "emulator": swirl[1], "difference": swirl[1] - swirl[0]}.items()
    ):
        for j, frame in enumerate(SHOWN):
            axes = figure.add_subplot(rows[i, j])
            axes.imshow(field[frame - 1].squeeze().T, cmap="RdBu_r", vmin=-most, vmax=most, origin="lower")
            clear(axes)
            if i == 0:
                axes.set_title(f"step {frame}" if j else f"{title}\nstep {frame}", fontsize=9, loc="left", color=INK)
            if j == 0:
                axes.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("ks", "ks_method", "kolmogorov", "kolmogorov_method", "out"):
        parser.add_argument(name, type=str if name.endswith("method") else Path)
    given = parser.parse_args()
    figure = plt.figure(figsize=(11, 4.6), facecolor="white")
    left, right = figure.add_gridspec(
        1, 2, width_ratios=(1.1, 1), wspace=0.22, left=0.07, right=0.99, top=0.88, bottom=0.06
    )
    in_time(figure, left, given.ks, given.ks_method, "Kuramoto–Sivashinsky: space (up) and time (right)")
    in_frames(figure, right, given.kolmogorov, given.kolmogorov_method, "Kolmogorov flow: vorticity")
    figure.savefig(given.out, dpi=110)


if __name__ == "__main__":
    main()
