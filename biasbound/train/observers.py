"""Followers of a training: a log of rows, TensorBoard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ConfigDict
from typing_extensions import TypedDict

from biasbound._io import read_lines, write_lines
from biasbound.train.trainer import Report

__all__ = ["JsonlLog", "LogLine", "TensorBoard"]


class LogLine(TypedDict):
    """A row of log.jsonl: the update that it was written after, and what was measured then."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]
    update: int


class JsonlLog:
    """One JSON row per report. A resumed run drops the rows beyond its checkpoint, so that none comes twice."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def start(self, update: int, total: int) -> None:
        rows: list[LogLine] = read_lines(self.path, LogLine, torn=True) if self.path.exists() else []
        write_lines(self.path, [row for row in rows if row["update"] <= update])

    def report(self, report: Report) -> None:
        row = {"update": report.update, "loss": report.loss, "lr": report.lr, **report.metrics}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def stop(self) -> None:
        pass


class TensorBoard:
    """The same numbers for TensorBoard (`pip install 'biasbound[log]'`)."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError("TensorBoard is not installed; pip install 'biasbound[log]'") from error
        self._make: Any = lambda update: SummaryWriter(str(folder), purge_step=update + 1)
        self._writer: Any = None

    def start(self, update: int, total: int) -> None:
        self._writer = self._make(update)

    def report(self, report: Report) -> None:
        for name, value in {"loss": report.loss, "lr": report.lr, **report.metrics}.items():
            self._writer.add_scalar(name, value, report.update)

    def stop(self) -> None:
        self._writer.close()
