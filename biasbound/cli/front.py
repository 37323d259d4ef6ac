"""`biasbound schedule front`: for every number of calls the ladder of least measured error, of one emulator on data."""

import argparse
from pathlib import Path
from typing import Any

from biasbound._io import write_json
from biasbound.cli.subject import Subject, subject_of
from biasbound.core.front import at_most, best_schedule, inference_error, optimal_schedules
from biasbound.core.schedule import Schedule, log_uniform
from biasbound.study.stages.material import seeded
from biasbound.study.stages.search import told_of


def front(given: argparse.Namespace) -> None:
    """Print the front, mark the emulator's own ladder, and write what was asked for."""
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
        told = [{"calls": k, "sigma": ladder.sigma, **told_of(found)} for k, (ladder, found) in front.items()]
        about = {"emulator": given.emulator, "data": str(given.data), "pairs": len(subject.x), **how, "levels": levels}
        mine = {"calls": len(own), "sigma": own.sigma, **told_of(error)}
        write_json(given.out, {"chosen": len(own), "best": best, "front": told, "own": mine, "about": about})
        print(f"wrote {given.out}")
    if chosen is not None:
        ladder, found = front[chosen]
        Schedule(ladder.sigma, {"method": "front", "error": told_of(found)}).save(given.ladder)
        look = f"look at it with: biasbound schedule show {given.ladder}"
        print(f"wrote {given.ladder}: {len(ladder)} levels; {look}")


def _levels(subject: Subject, given: argparse.Namespace) -> list[float]:
    """What ladders are made of: the emulator's own levels are always among a grid's, and the top is its own."""
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
