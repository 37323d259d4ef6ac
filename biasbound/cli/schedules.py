"""`biasbound schedule …`: make, look at, draw, export and choose noise schedules."""

import argparse
import inspect
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from biasbound._io import replacing, write_text
from biasbound.core.noise import alpha_bar, log_snr
from biasbound.core.schedule import SCHEDULES, Schedule
from biasbound.registry import allow, find


def show(given: argparse.Namespace) -> None:
    """Print the levels from the top down, with the two-step bias of each step where a search wrote it."""
    schedule = Schedule.load(given.file)
    note = {k: v for k, v in schedule.meta.items() if k != "steps"}
    print(f"{given.file}: {len(schedule)} levels ({len(schedule)} denoiser calls a step)")
    print("  ".join(f"{key}: {value}" for key, value in note.items()))
    print(f"{'t':>4} {'sigma':>12} {'log-SNR':>9}  two-step bias")
    steps = {step["to"]: step for step in schedule.meta.get("steps", [])}
    for t in range(schedule.top, -1, -1):
        sigma = schedule.level(t)
        step = steps.get(sigma, {})
        bias = "" if step.get("bias") is None else f"{step['bias']:.4f}"
        forced = " forced" if step.get("forced") else ""
        print(f"{t:4d} {sigma:12.6g} {log_snr(sigma):9.3f}  {bias}{forced}")


def make(given: argparse.Namespace) -> None:
    """Write a registered schedule, or one of the user's own levels."""
    options = {"sigma_min": given.sigma_min, "sigma_max": given.sigma_max, "over": given.over}
    told = {name: value for name, value in options.items() if value is not None}
    if (given.method == "levels") != (given.sigma is not None):
        raise ValueError("`schedule make levels` needs --sigma, and no other schedule takes it")
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
    schedule = make(levels, **told)
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
    """Write the levels as text, as CSV, or as betas."""
    schedule = Schedule.load(given.file)
    if given.format == "txt":
        text = "".join(f"{s!r}\n" for s in schedule.sigma)
    elif given.format == "csv":
        rows = [f"{t},{s!r},{alpha_bar(s)!r},{log_snr(s)!r}" for t, s in enumerate(schedule.sigma)]
        text = "\n".join(["t,sigma,alpha_bar,log_snr", *rows]) + "\n"
    else:
        bars = [1.0, *(alpha_bar(s) for s in schedule.sigma)]
        betas = [1 - now / before for before, now in pairwise(bars)]
        text = json.dumps({"trained_betas": betas, "num_train_timesteps": len(betas)}, indent=1) + "\n"
    write_text(given.out, text)
    print(f"wrote {given.out}: {len(schedule)} levels as {given.format}")
