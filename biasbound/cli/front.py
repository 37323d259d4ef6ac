"""`biasbound schedule front`: for every number of calls the ladder of least measured error, of one emulator on data."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from biasbound.cli.subject import Subject, add_network, add_stride, subject_of


def add_parser(verbs: Any) -> None:
    """Register `front`, which sets `run`."""
    front = verbs.add_parser(
        "front",
        help="the best ladder of an emulator for every number of calls, by its measured error",
        epilog="example: biasbound schedule front runs/ks-demo/03-train/adaptive-scaled-residual/seed-0/emulator --data valid.h5",
    )
    front.add_argument("emulator", metavar="EMULATOR", help="an emulator's folder")
    front.add_argument("--data", type=Path, required=True, metavar="FILE", help="trajectories to measure on")
    levels = front.add_mutually_exclusive_group()
    levels.add_argument(
        "--levels",
        type=int,
        metavar="N",
        help="a grid of N levels between the emulator's lowest and highest, beside its own (default: its own levels)",
    )
    levels.add_argument("--schedule", type=Path, metavar="FILE", help="choose among the levels of this schedule file")
    front.add_argument("--calls", type=int, default=6, help="longest ladder (default 6)")
    front.add_argument("--pairs", type=int, default=128, help="pairs to measure on (default 128)")
    front.add_argument("--draws", type=int, default=2, help="noise draws per pair (default 2)")
    front.add_argument("--seed", type=int, default=0, help="of the noise (default 0)")
    front.add_argument("--out", type=Path, metavar="JSON", help="write the front here")
    front.add_argument("--take", metavar="K", help="write the ladder with K calls, or the `best`, to --ladder")
    front.add_argument("--ladder", type=Path, metavar="FILE", help="schedule file to write")
    add_network(front)
    add_stride(front)
    front.set_defaults(run=_front)


def _front(given: argparse.Namespace) -> None:
    from biasbound._io import write_json
    from biasbound.core.front import at_most, best_schedule, inference_error, optimal_schedules
    from biasbound.study.stages.material import seeded

    if (given.take is None) != (given.ladder is None):
        raise ValueError("--take K and --ladder FILE belong together: which ladder, and where it is written")
    if not Path(given.emulator).is_dir():
        raise ValueError(f"{given.emulator} is not an emulator's folder")
    subject = subject_of(given.emulator, given)
    own, how = subject.schedule, {"draws": given.draws, "transition": subject.transition}
    on = (subject.denoiser, subject.x, subject.y)
    levels = _levels(subject, given)
    front = optimal_schedules(*on, levels, given.calls, generator=seeded(given.seed), **how)
    best = len(best_schedule(front))
    chosen = None if given.take is None else _taken(given.take, front, best)
    on_front = len(own) in front and front[len(own)][0] == own
    error = front[len(own)][1] if on_front else inference_error(*on, own, generator=seeded(given.seed), **how)
    print(f"{given.emulator} on {len(subject.x)} pairs of {given.data}, ladders of {len(levels)} levels")
    print(f"{'calls':>5} {'error':>20}  levels")
    for k, (ladder, found) in front.items():
        marks = ["best"] * (k == best) + ["its own ladder"] * (on_front and k == len(own))
        marks += ["no gain over fewer calls"] * (k > 1 and at_most(front, k)[0] != ladder)
        _line(k, ladder, found, ", ".join(marks))
    if not on_front:
        _line(len(own), own, error, "its own ladder")
    if given.out is not None:
        told = [{"calls": k, "sigma": ladder.sigma, **_told(found)} for k, (ladder, found) in front.items()]
        about = {"emulator": given.emulator, "data": str(given.data), "pairs": len(subject.x), **how, "levels": levels}
        mine = {"calls": len(own), "sigma": own.sigma, **_told(error)}
        write_json(given.out, {"chosen": len(own), "best": best, "front": told, "own": mine, "about": about})
        print(f"wrote {given.out}")
    if chosen is not None:
        _write(given.ladder, *front[chosen])


def _levels(subject: Subject, given: argparse.Namespace) -> list[float]:
    """What ladders are made of: the emulator's own levels are always among a grid's, and the top is its own."""
    from biasbound.core.schedule import Schedule, log_uniform

    own = subject.schedule.sigma
    if given.schedule is not None:
        return list(Schedule.load(given.schedule).sigma)
    if given.levels is None:
        return list(own)
    if given.levels < 2 or len(own) < 2:
        raise ValueError(
            f"a grid needs at least 2 levels, and an emulator with 2 for its ends: got --levels {given.levels} and "
            f"{len(own)} levels of the emulator; give the levels with --schedule FILE"
        )
    return sorted({*log_uniform(given.levels, own[0], own[-1]).sigma, *own})


def _taken(wanted: str, front: Any, best: int) -> int:
    """The number of calls that --take asks for."""
    if wanted == "best":
        return best
    if not wanted.isdecimal() or int(wanted) not in front:
        raise ValueError(f"--take is a number of calls from 1 to {max(front)} or `best`, got {wanted!r}")
    return int(wanted)


def _line(calls: int, ladder: Any, error: Any, mark: str) -> None:
    levels = " ".join(f"{s:.4g}" for s in ladder.sigma)
    print(f"{calls:5d} {error!s:>20}  {levels}{f'  ({mark})' if mark else ''}")


def _told(error: Any) -> dict[str, float | None]:
    """Mean and standard error; a single pair has none, and JSON no infinity."""
    return {"mean": error.mean, "stderr": error.stderr if math.isfinite(error.stderr) else None}


def _write(path: Path, ladder: Any, error: Any) -> None:
    from biasbound.core.schedule import Schedule

    Schedule(ladder.sigma, {"method": "front", "error": _told(error)}).save(path)
    print(f"wrote {path}: {len(ladder)} levels; look at it with: biasbound schedule show {path}")
