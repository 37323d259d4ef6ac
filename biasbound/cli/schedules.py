"""`biasbound schedule …`: make, look at, draw, exchange and choose noise schedules."""

import argparse
import inspect
from pathlib import Path
from typing import Any

from biasbound._io import replacing, write_json, write_text
from biasbound.cli.subject import Subject, subject_of
from biasbound.core.front import at_most, best_schedule, inference_error, optimal_schedules
from biasbound.core.interop.text import TEXTS, read
from biasbound.core.noise import log_snr
from biasbound.core.schedule import LEVELS, SCHEDULES, Schedule, log_uniform
from biasbound.registry import allow, find
from biasbound.study.stages.material import seeded
from biasbound.study.stages.search import told_of

FLOAT32 = 1e-2  # below, σ = √(1 − ᾱ) of ᾱ in float32 is off by one part in ten thousand and more


def show(given: argparse.Namespace) -> None:
    """Print the levels from the top down, with the two-step bias of each step where a search wrote it."""
    schedule = Schedule.load(given.file)
    note = {k: v for k, v in schedule.meta.items() if k != "steps"}
    print(f"{given.file}: {len(schedule)} levels ({len(schedule)} denoiser calls a step)")
    print("  ".join(f"{key}: {value}" for key, value in note.items()))
    print(f"{'t':>4} {'sigma':>12} {'log-SNR':>9}  two-step bias")
    steps = _steps(schedule)
    for t in range(schedule.top, -1, -1):
        sigma = schedule.level(t)
        step = steps.get(sigma, {})
        bias = f"{step['bias']:.4f}" if isinstance(step.get("bias"), float | int) else ""
        forced = " forced" if step.get("forced") else ""
        print(f"{t:4d} {sigma:12.6g} {log_snr(sigma):9.3f}  {bias}{forced}")


def _steps(schedule: Schedule) -> dict[Any, dict[str, Any]]:
    """What a search noted on the step to each level; other writers mean other things by this name."""
    told = schedule.meta.get("steps")
    found = [step for step in told if isinstance(step, dict)] if isinstance(told, list) else []
    return {step["to"]: step for step in found if isinstance(step.get("to"), float | int)}


def make(given: argparse.Namespace) -> None:
    """Write a registered schedule, or one of the user's own levels."""
    options = {"sigma_min": given.sigma_min, "sigma_max": given.sigma_max, "over": given.over}
    told = {name: value for name, value in options.items() if value is not None}
    if (given.method == "levels") != (given.sigma is not None):
        raise ValueError("`schedule make levels` needs --sigma, and no other schedule takes it")
    if (given.T or 0) > LEVELS:
        raise ValueError(f"-T {given.T} is more than any chain visits: give at most {LEVELS:,} levels")
    if given.sigma is None:
        schedule = _standard(given.method, 20 if given.T is None else given.T, told)
    elif told or given.T is not None:
        beside = "-T" if given.T is not None else _option(next(iter(told)))
        raise ValueError(f"`schedule make levels` takes its levels from --sigma alone: leave {beside} out")
    else:
        schedule = Schedule(given.sigma.split(","), {"method": "levels"})
    schedule.save(given.out)
    print(f"wrote {given.out}: {len(schedule)} levels; look at it with: biasbound schedule show {given.out}")


def _standard(name: str, levels: int, told: dict[str, Any]) -> Any:
    """A registered schedule with these options; one that it does not take, or cannot keep, is refused."""
    allow([name])
    make: Any = find(SCHEDULES, name)
    takes = inspect.signature(make).parameters
    if unknown := [option for option in told if option not in takes]:
        raise ValueError(f"the {name} schedule has no {_option(unknown[0])}: leave it out")
    try:
        schedule = make(levels, **told)
    except TypeError as error:  # of something else that the user named
        raise ValueError(f"{name} makes no schedule of a number of levels: {error}") from error
    if not isinstance(schedule, Schedule):
        raise ValueError(f"{name} makes no schedule: it returned {type(schedule).__name__}")
    ends = {"sigma_min": schedule.sigma[0], "sigma_max": schedule.sigma[-1]}
    for option, found in ends.items():
        if told.get(option, found) != found:
            raise ValueError(
                f"the {name} schedule of {levels} levels ends at σ = {found:.6g} and cannot have "
                f"{_option(option)} {told[option]:g}: it only replaces levels beyond it"
            )
    return schedule


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def plot(given: argparse.Namespace) -> None:
    """One line of points per schedule, over log-SNR."""
    from matplotlib.figure import Figure

    if given.out.suffix not in (".png", ".pdf", ".svg"):
        raise ValueError(f"{given.out}: a picture ends with .png, .pdf or .svg")
    figure = Figure(figsize=(7, 0.9 + 0.45 * len(given.files)), layout="constrained")
    axes = figure.subplots()
    for row, file in enumerate(given.files):
        levels = [log_snr(s) for s in Schedule.load(file).sigma]
        axes.plot(levels, [row] * len(levels), "k.-", linewidth=0.8)
    names = [f"{Path(f).stem} ({len(Schedule.load(f))})" for f in given.files]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("log-SNR  (more noise ←   → less noise)")
    with replacing(given.out) as temporary:
        figure.savefig(temporary, format=given.out.suffix[1:], dpi=160)
    print(f"wrote {given.out}: {len(given.files)} schedules")


def export(given: argparse.Namespace) -> None:
    """Write the levels for another program."""
    schedule = Schedule.load(given.file)
    write_text(given.out, TEXTS[given.format](schedule))
    print(f"wrote {given.out}: {len(schedule)} levels as {given.format}")
    if given.format in ("betas", "diffusers") and schedule.sigma[0] < FLOAT32:
        print(
            f"diffusers keeps its table in float32, which is too coarse for σ_0 = {schedule.sigma[0]:.3g}: "
            "use Schedule.load(…).to_diffusers() there"
        )


def import_(given: argparse.Namespace) -> None:
    """Write our own schedule file from one of another program."""
    schedule = read(given.file)
    schedule.save(given.out)
    print(f"wrote {given.out}: {len(schedule)} levels; look at it with: biasbound schedule show {given.out}")


def front(given: argparse.Namespace) -> None:
    """Print for every number of calls the ladder of least measured error, and the emulator's own; write what was asked."""
    if (given.take is None) != (given.ladder is None):
        raise ValueError("--take K and --ladder FILE belong together: which ladder, and where it is written")
    if not Path(given.emulator).is_dir():
        raise ValueError(f"{given.emulator} is not an emulator's folder")
    subject = subject_of(given.emulator, given)
    if given.score == "crps" and given.draws < 2:
        raise ValueError(f"--score crps compares samples with each other: give --draws 2 or more, not {given.draws}")
    own, how = subject.schedule, {"draws": given.draws, "transition": subject.transition, "score": given.score}
    on = (subject.denoiser, subject.x, subject.y)
    levels = _levels(subject, given)
    front = optimal_schedules(*on, levels, given.calls, generator=seeded(given.seed), **how)
    best = len(best_schedule(front))
    chosen = None if given.take is None else _taken(given.take, front, best)
    on_front = len(own) in front and front[len(own)][0] == own
    error = front[len(own)][1] if on_front else inference_error(*on, own, generator=seeded(given.seed), **how)
    print(f"{given.emulator} on {len(subject.x)} pairs of {given.data}, ladders of {len(levels)} levels")
    print(f"{'calls':>5} {given.score:>20}  levels")
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
