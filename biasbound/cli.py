"""The `biasbound` command. Nothing heavy is imported before it is known which command runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from . import __version__
from .commands import STUDY_COMMANDS, study
from .data.commands import add_parser as add_data_parser

__all__ = ["main"]


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; `{self.prog} --help` shows how to call it\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="biasbound",
        description="Diffusion emulators for PDEs with bias-constrained noise schedules.",
    )
    parser.add_argument("--version", action="version", version=f"biasbound {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    add_data_parser(commands)
    for verb, (_, what, _) in STUDY_COMMANDS.items():
        commands.add_parser(
            verb, help=what, add_help=False
        )  # `main` hands them over before this parser
    state = commands.add_parser(
        "status", help="where a run stands", epilog="example: biasbound status runs/ks-demo"
    )
    state.add_argument("folder", metavar="RUN", type=Path)
    state.set_defaults(run=_status)
    schedule = commands.add_parser("schedule", help="make and look at noise schedules")
    verbs = schedule.add_subparsers(title="commands", required=True, metavar="COMMAND")
    show = verbs.add_parser(
        "show", help="print a schedule file", epilog="example: biasbound schedule show ladder.json"
    )
    show.add_argument("file", metavar="FILE")
    show.set_defaults(run=_show)
    make = verbs.add_parser(
        "make",
        help="write a standard schedule",
        epilog="example: biasbound schedule make cosine -T 20 --out cosine.json",
    )
    make.add_argument("method", choices=("linear", "cosine", "sigmoid", "log_uniform"))
    make.add_argument(
        "-T", type=int, default=20, metavar="LEVELS", help="number of levels (default 20)"
    )
    make.add_argument("--sigma-max", type=float, default=None, help="highest level, below 1")
    make.add_argument("--out", required=True, metavar="FILE", help="JSON file to write")
    make.set_defaults(run=_make)
    return parser


def _status(args: argparse.Namespace) -> None:
    from .commands import status

    status(args.folder)


def _show(args: argparse.Namespace) -> None:
    from .noise import Schedule, log_snr

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
        print(
            f"{t:4d} {sigma:12.6g} {log_snr(sigma):9.3f}  {bias}{' forced' if step.get('forced') else ''}"
        )


def _make(args: argparse.Namespace) -> None:
    from . import noise

    limits = {} if args.sigma_max is None else {"sigma_max": args.sigma_max}
    schedule: noise.Schedule = getattr(noise, args.method)(args.T, **limits)
    schedule.save(args.out)
    print(
        f"wrote {args.out}: {len(schedule)} levels; look at it with: biasbound schedule show {args.out}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; bad input ends with one sentence on stderr and exit code 2."""
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        if argv and argv[0] in STUDY_COMMANDS:
            return study(argv[0], argv[1:])
        args = _parser().parse_args(argv)
        args.run(args)
    except (ValueError, OSError, ArithmeticError, ImportError) as error:
        print(f"biasbound: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("biasbound: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
