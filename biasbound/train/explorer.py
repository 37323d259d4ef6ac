r"""The search on a network that trains: Phase 1 inside one budget, Phase 2, and the final training's start.

Exploration is one training on the levels that are still open; its budget is divided into rounds, and after each the
own-prediction biases are measured on pairs that were not trained on. A level that became stable keeps the averaged
network of that round; each such network is stored once, however many levels it solved. Solved levels leave the
training, as in the paper; or they stay, and the last network is measured at all of them: a network that was stored at
the moment at which its own bias fell to τ has no room left for the error of a jump.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from biasbound.core.bias import stability
from biasbound.core.ladder import grid, measure_of
from biasbound.core.noise import Condition, State
from biasbound.core.options import SearchOptions
from biasbound.core.schedule import Schedule
from biasbound.core.search import Exploration, Solved, explore
from biasbound.models.diffusion import Diffusion
from biasbound.models.weights import load_tensors, save_tensors
from biasbound.train.trainer import Trainer

__all__ = ["Explorer"]


class Explorer:
    """Algorithm 1 over a `Trainer`.

    The trainer's model is a diffusion model; the exploration changes the levels that its loss draws from. `x` and `y` of
    `run` are validation pairs in the network's units. With a trainer that has a folder, a killed exploration goes on
    where its last round ended.
    """

    def __init__(self, options: SearchOptions) -> None:
        self.options = options
        self.networks: dict[int, dict[str, Tensor]] = {}  # by round, each stored once
        self.points: list[dict[str, Any]] = []  # own bias and clean error, per round and open level

    def run(
        self, trainer: Trainer, x: Condition, y: State, on_round: Callable[[Exploration[int]], None] | None = None
    ) -> Exploration[int]:
        """The exploration; its checkpoints are numbers of rounds, for `network`."""
        options = self.options
        state = self._restore(trainer)
        rounds = options.rounds

        def advance(open_levels: tuple[float, ...]) -> tuple[int, Mapping[float, Any]]:
            trainer.model.schedule = self._trained(state)
            now = len(state.history) + 1
            trainer.run(until=math.ceil(trainer.total * now / rounds), save=False)
            reached = [s for s in open_levels if s in trainer.model.schedule.sigma]
            unknown = dict.fromkeys(open_levels, math.inf)  # what is not trained is not stable
            return now, unknown | self._measure(trainer, x, y, reached, now)

        def remember(new: Exploration[int]) -> None:
            nonlocal state
            if any(solved.checkpoint == len(new.history) for solved in new.solved.values()) or _last(new, rounds):
                self._keep(trainer, len(new.history))
            state = new
            trainer.progress.extra = {"exploration": _to_json(new), "points": self.points}
            trainer.save()
            if on_round is not None:
                on_round(new)

        done = explore(
            grid(options),
            advance,
            tau=options.tau_own,
            rounds=rounds,
            patience=options.patience,
            resume=state,
            on_round=remember,
        )
        if done.last is not None and done.last not in self.networks:
            self._keep(trainer, done.last)
        return done if options.solved == "leave" else self._last_word(done, trainer, x, y)

    def _trained(self, state: Exploration[int]) -> Schedule:
        """Levels of the next round: all or the open ones, but none that is more than `ahead` below the lowest solved."""
        levels, options = state.levels, self.options
        lowest = min(map(levels.index, state.solved), default=len(levels))
        first = 0 if options.ahead is None else max(0, lowest - options.ahead)
        gone = state.solved if options.solved == "leave" else ()
        return Schedule(tuple(s for s in levels[first:] if s not in gone))

    def _measure(
        self, trainer: Trainer, x: Condition, y: State, levels: Iterable[float], now: int
    ) -> dict[float, float]:
        """Own biases of the network as it is, by the statistic that is bounded, kept with the clean errors."""
        how, own = measure_of(self.options, "renoise", now), {}
        for s in levels:
            found = stability(trainer.averaged, x, y, s, how)
            update = trainer.progress.update
            self.points.append({"round": now, "update": update, "sigma": s, **found.as_dict()})
            own[s] = found.own.value(self.options.statistic)
        return own

    def _last_word(self, done: Exploration[int], trainer: Trainer, x: Condition, y: State) -> Exploration[int]:
        """Where solved levels stayed in training, the last network is the one to measure: is it stable there?"""
        assert done.last is not None
        now = len(done.history)
        own = self._measure(trainer, x, y, done.solved, now)
        stable = {s: Solved(done.last, b, now) for s, b in own.items() if b <= done.tau}
        return replace(done, solved=stable)

    def network(self, trainer: Trainer, round_: int) -> Diffusion:
        """θ* of a round, as a denoiser of its own."""
        if round_ not in self.networks:
            assert trainer.folder is not None
            self.networks[round_] = load_tensors(_network_path(trainer.folder, round_))[0]
        denoiser = deepcopy(trainer.averaged)
        denoiser.load_state_dict(self.networks[round_])
        assert isinstance(denoiser, Diffusion)
        return denoiser

    def denoisers(self, trainer: Trainer, found: Exploration[int]) -> dict[float, Diffusion]:
        """θ*(σ) for each solved level and the top; levels of one round share one network."""
        chosen = found.checkpoints()
        built = {round_: self.network(trainer, round_) for round_ in set(chosen.values())}
        return {sigma: built[round_] for sigma, round_ in chosen.items()}

    def _keep(self, trainer: Trainer, round_: int) -> None:
        weights = {k: v.detach().clone() for k, v in trainer.averaged.state_dict().items()}
        self.networks[round_] = weights
        if trainer.folder is not None and trainer.rank.rank == 0:
            save_tensors(_network_path(trainer.folder, round_), weights, {"round": round_})

    def _restore(self, trainer: Trainer) -> Exploration[int]:
        options = self.options
        saved = trainer.progress.extra.get("exploration")
        if saved is None:
            return Exploration(grid(options).sigma, options.tau_own)
        state = _from_json(saved)
        self.points = list(trainer.progress.extra["points"])
        if state.levels != grid(options).sigma or state.tau != (options.tau_own):
            raise ValueError(f"{trainer.folder} holds an exploration of another grid or τ; use another folder")
        return state


def _last(state: Exploration[int], rounds: int) -> bool:
    return len(state.history) >= rounds


def _network_path(folder: Path, round_: int) -> Path:
    return folder / f"network-{round_:04d}.safetensors"


def _to_json(state: Exploration[int]) -> dict[str, Any]:
    """JSON has neither numbers as keys nor infinities; levels are kept as their exact decimal text."""
    return {
        "levels": state.levels,
        "tau": state.tau,
        "solved": {repr(s): [v.checkpoint, v.bias, v.round] for s, v in state.solved.items()},
        "history": [{repr(s): _text(b) for s, b in biases.items()} for biases in state.history],
        "last": state.last,
    }


def _from_json(saved: Mapping[str, Any]) -> Exploration[int]:
    return Exploration(
        levels=tuple(saved["levels"]),
        tau=saved["tau"],
        solved={float(s): Solved(*v) for s, v in saved["solved"].items()},
        history=tuple({float(s): float(b) for s, b in biases.items()} for biases in saved["history"]),
        last=saved["last"],
    )


def _text(bias: float) -> float | str:
    return bias if math.isfinite(bias) else repr(bias)
