"""The `biasbound` command. Nothing heavy is imported before it is known which command runs.

Exit codes: 0 done, 2 refused in one sentence, 70 an error that nobody foresaw (a bug, with a report), 130 interrupted,
141 nobody reads the output any more.
"""

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from biasbound.cli.streams import prepared, report_of, say, silence

WELCOME = """\
Diffusion emulators for PDEs, with as few noise levels as they need.

Fit an emulator to your own trajectories:
  biasbound fit waves.h5 --minutes 3

Diagnose a diffusion model that you already have:
  biasbound diagnose EMULATOR --data waves.h5 --out diagnosis

Compare several methods on a small flow, in a few minutes:
  biasbound run --preset ks-demo

waves.h5 can also be .npy, .mat, NetCDF, Zarr and more: `biasbound data info
FILE` says what a file holds. `biasbound --help` lists all commands, and
`biasbound COMMAND --help` the options of one."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; bad input ends with one sentence on stderr and exit code 2."""
    argv = sys.argv[1:] if argv is None else list(argv)
    before, hooks = (sys.stdout, sys.stderr), (sys.unraisablehook, sys.excepthook)
    try:
        # What HDF5's objects print on a full disk while they are destroyed: the error itself is told below.
        sys.unraisablehook, sys.excepthook = (lambda told: None), (lambda *told: None)
        prepared()
        code = _called(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `biasbound status RUN | head`: the reader has seen enough
        silence()
        return 141
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one has nothing left to stop
        say("interrupted; the same command goes on from here")
        return 130
    except (ValueError, OSError, ArithmeticError, ImportError) as error:
        say(str(error))
        _ended_at_once(error)
        return 2
    except MemoryError as error:
        say(
            f"there is not enough memory for this ({error or 'the last request failed'}); ask for less, or use less data"
        )
        return 2
    except RecursionError:  # a kind of RuntimeError
        say("something in the input is nested too deeply; simplify it")
        return 2
    except RuntimeError as error:  # torch and threads have no MemoryError
        if not any(sign in str(error) for sign in ("alloc", "start new thread")):
            return _unforeseen(error, argv)
        say(f"there is not enough memory for this ({str(error)[:100]}); ask for less, or use less data")
        return 2
    except Exception as error:  # noqa: BLE001 - the last line of defence
        return _unforeseen(error, argv)
    finally:
        sys.unraisablehook, sys.excepthook = hooks
        sys.stdout, sys.stderr = before if None not in before else (sys.stdout, sys.stderr)


def _ended_at_once(error: Exception) -> None:
    """After HDF5 failed to write, the process ends before HDF5 cleans up, which crashes it."""
    from biasbound._io import WriteFailed

    if isinstance(error, WriteFailed):
        sys.stdout.flush()
        os._exit(2)


def _unforeseen(error: Exception, argv: list[str]) -> int:
    """The last line of defence: one sentence, and the whole story in a file."""
    what = f"{type(error).__name__}: {error}"[:200]
    say(f"an internal error ({what}), which is a bug: nothing that was finished is lost; {report_of(error, argv)}")
    return 70


def _called(argv: list[str]) -> int:
    """Do what the words say; what they need is imported now, where an interrupt is met."""
    if not argv:
        print(WELCOME)
        return 0
    for word in argv:
        if word.startswith("-") and word.endswith("=--"):  # argparse drops the value, and the option stays as it was
            raise ValueError(
                f"{word.removesuffix('=--')} was given '--', which is no value: give one, or leave it out"
            )
    from biasbound.cli.wish import STUDY_COMMANDS

    if argv and argv[0] in STUDY_COMMANDS:
        return _study(argv[0], argv[1:])
    from biasbound.cli.parser import command_parser

    given = command_parser(argv).parse_args(argv)
    from biasbound.cli.reading import apart

    apart(vars(given))
    module, _, name = given.run.partition(":")
    getattr(import_module(module), name)(given)
    return 0


def _study(verb: str, words: list[str]) -> int:
    """One of `STUDY_COMMANDS`; a record is only ever scored again."""
    from biasbound.cli.wish import wish_of

    if verb == "evaluate" and words and _is_record(Path(words[0])):
        from biasbound.cli.show import rescored

        return rescored(Path(words[0]), words[1:])
    wish = wish_of(verb, words)
    if wish.shown:
        from biasbound.study.parsing import to_yaml

        print(to_yaml(wish.config), end="")
        return 0
    from biasbound.cli.study import study

    return study(wish)


def _is_record(folder: Path) -> bool:
    """Whether a folder holds kept emulators with their rows, and is no run."""
    kept = all((folder / name).exists() for name in ("config.yaml", "results.jsonl"))
    return kept and not (folder / "run.json").exists()
