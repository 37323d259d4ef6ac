"""One emulated step as a program that other software runs: torch.export's .pt2, and ONNX by way of it.

    x            the state (B, C, *N), or the last H frames (B, H, C, *N), in physical units; for a reconstruction what
                 was observed, with NaN elsewhere
    noise        (K, B, C, *N), what the step would draw from N(0, I) in this order; left out where K = 0
    conditions   (B, P, *N), what only informs; left out where P = 0

The answer is that of `Emulator.step`, which is checked before the file is put in place. The batch B is free, all else is
as the network was built. A .pt2 file is a zip archive with a loader of its own: it is written here and never read.
"""

from __future__ import annotations

import json
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from biasbound._io import replacing, spare_data
from biasbound.core.noise import GivenNoise
from biasbound.models.tasks.reconstruct import Reconstruct
from biasbound.registry import extra

__all__ = ["EXPORTS", "Step", "export_step"]

TOLERANCE = 1e-5  # of the largest value: what an exported step may differ from ours by round-off


class Step(nn.Module):
    """x^{k+1} = step(x^k, noise, conditions) of an emulator, with the noise as an input."""

    def __init__(self, emulator: Any) -> None:
        super().__init__()
        self.model, self.emulator = emulator.model, emulator

    def forward(self, x: Tensor, noise: Tensor | None = None, conditions: Tensor | None = None) -> Tensor:
        told = self.emulator.encoded(x, conditions)
        made: Tensor = self.emulator.decoded(self.model.advance(told, None if noise is None else GivenNoise(noise)))
        return made


def export_step(
    emulator: Any, path: str | os.PathLike[str], kind: str = "torch", grid: Sequence[int] | None = None
) -> None:
    """Write the step of an emulator for fields on `grid`, by default the one that its network was built for."""
    if kind not in EXPORTS:
        raise ValueError(f"an emulator is exported as {' or '.join(EXPORTS)}, not as {kind!r}")
    step = Step(emulator).eval()
    inputs = _inputs(emulator, tuple(grid or _grid(emulator)))
    batch = torch.export.Dim("batch", min=1)
    dims = {name: {1 if name == "noise" else 0: batch} for name in inputs}
    with torch.no_grad(), _quiet():
        wanted = step(**inputs)  # also fails here where the grid is wrong
        try:
            program = torch.export.export(step, (), inputs, dynamic_shapes=dims)
        except Exception as error:
            raise ValueError(f"this emulator's network cannot be exported: {_line(error)}") from error
        with replacing(spare_data(path)) as temporary:
            answer = EXPORTS[kind](program, inputs, temporary, _about(emulator, inputs))
            off = _off(answer, wanted)
            if not off < TOLERANCE:
                raise ValueError(f"{path} was not written: its answers are off by {off:.3g} of the largest value")


def _off(answer: Tensor, wanted: Tensor) -> float:
    """The largest difference, in units of the largest value; NaN is right where NaN is wanted, and nowhere else."""
    if not torch.equal(answer.isfinite(), wanted.isfinite()):
        return math.inf
    difference, size = ((t.nan_to_num(0, 0, 0)).abs().max() for t in (answer - wanted, wanted))
    return float(difference / size.clamp(min=1e-30))


def _torch(program: Any, inputs: dict[str, Tensor], path: Path, about: dict[str, Any]) -> Tensor:
    with path.open("wb") as file:
        torch.export.save(program, file, extra_files={"biasbound.json": json.dumps(about)})
    answer: Tensor = program.module()(**inputs)
    return answer


def _onnx(program: Any, inputs: dict[str, Tensor], path: Path, about: dict[str, Any]) -> Tensor:
    runtime = extra("onnxruntime", "an export as ONNX", "export")
    extra("onnxscript", "an export as ONNX", "export")
    write: Any = torch.onnx.export
    names = {"input_names": list(inputs), "output_names": ["y"]}
    try:
        made = write(program, (), kwargs=inputs, dynamo=True, verbose=False, **names)
        made.model.metadata_props["biasbound"] = json.dumps(about)
        made.save(str(path), external_data=False)
        session = runtime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
        (answer,) = session.run(None, {name: value.numpy() for name, value in inputs.items()})
    except Exception as error:
        raise ValueError(
            f"this emulator's network has no form in ONNX ({_line(error)}): export it as torch"
        ) from error
    return torch.from_numpy(answer)


EXPORTS: dict[str, Callable[..., Tensor]] = {"torch": _torch, "onnx": _onnx}


def _inputs(emulator: Any, grid: tuple[int, ...]) -> dict[str, Tensor]:
    """Two samples of every input; what a step draws is counted on zeros."""
    task, channels = emulator.model.frame.task, len(emulator.channels)
    chance = torch.Generator().manual_seed(0)
    past = () if task.past == 1 else (task.past,)
    mean = torch.tensor(emulator.normalisation.mean).reshape(-1, *[1] * len(grid))
    std = torch.tensor(emulator.normalisation.std).reshape(-1, *[1] * len(grid))
    x = mean + std * torch.randn(2, *past, channels, *grid, generator=chance)
    if isinstance(task, Reconstruct) and not task.fixed:
        x = x.where(task.seen(x)[1], torch.nan)
    inputs, counted = {"x": x}, GivenNoise(None)
    if emulator.conditions:
        inputs["conditions"] = torch.randn(2, len(emulator.conditions), *grid, generator=chance)
    with torch.no_grad():
        y = emulator.model.advance(emulator.encoded(x, inputs.get("conditions")), counted)
    if counted.used:
        inputs["noise"] = torch.randn(counted.used, *y.shape, generator=chance)
    return inputs


def _grid(emulator: Any) -> tuple[int, ...]:
    if emulator.mask is not None:
        return tuple(emulator.mask.shape)
    found: tuple[int, ...] = getattr(getattr(emulator.model.net, "spec", None), "grid", ())
    if not found:
        raise ValueError("the emulator does not say which grid its network was built for: give it (--grid 64,64)")
    return found


def _about(emulator: Any, inputs: dict[str, Tensor]) -> dict[str, Any]:
    """What a reader needs to know."""
    shapes = {name: list(value.shape) for name, value in inputs.items()}
    told = {"channels": list(emulator.channels), "conditions": list(emulator.conditions), "dt": emulator.dt}
    return {"format": "biasbound.step", "version": 1, **told, "calls": emulator.nfe, "shapes for a batch of 2": shapes}


def _line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporters' remarks on their own insides."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
