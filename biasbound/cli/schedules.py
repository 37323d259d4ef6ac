"""`biasbound schedule …`: make, look at, draw, export and choose noise schedules."""

from __future__ import annotations

import argparse
import inspect
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from biasbound.cli import front

FORMATS = ("txt", "csv", "betas")


def add_parser(commands: Any) -> None:
    """Register `schedule` and its sub-commands; each sets `run`, which takes the arguments."""
    schedule = commands.add_parser("schedule", help="make, look at, draw, export and choose noise schedules")
    verbs = schedule.add_subparsers(title="commands", required=True, metavar="COMMAND")
    show = verbs.add_parser(
        "show", help="print a schedule file", epilog="example: biasbound schedule show ladder.json"
    )
    show.add_argument("file", metavar="FILE")
    show.set_defaults(run=_show)
    make = verbs.add_parser(
        "make",
        help="write a standard schedule, or one from your own levels",
        epilog="example: biasbound schedule make log-uniform -T 16 --sigma-min 0.01 --over sigma --out levels.json",
    )
    make.add_argument(
        "method", metavar="NAME", help="linear, cosine, sigmoid, log-uniform, another registered, or levels"
    )
    make.add_argument("-T", type=int, metavar="LEVELS", help="number of levels (default 20)")
    make.add_argument("--sigma-min", type=float, metavar="S", help="of log-uniform: lowest level (default 0.001)")
    make.add_argument("--sigma-max", type=float, metavar="S", help="highest level, below 1")
    make.add_argument(
        "--over", choices=("ratio", "sigma"), help="of log-uniform: spaced in log(σ/√ᾱ) (default), or in log σ (paper)"
    )
    make.add_argument("--sigma", metavar="S,S,…", help="of `levels`: the noise levels, increasing")
    make.add_argument("--out", required=True, metavar="FILE", help="JSON file to write")
    make.set_defaults(run=_make)
    plot = verbs.add_parser(
        "plot",
        help="draw schedules beside each other",
        epilog="example: biasbound schedule plot cosine.json ladder.json --out schedules.png",
    )
    plot.add_argument("files", nargs="+", metavar="FILE")
    plot.add_argument("--out", type=Path, required=True, metavar="PNG")
    plot.set_defaults(run=_plot)
    export = verbs.add_parser(
        "export",
        help="write a schedule for other programs: txt (a level a line), csv, or betas for diffusers' trained_betas",
        epilog="example: biasbound schedule export ladder.json --format csv --out ladder.csv",
    )
    export.add_argument("file", metavar="FILE")
    export.add_argument("--format", choices=FORMATS, default="txt")
    export.add_argument("--out", type=Path, required=True, metavar="FILE")
    export.set_defaults(run=_export)
    front.add_parser(verbs)


def _show(args: argparse.Namespace) -> None:
    from biasbound.core.noise import log_snr
    from biasbound.core.schedule import Schedule

    schedule = Schedule.load(args.file)
    note = {k: v for k, v in schedule.meta.items() if k != "steps"}
    print(f"{args.file}: {len(schedule)} levels ({len(schedule)} denoiser calls a step)")
    print("  ".join(f"{key}: {value}" for key, value in note.items()))
    print(f"{'t':>4} {'sigma':>12} {'log-SNR':>9}  two-step bias")
    steps = {step["to"]: step for step in schedule.meta.get("steps", [])}
    for t in range(schedule.top, -1, -1):
        sigma = schedule.level(t)
        step = steps.get(sigma, {})
        bias = "" if step.get("bias") is None else f"{step['bias']:.4f}"
        forced = " forced" if step.get("forced") else ""
        print(f"{t:4d} {sigma:12.6g} {log_snr(sigma):9.3f}  {bias}{forced}")


def _make(args: argparse.Namespace) -> None:
    from biasbound.core.schedule import Schedule

    options = {"sigma_min": args.sigma_min, "sigma_max": args.sigma_max, "over": args.over}
    told = {name: value for name, value in options.items() if value is not None}
    if (args.method == "levels") != (args.sigma is not None):
        raise ValueError("`schedule make levels` needs --sigma, and no other schedule takes it")
    if args.sigma is None:
        schedule = _standard(args.method, 20 if args.T is None else args.T, told)
    elif told or args.T is not None:
        given = "-T" if args.T is not None else _option(next(iter(told)))
        raise ValueError(f"`schedule make levels` takes its levels from --sigma alone: leave {given} out")
    else:
        schedule = Schedule(args.sigma.split(","), {"method": "levels"})
    schedule.save(args.out)
    print(f"wrote {args.out}: {len(schedule)} levels; look at it with: biasbound schedule show {args.out}")


def _standard(name: str, levels: int, told: dict[str, Any]) -> Any:
    """A registered schedule with these options; one that it does not take, or cannot keep, is refused."""
    from biasbound.core.schedule import SCHEDULES
    from biasbound.registry import allow, find

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


def _plot(args: argparse.Namespace) -> None:
    from matplotlib.figure import Figure

    from biasbound._io import replacing
    from biasbound.core.noise import log_snr
    from biasbound.core.schedule import Schedule

    if args.out.suffix not in (".png", ".pdf", ".svg"):
        raise ValueError(f"{args.out}: a picture ends with .png, .pdf or .svg")
    figure = Figure(figsize=(7, 0.9 + 0.45 * len(args.files)), layout="constrained")
    axes = figure.subplots()
    for row, file in enumerate(args.files):
        levels = [log_snr(s) for s in Schedule.load(file).sigma]
        axes.plot(levels, [row] * len(levels), "k.-", linewidth=0.8)
    names = [f"{Path(f).stem} ({len(Schedule.load(f))})" for f in args.files]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("log-SNR  (more noise ←   → less noise)")
    with replacing(args.out) as temporary:
        figure.savefig(temporary, format=args.out.suffix[1:], dpi=160)
    print(f"wrote {args.out}: {len(args.files)} schedules")


def _export(args: argparse.Namespace) -> None:
    from biasbound._io import write_text
    from biasbound.core.noise import alpha_bar, log_snr
    from biasbound.core.schedule import Schedule

    schedule = Schedule.load(args.file)
    if args.format == "txt":
        text = "".join(f"{s!r}\n" for s in schedule.sigma)
    elif args.format == "csv":
        rows = [f"{t},{s!r},{alpha_bar(s)!r},{log_snr(s)!r}" for t, s in enumerate(schedule.sigma)]
        text = "\n".join(["t,sigma,alpha_bar,log_snr", *rows]) + "\n"
    else:
        bars = [1.0, *(alpha_bar(s) for s in schedule.sigma)]
        betas = [1 - now / before for before, now in pairwise(bars)]
        text = json.dumps({"trained_betas": betas, "num_train_timesteps": len(betas)}, indent=1) + "\n"
    write_text(args.out, text)
    print(f"wrote {args.out}: {len(schedule)} levels as {args.format}")
