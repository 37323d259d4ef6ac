"""The `biasbound` command. Nothing heavy is imported before it is known which command runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from biasbound import __version__
from biasbound.cli import diagnose, fit, schedules, tools
from biasbound.cli.data import add_parser as add_data_parser
from biasbound.cli.show import status
from biasbound.cli.study import compare, study
from biasbound.cli.wish import STUDY_COMMANDS


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; `{self.prog} --help` shows how to call it\n")


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Commands in the order of the data flow."""
    parser = _Parser(
        prog="biasbound", description="Diffusion emulators for PDEs with bias-constrained noise schedules."
    )
    parser.add_argument("--version", action="version", version=f"biasbound {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    fit.add_parser(commands)
    add_data_parser(commands, words)
    for verb, (_, what, _) in STUDY_COMMANDS.items():
        commands.add_parser(verb, help=what, add_help=False)  # `main` hands them over before
    state = commands.add_parser("status", help="where a run stands", epilog="example: biasbound status runs/ks-demo")
    state.add_argument("folder", metavar="RUN", type=Path)
    state.set_defaults(run=lambda args: status(args.folder))
    several = commands.add_parser(
        "compare",
        help="several runs in one table, common figures and one page",
        epilog="example: biasbound compare runs/a runs/b --out comparison",
    )
    several.add_argument("folders", metavar="RUN", type=Path, nargs="+")
    several.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    several.set_defaults(run=lambda args: compare(args.folders, args.out))
    diagnose.add_parser(commands)
    tools.add_parsers(commands)
    schedules.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; bad input ends with one sentence on stderr and exit code 2."""
    argv = sys.argv[1:] if argv is None else list(argv)
    code = 0
    try:
        if argv and argv[0] in STUDY_COMMANDS:
            code = study(argv[0], argv[1:])
        else:
            args = _parser(argv).parse_args(argv)
            args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # `biasbound status RUN | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError, ArithmeticError, ImportError) as error:
        print(f"biasbound: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("biasbound: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
