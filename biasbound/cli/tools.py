"""Commands on single things: diagnose a denoiser, roll an emulator out, score a rollout."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from biasbound.cli.subject import add_stride, opened, subject_of

__all__ = ["add_parsers"]


def add_parsers(commands: Any) -> None:
    """Register the commands; each sets `run`, which takes the arguments."""
    _add_diagnose(commands)
    _add_predict(commands)
    _add_score(commands)


def _add_diagnose(commands: Any) -> None:
    diagnose = commands.add_parser(
        "diagnose",
        help="bias curves and a recommended ladder for a saved emulator, or for your own denoiser",
        epilog="example: biasbound diagnose my_package.model:make_denoiser --data test.h5 --out diagnosis",
    )
    diagnose.add_argument(
        "what", metavar="WHAT", help="an emulator's folder, or package.module:factory of your own denoiser"
    )
    diagnose.add_argument("--data", type=Path, required=True, metavar="FILE", help="trajectories to measure on")
    diagnose.add_argument(
        "--schedule", type=Path, metavar="FILE", help="the schedule in use (an emulator has its own)"
    )
    diagnose.add_argument("--tau", type=float, default=1.05, help="bound on the biases (default 1.05)")
    diagnose.add_argument("--levels", type=int, default=24, help="of the grid (default 24)")
    diagnose.add_argument("--sigma-min", type=float, default=1e-3, help="its lowest level (default 0.001)")
    diagnose.add_argument("--pairs", type=int, default=128, help="pairs to measure on (default 128)")
    diagnose.add_argument("--draws", type=int, default=2, help="noise draws per bias (default 2)")
    diagnose.add_argument("--raw", action="store_true", help="your denoiser takes data as they are, not normalised")
    diagnose.add_argument("--out", type=Path, metavar="FOLDER", help="write diagnosis.json, ladder.json and a picture")
    add_stride(diagnose)
    diagnose.set_defaults(run=_diagnose)


def _add_predict(commands: Any) -> None:
    predict = commands.add_parser(
        "predict",
        help="roll a saved emulator out from the first frames of a file",
        epilog="example: biasbound predict runs/ks-demo/03-train/adaptive-v/seed-0/emulator --data test.h5 --out p.npy",
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


def _diagnose(given: argparse.Namespace) -> None:
    from biasbound.core.diagnose import diagnose, require_stable
    from biasbound.core.options import SearchOptions
    from biasbound.core.schedule import Schedule

    options = SearchOptions(tau=given.tau, levels=given.levels, sigma_min=given.sigma_min, draws=given.draws)
    subject = subject_of(given.what, given)
    schedule = subject.schedule if given.schedule is None else Schedule.load(given.schedule)
    how = {"transition": subject.transition, "start": subject.start}
    found = diagnose(subject.denoiser, subject.x, subject.y, options, schedule, **how)
    print(f"{given.what} on {len(subject.x)} pairs of {given.data}, τ = {given.tau}")
    print(f"{'sigma':>10} {'clean error':>12} {'own bias':>18}")
    for sigma, level in found.levels.items():
        mark = "stable" if level.own.mean <= given.tau else ""
        print(f"{sigma:10.4g} {level.clean.mean:12.4g} {level.own!s:>18}  {mark}")
    _along("the schedule in use", found.schedule, found.along_schedule, given.tau)
    _along("the recommended ladder", found.ladder, found.along_ladder, given.tau)
    if given.out is not None:
        _keep(given.out, found)
    require_stable(found)


def _along(name: str, schedule: Any, rows: Any, tau: float) -> None:
    if schedule is None:
        return
    forced = len(schedule.meta.get("forced", []))
    print(f"{name}: {len(schedule)} levels" + (f", {forced} of its steps forced beyond τ" if forced else ""))
    print(f"{'sigma':>10} {'two-step bias':>18} {'REB':>18}")
    for row in rows:
        two = "" if row.two_step is None else str(row.two_step)
        mark = "beyond τ" if row.reb.mean > tau else ""
        print(f"{row.sigma:10.4g} {two:>18} {row.reb!s:>18}  {mark}")


def _keep(folder: Path, found: Any) -> None:
    from biasbound._io import write_json
    from biasbound.report.diagnosis import diagnosis_figure
    from biasbound.report.figures import save_figure

    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "diagnosis.json", found.as_dict())
    written = [folder / "diagnosis.json"]
    if found.ladder is not None:
        found.ladder.save(folder / "ladder.json")
        written.append(folder / "ladder.json")
    written += save_figure(diagnosis_figure(found), folder / "diagnosis")
    print("wrote " + ", ".join(map(str, written)))
    if found.ladder is not None:
        print(f"next: biasbound schedule show {folder / 'ladder.json'}")


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

    stride = {"time": given.stride_time, "space": given.stride_space}
    truth = load(given.truth).stride(**stride)
    train = None if given.train is None else load(given.train).stride(**stride)
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
