"""Short trainings that choose how to train: target, learning rate and, where the data are few, less network or symmetries.

Every trial is a direct model, trained as the study will train it, with a decaying learning rate of its own. The speed of
this machine is measured, never guessed: the number of updates follows from it and from the time allowed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from biasbound.core.ladder import grid
from biasbound.core.options import SearchOptions
from biasbound.core.schedule import Schedule
from biasbound.data.symmetries import Symmetry, candidates
from biasbound.fitting.request import Choice, Request, Trial
from biasbound.models.method import ADAPTIVE, Method
from biasbound.models.model import Model, Settings
from biasbound.models.task import Task
from biasbound.nets.presets import mini
from biasbound.study.config import NetworkConfig
from biasbound.study.stages.material import Material, spread
from biasbound.train.options import FitOptions
from biasbound.train.trainer import Diverged, Trainer

VALUES = 4096  # of a batch: below it an update costs its operations, not its arithmetic
TRIAL = 0.045  # of the time, for one trial
CLOSING = 20.0  # seconds for rollouts, scores and the page
PARTED = 2.0  # validation over training error from which on a network is said to remember
PAIRS = 192
COARSEST = 16  # points of a U-Net's coarsest level: with more, no point sees all of the domain
RATES = (3e-3, 1e-3)
WORST = 1e6  # the error of a network that broke, in units of persistence's
GROWN = 2.0  # time of a grown training over that of a direct one
Say = Callable[[str], None]
Options = tuple[tuple[str, Any], ...]  # of a network


@dataclass(frozen=True)
class Setting:
    """How one trial trains."""

    residual: bool = True
    network: Options = ()
    lr: float = RATES[0]
    symmetries: tuple[str, ...] = ()


class Probe:
    """The trials of one fit."""

    def __init__(self, material: Material, task: Task, request: Request, say: Say) -> None:
        self.material, self.task, self.request, self.say = material, task, request, say
        layout, windows = material.train.layout, len(material.train.windows(task.window()))
        values = len(layout.channels) * int(torch.tensor(layout.grid).prod())
        self.batch = max(1, min(max(4, min(32, VALUES // values)), windows // 2))
        self.kinds = self._able()
        self.trials: list[Trial] = []
        self.models: dict[Setting, Model] = {}
        self.paces: dict[Options, float] = {}

    def choose(self, started: float) -> Choice:
        """Everything that is left open by the request."""
        plain = Setting(network=_deep(self.request.network, self.material.train.layout.grid))
        best = self._better(plain, replace(plain, residual=False))
        best = self._better(best, replace(best, lr=RATES[1]))
        words: list[str] = []
        if (parted := self._found(best).parted) > PARTED:
            words.append(f"training and validation error part: {parted:.3g} times as large on validation data")
            best = self._remedied(best, words)
        words.append(f"the network learns {'the increment' if best.residual else 'the next state itself'}")
        words += self._verdict(self._found(best))
        pace = self._pace(best)
        words.append(f"an update of {self.batch} windows takes {1000 * pace:.3g} ms here")
        total = self.request.updates or self._updates(pace, started)
        chosen = (best.residual, dict(best.network), best.lr, self.batch, total, best.symmetries, self.kinds, pace)
        return Choice(*chosen, tuple(self.trials), tuple(words))

    def plan(self, started: float) -> tuple[int, float, int]:
        """(updates of each training, seconds per update, parameters), as far as it is known before the trials."""
        plain = Setting(network=_deep(self.request.network, self.material.train.layout.grid))
        pace = self._pace(plain)
        parameters = sum(p.numel() for p in self._trainer(plain, 1).parameters)
        trials = 0 if self.request.seconds is None else 4 * TRIAL * self.request.seconds
        return self.request.updates or self._updates(pace, started - trials), pace, parameters

    # --- the trials ---------------------------------------------------------------------------

    def _trainer(self, setting: Setting, updates: int) -> Trainer:
        model = self._model(setting, self.kinds[0])
        batch, items = self.material.batches(self.task.window(), setting.symmetries)
        told: dict[str, Any] = {"optimiser": "soap", "seed": self.request.seed, "log_every": max(1, updates)}
        options = FitOptions(updates=updates, batch=self.batch, lr=setting.lr, ema=0.99, **told)
        return Trainer(model.to(self.material.device), batch, items, options)

    def _model(self, setting: Setting, kind: str) -> Model:
        """A direct model, or a diffusion model at the top level alone, which predicts from x as well."""
        torch.manual_seed(self.request.seed)
        wanted = NetworkConfig(
            name=self.request.network, **network_fields(self.request.network, dict(setting.network))
        )
        spec = self.material.network(wanted, self.task)
        method, more = Method(model="direct", residual=setting.residual), {}
        if kind == "diffusion":
            method = Method(schedule=ADAPTIVE, prediction="scaled", residual=setting.residual)
            more = method.options(Settings(schedule=Schedule([grid(SearchOptions()).sigma[-1]])))
        return method.build(spec, self.task, self.material.scale(self.task), more, self.material.mask)

    def _able(self) -> tuple[str, ...]:
        """The kinds of model that the network can be part of: a module of one's own may fit one of them alone."""
        x, _ = self.material.pairs("train", 1, self.task)
        found, problem = [], ""
        for kind in ("direct", "diffusion"):
            try:
                self._model(Setting(), kind).to(self.material.device).advance(x)
                found.append(kind)
            except ValueError as error:
                problem = str(error)
        if not found:
            raise ValueError(problem)
        if problem:
            self.say(f"only a {found[0]} model can be made of this network: {problem}")
        return tuple(found)

    def _pace(self, setting: Setting) -> float:
        """Seconds per update of a network, over about a second; measured once."""
        if setting.network in self.paces:
            return self.paces[setting.network]
        trainer = self._trainer(setting, 10_000)
        for _ in range(3):
            trainer.update()
        begun, count = time.perf_counter(), 0
        enough = 0.0 if self.request.seconds is None else 1.0  # a number of updates needs no more than an idea
        while time.perf_counter() - begun < enough or count < 3:
            trainer.update()
            count += 1
        self.paces[setting.network] = (time.perf_counter() - begun) / count
        return self.paces[setting.network]

    def _trial(self, what: str, setting: Setting) -> Trial:
        updates = self._trial_updates(self._pace(setting))
        trainer = self._trainer(setting, updates)
        with suppress(Diverged):  # its error then speaks for itself
            trainer.run()
        self.models[setting] = model = trainer.averaged
        train, valid = (min(WORST, self._error(model, split)) for split in ("train", "valid"))
        options = dict(setting.network)
        made = Trial(what, setting.residual, setting.lr, setting.symmetries, options, updates, train, valid)
        self.trials.append(made)
        self.say(f"trial, {what}: error {train:.3g} on training and {valid:.3g} on validation data (persistence 1)")
        return made

    @torch.no_grad()
    def _error(self, model: Model, split: str, image: Symmetry | None = None) -> float:
        """RMSE over one step divided by that of the first guess, on pairs of a split, or on their mirror images."""
        batch = spread(getattr(self.material, split).windows(self.task.window()), PAIRS)
        batch = self.material.encode(batch if image is None else image.image(batch))
        x, y = self.task.given(batch.frames, batch.conditions), self.task.wanted(batch.frames)[0]
        made = torch.cat([model.advance(part) for part in torch.split(x, 32)])
        guess = self.task.guess(x, y.shape[1])
        found = float(((made - y).square().mean() / (guess - y).square().mean()).sqrt())
        return found if math.isfinite(found) else WORST

    def _better(self, *settings: Setting) -> Setting:
        """The setting of least validation error; those that were tried before are not tried again."""
        for setting in settings:
            if setting not in self.models:
                self._trial(_told(setting), setting)
        return min(settings, key=lambda one: self._found(one).valid)

    def _found(self, setting: Setting) -> Trial:
        return self.trials[list(self.models).index(setting)]

    def _remedied(self, best: Setting, words: list[str]) -> Setting:
        """Less network, and the mirror images of the data that the network itself takes for data of the same kind."""
        layout, model = self.material.train.layout, self.models[best]
        limit = 1.5 * self._found(best).valid
        possible = [one for one in candidates(layout) if one.broken_by(self.material.train) is None]
        kept = [one for one in possible if self._error(model, "train", one) < limit]
        tried = [best]
        if kept:
            texts = tuple(one.text(layout) for one in kept)
            words.append(f"mirror images that look like data of the same kind: {', '.join(texts)}")
            tried.append(replace(best, symmetries=texts))
        if (less := _less(self.request.network, layout.grid)) is not None:
            tried.append(replace(best, network=less))
        found = self._better(*tried)
        for what, changed in (
            ("less network", found.network != best.network),
            ("symmetries of the data", found.symmetries != best.symmetries),
        ):
            if changed:
                words.append(f"{what} helped: {self._found(found).valid:.3g} instead of {self._found(best).valid:.3g}")
        return found

    # --- the budget ---------------------------------------------------------------------------

    def _trial_updates(self, pace: float) -> int:
        if self.request.seconds is None:
            return max(2, (self.request.updates or 0) // 8)
        return max(10, int(TRIAL * self.request.seconds / pace))

    def _updates(self, pace: float, started: float) -> int:
        """What fits into the time that is left, for a direct and a grown training each, and a fine-tuned one if asked."""
        assert self.request.seconds is not None
        left = self.request.seconds * 0.93 - CLOSING - (time.perf_counter() - started)
        trainings = 1 + GROWN * (2 if self.request.prefer == "rollout" else 1)
        return max(20, int(left / trainings / pace))

    def _verdict(self, best: Trial) -> list[str]:
        if best.valid > 0.9:
            return ["after the trial the error on validation data was hardly below that of persistence"]
        if best.parted > PARTED:
            few = f"the data are few: the error on validation data is {best.parted:.3g} times that on training data"
            return [f"{few}; more or longer trajectories would help most"]
        return []


def _told(setting: Setting) -> str:
    parts = ["increment" if setting.residual else "next state", f"learning rate {setting.lr:g}"]
    parts += [f"network {dict(setting.network)}"] if setting.network else []
    parts += [f"symmetries {', '.join(setting.symmetries)}"] if setting.symmetries else []
    return ", ".join(parts)


def _levels(grid: tuple[int, ...]) -> int:
    """Levels of a U-Net whose coarsest one has about `COARSEST` points along the longest axis; at least three."""
    return max(3, 1 + round(math.log2(max(grid) / COARSEST)))


def _deep(network: str, grid: tuple[int, ...]) -> Options:
    """A U-Net deep enough to see all of the domain; other networks are taken as they are."""
    return (("multipliers", (1,) * _levels(grid)),) if network == "unet" and _levels(grid) > 3 else ()


def _less(network: str, grid: tuple[int, ...]) -> Options | None:
    """A U-Net as deep, with half the channels."""
    if network != "unet" or len(grid) > 3:
        return None
    return ("multipliers", (1,) * _levels(grid)), ("width", mini(padding=("circular",) * len(grid)).width // 2)


def network_fields(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a network as fields of its section: the U-Net's are fields of their own."""
    return dict(options) if name == "unet" else {"options": dict(options)}
