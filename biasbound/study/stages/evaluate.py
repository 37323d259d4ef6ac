"""Stage 6: every score of a rollout, and the biases of a diffusion emulator, on the test split."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch

from biasbound._io import write_text
from biasbound.core.bias import BiasRow, bias_curve
from biasbound.core.denoise import NetDenoiser
from biasbound.data.layout import Layout
from biasbound.data.trajectories import Trajectories
from biasbound.metrics import FewSamples, Interval, Scene
from biasbound.metrics.rows import About, Row, write_rows
from biasbound.metrics.score import score, score_steps
from biasbound.models.emulator import Emulator
from biasbound.models.gradients import gradient_similarity
from biasbound.study.config import Config, EvaluateConfig
from biasbound.study.stages.material import Material, planes, seeded, spread
from biasbound.study.stages.rollout import emulator_for

__all__ = ["Cost", "correlated", "make_evaluate", "single_steps"]


class Cost(TypedDict):
    """What an emulator cost: network calls a step, and updates and CPU seconds of all its trainings."""

    nfe: int
    updates: int
    seconds: float


def make_evaluate(
    config: Config,
    label: str,
    seed: int,
    material: Material,
    folder: Path,
    rollout: Path,
    emulator: Path,
    cost: Cost,
) -> dict[str, Any]:
    """Write rows.jsonl and, for a diffusion emulator, bias.json."""
    loaded, test, section = emulator_for(config, emulator), material.test, config.evaluate
    prediction = np.load(rollout / "prediction.npy", mmap_mode="r", allow_pickle=False)
    _, count, steps = prediction.shape[:3]
    about = About(config.data.dataset, label, seed, **cost)
    scene = Scene.on(
        test.layout,
        prediction,
        test.read(0, count, slice(1, steps + 1)),
        spread=loaded.normalisation.std,
        steps=_steps(section, steps),
        correlate=correlated(section, test.layout),
    )
    steps_taken, followed = single_steps(loaded, test, section.pairs, material.device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewSamples)  # the record says from how many trajectories
        rows = score(scene, about)
    rows += score_steps(steps_taken, followed, about, scene.spread)
    if isinstance(loaded.model, NetDenoiser):
        curve = _biases(loaded, material, section)
        write_text(folder / "bias.json", json.dumps([row.as_dict() for row in curve]) + "\n")
        rows += [row for level in curve for row in _bias_rows(level, about)]
        if section.gradients:
            _gradients(loaded, material, section, folder)
    write_rows(folder / "rows.jsonl", rows)
    return {"rows": len(rows), "trajectories": count}


def single_steps(
    emulator: Emulator, test: Trajectories, count: int, device: str
) -> tuple[np.ndarray, np.ndarray]:
    """(prediction, truth), each (S, P, C, *N): one step from P states of each test trajectory, about `count` in all."""
    windows = test.condition_on(*emulator.conditions).windows(1)
    each = min(max(1, count // len(test)), windows.per_trajectory)
    times = np.linspace(0, windows.per_trajectory - 1, each).astype(np.int64)
    index = (np.arange(len(test))[:, None] * windows.per_trajectory + times).ravel()
    emulator.model.to(device)
    generator, made, truth = seeded(0), [], []
    for part in np.array_split(index, -(-len(index) // 128)):
        batch = windows[part]
        start = batch.frames[:, 0].to(device)
        known = batch.conditions.to(device) if emulator.conditions else None
        made.append(emulator.step(start, known, generator).to("cpu", torch.float32))
        truth.append(batch.frames[:, 1])
    predicted, followed = torch.cat(made).numpy(), torch.cat(truth).numpy()
    shape = (len(test), each, *predicted.shape[1:])
    return predicted.reshape(shape), followed.reshape(shape)


def _steps(section: EvaluateConfig, last: int) -> list[int]:
    """The frames that the table wants, the last one, and some between for the curves."""
    between = np.linspace(1, last, min(section.curve, last)).round().astype(int).tolist()
    return sorted({s for s in section.steps if s <= last} | {last, *between})


def correlated(section: EvaluateConfig, layout: Layout) -> str:
    """What the correlation time correlates."""
    return layout.correlate if section.correlate == "auto" else section.correlate


def _biases(emulator: Emulator, material: Material, section: EvaluateConfig) -> list[BiasRow]:
    assert isinstance(emulator.model, NetDenoiser)
    assert emulator.schedule is not None
    pairs = material.pairs("test", section.pairs)
    return bias_curve(
        emulator.model,
        pairs.x,
        pairs.y,
        emulator.schedule,
        draws=section.draws,
        transition=emulator.transition,
        generator=seeded(0),
        batch_size=128,
    )


def _gradients(
    emulator: Emulator, material: Material, section: EvaluateConfig, folder: Path
) -> None:
    """How well the proxy stands in for the full chain, on windows of the training data."""
    assert isinstance(emulator.model, NetDenoiser)
    assert emulator.schedule is not None
    windows = material.encode(spread(material.train.windows(2), section.gradients))
    found = gradient_similarity(
        emulator.model,
        windows.frames,
        emulator.schedule,
        conditions=planes(windows),
        generator=seeded(0),
        batch_size=max(1, section.gradients // 4),
        transition=emulator.transition,
    )
    write_text(folder / "gradients.json", json.dumps([row.as_dict() for row in found]) + "\n")


def _bias_rows(level: BiasRow, about: About) -> list[Row]:
    """Rows of one level; their step is the level's index."""
    named = {
        "reb": level.reb,
        "own_bias": level.own,
        "two_step_bias": level.two_step,
        "clean_error": level.clean,
        "inference_error": level.inference,
    }
    found = {
        name: Interval(e.mean, e.mean - 1.96 * e.stderr, e.mean + 1.96 * e.stderr)
        for name, e in named.items()
        if e is not None
    }
    return [
        about.row("sigma", level.sigma, level.t),
        *(about.row(name, interval, level.t) for name, interval in found.items()),
    ]
