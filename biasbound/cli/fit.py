"""`biasbound fit FILE`: from trajectories on disk to an emulator, its scores and a page."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from biasbound.cli.reading import add_reading, reading
from biasbound.fitting.request import MINUTES, Prefer, Request
from biasbound.registry import allow


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "fit",
        help="an emulator of your own trajectories, compared and scored, in the time that you allow",
        epilog="example: biasbound fit KS.mat --variable uu --minutes 3",
    )
    told = {f.name: text for f, text in zip(fields(Request), _helps(), strict=True)}
    parser.add_argument("file", metavar="FILE", help="trajectories in any format that `biasbound data info` reads")
    parser.add_argument("--minutes", type=float, metavar="M", help=f"time allowed, all in all (default: {MINUTES:g})")
    parser.add_argument("--updates", type=int, metavar="N", help=told["updates"])
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="default: runs/fit-NAME")
    parser.add_argument("--prefer", choices=get_args(Prefer), default="accuracy", help=told["prefer"])
    parser.add_argument("--network", default="unet", metavar="NAME", help=told["network"])
    parser.add_argument("--history", type=int, default=1, metavar="H", help=told["history"])
    parser.add_argument("--seed", type=int, default=0, metavar="S", help=told["seed"])
    parser.add_argument("--valid", metavar="FILE", help="validation data; without them FILE is divided")
    parser.add_argument("--test", metavar="FILE", help="test data, beside --valid")
    parser.add_argument("--conditions", default="", metavar="NAMES", help="parameters or static fields to be given")
    parser.add_argument("--stride-time", type=int, default=1, metavar="N", help="learn every n-th frame")
    parser.add_argument("--stride-space", type=int, default=1, metavar="N", help="and every n-th grid point")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="trainings side by side")
    parser.add_argument("--device", default="cpu", help="where to train (default: cpu)")
    parser.add_argument(
        "--dry-run", action="store_true", help="read and check the data, say what would be done, and stop"
    )
    parser.add_argument("--quiet", action="store_true", help="show the result alone")
    add_reading(parser)
    parser.set_defaults(run=run)


def _helps() -> list[str]:
    """What the fields of a request mean, in its own words."""
    import ast
    import inspect

    body = ast.parse(inspect.getsource(Request)).body[0]
    assert isinstance(body, ast.ClassDef)
    texts = [one.value.value for one in body.body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)]
    return [" ".join(str(text).split()) for text in texts[1:]]


def run(args: argparse.Namespace) -> None:
    """Fit, and say what came out."""
    from biasbound.fitting.run import fit_files
    from biasbound.study.config import DataConfig
    from biasbound.study.execute import Manner
    from biasbound.study.view import watching

    allow([args.network])
    request = Request(args.minutes, args.updates, args.prefer, args.network, args.history, args.seed)
    name = Path(args.file).stem
    data = DataConfig(
        dataset=name,
        train=args.file,
        valid=args.valid,
        test=args.test,
        options=reading(args),
        stride_time=args.stride_time,
        stride_space=args.stride_space,
        conditions=tuple(filter(None, args.conditions.split(","))),
    )
    if args.dry_run:
        _dry(data, request)
        return
    out = args.out or Path("runs") / f"fit-{name}"
    manner = Manner(jobs=args.jobs, device=args.device)
    with watching(args.quiet) as tell:
        fitted = fit_files(data, request, out, say=_sayer(request, args.quiet), tell=tell, manner=manner)
    print(fitted.report)
    print(f"{out / 'emulator'}: the emulator, {fitted.chosen}")
    print(f"next: open {fitted.page}")


def _sayer(request: Request, quiet: bool) -> Callable[[str], None]:
    """Lines on stderr, with the time since the start and the time allowed."""
    begun = time.monotonic()
    allowed = "" if request.seconds is None else f" of {_clock(request.seconds)}"

    def say(text: str) -> None:
        if not quiet:
            print(f"[{_clock(time.monotonic() - begun)}{allowed}] {text}", file=sys.stderr, flush=True)

    return say


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _dry(data: Any, request: Request) -> None:
    """What is in the files, how they are divided, and how the time would be spent."""
    from biasbound.fitting.run import planned

    print("\n".join(planned(data, request)))
