"""The README's picture, rollouts beside the truth: python benchmarks/hero.py [OUT.png]

Left Kuramoto–Sivashinsky in space and time, right the vorticity of Kolmogorov flow at some frames: the truth, the emulator
from the same initial state, and their difference in the same colours. Emulators are those of results/record, the test data
are made again as for the gallery, and the trajectory is the first. Fields are drawn with bicubic interpolation.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import gallery

from biasbound.metrics import vorticity
from biasbound.study.stages.material import open_split

LINE = ("ks", "adaptive-scaled-residual", 159)  # record, method, frames
PLANE = ("kolmogorov", "adaptive-scaled-residual-proxy", 20)
SHOWN = (1, 5, 10, 20)  # frames of the plane
NAMES = ("truth", "emulator", "error")
INK, SOFT = "#16191d", "#58606b"
WIDE, ROW, GAP = 11.6, 1.22, 0.07  # inches: the picture, a row, between rows
LEFT, TOP = 0.42, 0.55


def pair(record: str, method: str, frames: int) -> tuple[np.ndarray, np.ndarray, float]:
    """(truth, prediction) of the first trajectory, each (K, C, *N), and the time between frames."""
    with tempfile.TemporaryDirectory() as work:
        run = gallery.rolled_out(gallery.RESULTS / "record" / record, Path(work) / "run", frames, (method,))
        test = open_split(run / "01-data", "test")
        made = np.load(run / "05-rollout" / method / "seed-0" / "prediction.npy", allow_pickle=False)[0, 0]
        return np.asarray(test.read(0, 1)[0, 1 : frames + 1]), made, test.dt


def drawn(figure: plt.Figure, field: np.ndarray, most: float, left: float, row: int, width: float) -> Axes:
    """One picture, placed in inches from the left and by its row."""
    high = figure.get_figheight()
    bottom = high - TOP - (row + 1) * ROW - row * GAP
    axes = figure.add_axes((left / WIDE, bottom / high, width / WIDE, ROW / high))
    axes.imshow(field, aspect="auto", cmap="RdBu_r", vmin=-most, vmax=most, origin="lower", interpolation="bicubic")
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set(color="#d9dde3", linewidth=0.8)
    return axes


def heading(figure: plt.Figure, left: float, title: str, more: str) -> None:
    high = figure.get_figheight()
    figure.text(left / WIDE, 1 - 0.20 / high, title, fontsize=12, weight="bold", color=INK, va="center")
    figure.text(left / WIDE, 1 - 0.41 / high, more, fontsize=9, color=SOFT, va="center")


def in_time(figure: plt.Figure, left: float, width: float) -> None:
    truth, made, dt = pair(*LINE)
    most = float(np.abs(truth).max())
    for row, (name, field) in enumerate(zip(NAMES, (truth, made, made - truth), strict=True)):
        axes = drawn(figure, field[:, 0].T, most, left, row, width)
        axes.set_ylabel(name, fontsize=10, color=INK)
    last = dt * len(truth)
    at = np.arange(20, last, 20)
    axes.set_xticks(at / dt - 1, [f"t = {t:.0f}" for t in at], fontsize=9, color=SOFT)
    axes.tick_params(length=2, color=SOFT)
    points = truth.shape[-1]
    heading(
        figure,
        left,
        "Kuramoto–Sivashinsky",
        f"position (up) and time (right), {points} points, {len(truth)} steps of {dt:g}",
    )


def in_frames(figure: plt.Figure, left: float) -> None:
    truth, made, _ = pair(*PLANE)
    swirl = [np.asarray(vorticity(field[None]))[0].squeeze() for field in (truth, made)]
    most = 0.8 * float(np.abs(swirl[0]).max())
    spread = float(swirl[0].std())
    for column, frame in enumerate(SHOWN):
        fields = [swirl[0][frame - 1], swirl[1][frame - 1], swirl[1][frame - 1] - swirl[0][frame - 1]]
        for row, field in enumerate(fields):
            axes = drawn(figure, field.T, most, left + column * (ROW + GAP), row, ROW)
            if column == 0:
                axes.set_ylabel(NAMES[row], fontsize=10, color=INK)
        size = float(np.sqrt(np.square(fields[2]).mean())) / spread
        axes.set_xlabel(
            f"step {frame}: {100 * size:.0f} %" if size > 0.01 else f"step {frame}: {100 * size:.1g} %",
            fontsize=9,
            color=SOFT,
        )
    heading(
        figure, left, "Kolmogorov flow", f"vorticity, {truth.shape[-1]}² points; % is the error's RMS over the flow's"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=ROOT / "docs" / "img" / "hero.png")
    given = parser.parse_args()
    figure = plt.figure(figsize=(WIDE, TOP + 3 * ROW + 2 * GAP + 0.32), facecolor="white")
    frames = len(SHOWN) * ROW + (len(SHOWN) - 1) * GAP
    right = WIDE - frames - 0.08
    in_time(figure, LEFT, right - LEFT - 0.5)
    in_frames(figure, right)
    figure.savefig(given.out, dpi=150)
    Image.open(given.out).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(given.out, optimize=True)


if __name__ == "__main__":
    main()
