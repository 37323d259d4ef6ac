"""`biasbound fit FILE`: from trajectories on disk to an emulator, its scores and a page."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from biasbound.cli.reading import reading
from biasbound.fitting.request import Request
from biasbound.fitting.run import fit_files, planned
from biasbound.registry import allow
from biasbound.study.config import DataConfig
from biasbound.study.execute import Manner
from biasbound.study.view import watching


def fit(given: argparse.Namespace) -> None:
    """Fit, and say what came out."""
    allow([given.network])
    request = Request(given.minutes, given.updates, given.prefer, given.network, given.history, given.seed)
    name = Path(given.file).stem
    data = DataConfig(
        dataset=name,
        train=given.file,
        valid=given.valid,
        test=given.test,
        options=reading(given).given(),
        stride_time=given.stride_time,
        stride_space=given.stride_space,
        conditions=tuple(filter(None, given.conditions.split(","))),
    )
    if given.dry_run:
        print("\n".join(planned(data, request)))
        return
    out = given.out or Path("runs") / f"fit-{name}"
    manner = Manner(jobs=given.jobs, device=given.device)
    with watching(given.quiet) as tell:
        fitted = fit_files(data, request, out, say=_sayer(request, given.quiet), tell=tell, manner=manner)
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
