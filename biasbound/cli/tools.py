"""Commands on single things: roll an emulator out, export it, score a rollout."""

import argparse

from biasbound.cli.reading import reading
from biasbound.cli.streams import columns
from biasbound.cli.subject import loaded, opened
from biasbound.core.constraints import constraint
from biasbound.data.formats import load
from biasbound.data.trajectories import Trajectories
from biasbound.metrics.files import open_scene
from biasbound.metrics.rows import About, write_rows
from biasbound.metrics.score import score as scored
from biasbound.registry import allow
from biasbound.report.tables import demo_table
from biasbound.study.config import RolloutConfig
from biasbound.study.stages.rollout import write_rollout

TOLD = 1e-4  # relative size above which a breach of a constraint by the data is told


def predict(given: argparse.Namespace) -> None:
    """Roll an emulator out and write its states as they are made."""
    told = {name: getattr(given, name) for name in ("trajectories", "steps", "members", "seed", "compile")}
    options = RolloutConfig(**told)
    if given.constrain is not None:
        allow([given.constrain])
    emulator, data = loaded(given.emulator, given), opened(given)
    if (given.trajectories or 1) > len(data):
        raise ValueError(f"--trajectories is {given.trajectories}, but {given.data} has {len(data)}")
    made = write_rollout(emulator, data, given.out, options, constrain=given.constrain, overwrite=given.force)
    print(f"{made.path}: {' × '.join(map(str, made.shape))} (members, trajectories, frames, channels, grid) written")
    if made.lost:
        print(f"{made.lost} trajectories became non-finite, the first at step {made.broken[made.broken > 0].min()}")
    if given.constrain is not None and (share := _broken_by_data(given.constrain, data)) > TOLD:
        print(f"note: the data's own first frames break {given.constrain} by {100 * share:.2g} % of their size")
    if given.out.suffix != ".npy":
        print(f"next: biasbound data info {given.out}")
        return
    strides = [f" --stride-{n} {v}" for n in ("time", "space") if (v := getattr(given, f"stride_{n}")) != 1]
    print(f"next: biasbound score {given.out} --truth {given.data}{''.join(strides)}")


def export(given: argparse.Namespace) -> None:
    """Write one step of an emulator as a program."""
    try:
        grid = None if given.grid is None else [int(n) for n in given.grid.split(",")]
    except ValueError:
        raise ValueError(f"--grid is a number of points per axis, with commas between, got {given.grid!r}") from None
    loaded(given.emulator, given).export(given.out, given.format, grid)
    print(f"wrote {given.out}: {given.out.stat().st_size:,} bytes; the answers are those of the emulator")


def _broken_by_data(name: str, data: Trajectories) -> float:
    """‖x − P x‖/‖x‖ over the first frames: where the truth does not obey, a constraint costs accuracy."""
    x = data.first()
    return float((x - constraint(name, data.layout)(x)).norm() / x.norm())


def score(given: argparse.Namespace) -> None:
    """Print the table and every row of a rollout's scores."""
    stride, options = {"time": given.stride_time, "space": given.stride_space}, reading(given)
    truth = load(given.truth, options).stride(**stride)
    train = None if given.train is None else load(given.train, options).stride(**stride)
    scene = open_scene(given.prediction, truth, train=train, initial=given.initial)
    rows = scored(scene, About(truth.layout.name, given.name))
    print(demo_table(rows).text(columns()))
    for row in rows:
        step = "" if row.step is None else f" at step {row.step}"
        value = "not finite" if row.value is None else f"{row.value:.6g}"
        interval = "" if row.low is None or row.high is None else f"  ({row.low:.4g} … {row.high:.4g})"
        print(f"{row.metric + step:<28} {value}{interval}")
    if given.out is not None:
        write_rows(given.out, rows)
        print(f"{given.out}: {len(rows)} rows written")
