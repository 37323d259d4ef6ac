"""The `biasbound` command. Nothing heavy is imported before it is known which command runs."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from biasbound.cli.parser import command_parser
from biasbound.cli.wish import STUDY_COMMANDS, wish_of
from biasbound.study.parsing import to_yaml


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; bad input ends with one sentence on stderr and exit code 2."""
    argv = sys.argv[1:] if argv is None else list(argv)
    code = 0
    try:
        if argv and argv[0] in STUDY_COMMANDS:
            code = _study(argv[0], argv[1:])
        else:
            given = command_parser(argv).parse_args(argv)
            module, _, name = given.run.partition(":")
            getattr(import_module(module), name)(given)
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


def _study(verb: str, words: list[str]) -> int:
    """One of `STUDY_COMMANDS`; a record is only ever scored again."""
    if verb == "evaluate" and words and _is_record(Path(words[0])):
        from biasbound.cli.show import rescored

        return rescored(Path(words[0]), words[1:])
    wish = wish_of(verb, words)
    if wish.shown:
        print(to_yaml(wish.config), end="")
        return 0
    from biasbound.cli.study import study

    return study(wish)


def _is_record(folder: Path) -> bool:
    """Whether a folder holds kept emulators with their rows, and is no run."""
    kept = all((folder / name).exists() for name in ("config.yaml", "results.jsonl"))
    return kept and not (folder / "run.json").exists()
