"""Stage 6: every score of a rollout, and the biases of a diffusion emulator, on the test split."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from biasbound._io import write_json
from biasbound.core.bias import BiasRow, Measure, bias_curve
from biasbound.data.formats.numpy import open_array
from biasbound.data.trajectories import Trajectories
from biasbound.metrics import FewSamples, Interval, Scene
from biasbound.metrics.globe import Globe, latitude_axis
from biasbound.metrics.rows import About, Row, write_rows
from biasbound.metrics.score import score, score_steps
from biasbound.models.diffusion import Diffusion, chain_of
from biasbound.models.emulator import Emulator
from biasbound.models.gradients import gradient_similarity
from biasbound.models.model import Frame, make
from biasbound.study.config import EvaluateConfig, RolloutConfig
from biasbound.study.jobs import EvaluateJob, UntrainedJob
from biasbound.study.stages.material import seeded, spread, task_of
from biasbound.study.stages.place import Place
from biasbound.study.stages.rollout import answered, placed, roll
from biasbound.study.stages.split import split_rows


def make_evaluate(job: EvaluateJob, place: Place) -> dict[str, Any]:
    """Write rows.jsonl and, for an emulator with a chain, bias.json."""
    (emulator, prediction), test, section = _rolled_out(job, place), place.material.test, job.evaluate
    _, count, steps = prediction.shape[:3]
    task = emulator.model.frame.task
    truth = test.read(0, count, answered(task, test.layout.frames, steps))
    if not task.advances:  # every frame is a case of its own
        shape = count * steps, 1, *truth.shape[2:]
        prediction, truth, steps = prediction.reshape(len(prediction), *shape), truth.reshape(shape), 1
    about = About(job.dataset, place.label, place.seed, **place.cost)
    scene = Scene.on(
        test.layout,
        prediction,
        truth,
        spread=emulator.normalisation.std,
        steps=_steps(section, steps),
        correlate=None if section.correlate == "auto" else section.correlate,
        mask=None if emulator.mask is None else emulator.mask.cpu(),
        globe=None if latitude_axis(test) is None else Globe.of(test, place.material.train),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewSamples)  # the record says from how many trajectories
        rows = score(scene, about)
    if section.members and task.advances:
        rows = _instead(rows, ensemble_rows(emulator, test, scene, section, about))
    if section.split:
        rows += split_rows(emulator, test, prediction[0], scene.steps, about, place.material.device)
    steps_made = single_steps(emulator, test, section.pairs, place.material.device)
    rows += score_steps(*steps_made, about, scene.spread, scene.mask)
    if (chain := chain_of(emulator.model)) is not None:
        curve = _biases(chain, place, section)
        write_json(place.folder / "bias.json", [row.as_dict() for row in curve], None)
        rows += [row for level in curve for row in _bias_rows(level, about)]
        if section.gradients and task.advances:
            _gradients(chain, place, section)
    write_rows(place.folder / "rows.jsonl", rows)
    return {"rows": len(rows), "trajectories": count}


def _rolled_out(job: EvaluateJob, place: Place) -> tuple[Emulator, np.ndarray]:
    """An emulator and its rollouts: those of earlier stages, or made here where nothing is trained."""
    material = place.material
    if isinstance(job, UntrainedJob):
        data = material.test
        frame = Frame(len(data.channels), task_of(job.task, data.layout), mask=material.mask)
        model = make(job.method.model, None, frame, {})
        made = Emulator(model, material.normalisation, data.channels, data.dt, data.conditions)
        alike = replace(job.rollout, members=min(2, job.rollout.members))  # two are enough for a score of ensembles
        return made, roll(made, material.test, alike, place.seed)[0]
    return placed(place, job.sampled), open_array(place.inputs["rollout"] / "prediction.npy")


def ensemble_rows(
    emulator: Emulator, test: Trajectories, scene: Scene, section: EvaluateConfig, about: About
) -> list[Row]:
    """Ensemble scores of `evaluate.members` members at `evaluate.steps`; the first members are those of the rollout.

    Many members of whole rollouts would mostly be frames that are far from the truth, where their scores say little.
    """
    steps = tuple(s for s in section.steps if s <= scene.frames)
    if not steps:
        return []
    options = RolloutConfig(len(scene.truth), max(steps), section.members)
    members, _ = roll(emulator, test, options, about.seed)
    short = replace(scene, prediction=members, truth=scene.truth[:, : max(steps)], steps=steps)
    return score(short, about, ("ensemble",))


def _instead(rows: list[Row], others: list[Row]) -> list[Row]:
    """The rows, with `others` in place of those of the same metric and step."""
    told = {(row.metric, row.step) for row in others}
    return [row for row in rows if (row.metric, row.step) not in told] + others


def single_steps(emulator: Emulator, test: Trajectories, count: int, device: str) -> tuple[np.ndarray, np.ndarray]:
    """(prediction, truth), each (S, P, C, *N): one step from P states of each test trajectory, about `count` in all."""
    task = emulator.model.frame.task
    windows = test.condition_on(*emulator.conditions).windows(task.window())
    each = min(max(1, count // len(test)), windows.per_trajectory)
    times = np.linspace(0, windows.per_trajectory - 1, each).astype(np.int64)
    index = (np.arange(len(test))[:, None] * windows.per_trajectory + times).ravel()
    generator, made, truth = seeded(0), [], []
    for part in np.array_split(index, -(-len(index) // 128)):
        batch = windows[part]
        start = batch.frames[:, 0] if task.past == 1 else batch.frames[:, : task.past]
        known = batch.conditions.to(device) if emulator.conditions else None
        made.append(emulator.step(start.to(device), known, generator).to("cpu", torch.float32))
        truth.append(task.wanted(batch.frames)[0])
    predicted, followed = torch.cat(made).numpy(), torch.cat(truth).numpy()
    shape = (len(test), each, *predicted.shape[1:])
    return predicted.reshape(shape), followed.reshape(shape)


def _steps(section: EvaluateConfig, last: int) -> list[int]:
    """The frames that the table wants, the last one, and some between for the curves."""
    between = np.linspace(1, last, min(section.curve, last)).round().astype(int).tolist()
    return sorted({s for s in section.steps if s <= last} | {last, *between})


def _biases(chain: Diffusion, place: Place, section: EvaluateConfig) -> list[BiasRow]:
    x, y = place.material.pairs("test", section.pairs, chain.frame.task)
    how = Measure(section.draws, transition=chain.transition, generator=seeded(0), batch_size=128)
    return bias_curve(chain, x, y, chain.schedule, how)


def _gradients(chain: Diffusion, place: Place, section: EvaluateConfig) -> None:
    """How well the proxy stands in for the full chain, on windows of the training data."""
    material = place.material
    windows = material.encode(spread(material.train.windows(chain.frame.task.window(1)), section.gradients))
    size = max(1, section.gradients // 4)
    found = gradient_similarity(chain, windows, generator=seeded(0), batch_size=size)
    write_json(place.folder / "gradients.json", [row.as_dict() for row in found], None)


def _bias_rows(level: BiasRow, about: About) -> list[Row]:
    """Rows of one level; their step is the level's index."""
    biases = {"reb": level.reb, "own_bias": level.own, "two_step_bias": level.two_step}
    rows = [about.row("sigma", level.sigma, level.t)]
    for name, e in {**biases, "clean_error": level.clean, "inference_error": level.inference}.items():
        if e is not None:
            interval = Interval(e.mean, e.mean - 1.96 * e.stderr, e.mean + 1.96 * e.stderr)
            rows.append(about.row(name, interval, level.t))
    return rows
