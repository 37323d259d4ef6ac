"""Commands on single things: roll an emulator out, score a rollout."""

import argparse

from biasbound.cli.reading import reading
from biasbound.cli.subject import loaded, opened
from biasbound.data.formats import load
from biasbound.metrics.files import open_scene
from biasbound.metrics.rows import About, write_rows
from biasbound.metrics.score import score as scored
from biasbound.report.tables import demo_table
from biasbound.study.config import RolloutConfig
from biasbound.study.stages.rollout import roll, save_array


def predict(given: argparse.Namespace) -> None:
    """Roll an emulator out and write its states."""
    options = RolloutConfig(trajectories=given.trajectories, steps=given.steps, members=given.members, seed=given.seed)
    states, broken = roll(loaded(given.emulator, given), opened(given), options)
    save_array(given.out, states, given.force)
    lost = int((broken > 0).sum())
    print(f"{given.out}: {' × '.join(map(str, states.shape))} (members, trajectories, frames, channels, grid) written")
    if lost:
        print(f"{lost} trajectories became non-finite, the first at step {int(broken[broken > 0].min())}")
    strides = [f" --stride-{n} {v}" for n in ("time", "space") if (v := getattr(given, f"stride_{n}")) != 1]
    print(f"next: biasbound score {given.out} --truth {given.data}{''.join(strides)}")


def score(given: argparse.Namespace) -> None:
    """Print the table and every row of a rollout's scores."""
    stride, options = {"time": given.stride_time, "space": given.stride_space}, reading(given)
    truth = load(given.truth, options).stride(**stride)
    train = None if given.train is None else load(given.train, options).stride(**stride)
    scene = open_scene(given.prediction, truth, train=train, initial=given.initial)
    rows = scored(scene, About(truth.layout.name, given.name))
    print(demo_table(rows).text())
    for row in rows:
        step = "" if row.step is None else f" at step {row.step}"
        value = "not finite" if row.value is None else f"{row.value:.6g}"
        interval = "" if row.low is None or row.high is None else f"  ({row.low:.4g} … {row.high:.4g})"
        print(f"{row.metric + step:<28} {value}{interval}")
    if given.out is not None:
        write_rows(given.out, rows)
        print(f"{given.out}: {len(rows)} rows written")
