"""Followers of a training: a progress bar, a log of rows, TensorBoard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from biasbound._io import write_text
from biasbound.train.trainer import Report

__all__ = ["JsonlLog", "ProgressBar", "TensorBoard", "read_rows"]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a log; a last line that a killed process left unfinished is dropped."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


class JsonlLog:
    """One JSON row a report. A resumed run drops the rows beyond its checkpoint, so that none comes twice."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def start(self, update: int, total: int) -> None:
        rows = read_rows(self.path) if self.path.exists() else []
        kept = [json.dumps(row) + "\n" for row in rows if row["update"] <= update]
        write_text(self.path, "".join(kept))

    def report(self, report: Report) -> None:
        row = {"update": report.update, "loss": report.loss, "lr": report.lr, **report.metrics}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def stop(self) -> None:
        pass


class ProgressBar:
    """Loss, updates a second and time left, on the terminal."""

    def __init__(self, name: str, console: Console | None = None) -> None:
        self.name = name
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
        )
        self._task = self._bar.add_task(name, note="")

    def start(self, update: int, total: int) -> None:
        self._bar.reset(self._task, total=total, completed=update, note="")
        self._bar.start()

    def report(self, report: Report) -> None:
        speed = self._bar.tasks[0].speed
        rate = "" if not speed else f", {speed:.1f} updates/s"
        note = f"loss {report.loss:.3g}{rate}"
        self._bar.update(self._task, completed=report.update, note=note)

    def stop(self) -> None:
        self._bar.stop()


class TensorBoard:
    """The same numbers for TensorBoard (`pip install 'biasbound[log]'`)."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError(
                "TensorBoard is not installed; pip install 'biasbound[log]'"
            ) from error
        self._make: Any = lambda update: SummaryWriter(str(folder), purge_step=update + 1)
        self._writer: Any = None

    def start(self, update: int, total: int) -> None:
        self._writer = self._make(update)

    def report(self, report: Report) -> None:
        for name, value in {"loss": report.loss, "lr": report.lr, **report.metrics}.items():
            self._writer.add_scalar(name, value, report.update)

    def stop(self) -> None:
        self._writer.close()
