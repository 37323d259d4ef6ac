"""Commands on single things: roll an emulator out, score a rollout."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from biasbound.cli.reading import reading
from biasbound.cli.subject import add_stride, opened

__all__ = ["add_parsers"]


def add_parsers(commands: Any) -> None:
    """Register the commands; each sets `run`, which takes the arguments."""
    _add_predict(commands)
    _add_score(commands)


def _add_predict(commands: Any) -> None:
    predict = commands.add_parser(
        "predict",
        help="roll a saved emulator out from the first frames of a file",
        epilog="example: biasbound predict runs/ks-demo/03-train/adaptive-scaled-residual/seed-0/emulator --data test.h5 --out p.npy",
    )
    predict.add_argument("emulator", type=Path, metavar="EMULATOR")
    predict.add_argument("--data", type=Path, required=True, metavar="FILE")
    predict.add_argument("--out", type=Path, required=True, metavar="NPY")
    predict.add_argument("--steps", type=int, help="frames to predict (default: as many as the file has)")
    predict.add_argument("--trajectories", type=int, help="how many (default: all)")
    predict.add_argument("--members", type=int, default=1)
    predict.add_argument("--seed", type=int, default=0)
    predict.add_argument("--force", action="store_true", help="replace an existing file")
    add_stride(predict)
    predict.set_defaults(run=_predict)


def _add_score(commands: Any) -> None:
    score = commands.add_parser(
        "score",
        help="score a rollout that any code wrote as .npy",
        epilog="example: biasbound score prediction.npy --truth test.h5 --name my-model --out rows.jsonl",
    )
    score.add_argument("prediction", type=Path, metavar="NPY", help="(S, K, C, *N) or (M, S, K, C, *N)")
    score.add_argument("--truth", type=Path, required=True, metavar="FILE", help="trajectories with frame 0")
    score.add_argument("--train", type=Path, metavar="FILE", help="training data, for normalised errors")
    score.add_argument("--name", default="model", help="the method's name in the rows")
    score.add_argument("--initial", action="store_true", help="the prediction holds frame 0 as well")
    score.add_argument("--out", type=Path, metavar="JSONL", help="write the rows here")
    add_stride(score)
    score.set_defaults(run=_score)


def _predict(given: argparse.Namespace) -> None:
    from biasbound.models.emulator import load
    from biasbound.study.config import RolloutConfig
    from biasbound.study.stages.rollout import roll, save_array

    options = RolloutConfig(trajectories=given.trajectories, steps=given.steps, members=given.members, seed=given.seed)
    states, broken = roll(load(given.emulator), opened(given), options)
    save_array(given.out, states, given.force)
    lost = int((broken > 0).sum())
    print(f"{given.out}: {' × '.join(map(str, states.shape))} (members, trajectories, frames, channels, grid) written")
    if lost:
        print(f"{lost} trajectories became non-finite, the first at step {int(broken[broken > 0].min())}")
    strides = [f" --stride-{n} {v}" for n in ("time", "space") if (v := getattr(given, f"stride_{n}")) != 1]
    print(f"next: biasbound score {given.out} --truth {given.data}{''.join(strides)}")


def _score(given: argparse.Namespace) -> None:
    from biasbound.data.formats import load
    from biasbound.metrics.files import open_scene
    from biasbound.metrics.rows import About, write_rows
    from biasbound.metrics.score import score
    from biasbound.report.tables import demo_table

    stride, options = {"time": given.stride_time, "space": given.stride_space}, reading(given)
    truth = load(given.truth, options).stride(**stride)
    train = None if given.train is None else load(given.train, options).stride(**stride)
    scene = open_scene(given.prediction, truth, train=train, initial=given.initial)
    rows = score(scene, About(truth.layout.name, given.name))
    print(demo_table(rows).text())
    for row in rows:
        step = "" if row.step is None else f" at step {row.step}"
        value = "not finite" if row.value is None else f"{row.value:.6g}"
        interval = "" if row.low is None or row.high is None else f"  ({row.low:.4g} … {row.high:.4g})"
        print(f"{row.metric + step:<28} {value}{interval}")
    if given.out is not None:
        write_rows(given.out, rows)
        print(f"{given.out}: {len(rows)} rows written")
