"""`biasbound fit FILE`: from trajectories on disk to an emulator, its scores and a page."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import fill
from typing import Any

from biasbound.cli.reading import reading
from biasbound.cli.streams import columns
from biasbound.fitting.request import Request
from biasbound.fitting.run import Fitted, fit_files, planned
from biasbound.registry import allow
from biasbound.report.tables import demo_table
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
    quiet = given.quiet or given.json
    with watching(quiet) as tell:
        fitted = fit_files(data, request, out, say=_sayer(request, quiet), tell=tell, manner=manner)
    if given.json:
        print(json.dumps(_told(fitted, out), default=str))
        return
    width = columns()
    for word in fitted.words:
        print(fill(f"- {word}", width or 10_000, subsequent_indent="  "))
    print(f"\n{demo_table(list(fitted.scores)).text(width)}")
    print(f"{out / 'emulator'}: the emulator, {fitted.chosen}")
    print(f"next: open {fitted.page}")


def _told(fitted: Fitted, out: Path) -> dict[str, Any]:
    """For scripts: what was made, and where."""
    places = {"emulator": out / "emulator", "results": out / "results.jsonl", "page": fitted.page}
    return {"chosen": fitted.chosen, "calls": fitted.emulator.nfe, "why": fitted.why, **places}


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
