r"""The ladder grown inside one training: one optimiser, one decay of the learning rate, one budget.

    warm     the top is trained: a prediction from x, as the direct model's. A few samples are spread over a band of lower
             levels, so that none of them is new to the network later. The measured error of the top gives the scale c of
             the denoiser, and the grid of levels below the top
    rounds   the ladder and the next `ahead` levels below its frontier are trained side by side. After each round their
             biases are measured with the averaged network: of the levels that are stable, feasible from the frontier
             and better than it, that of the least error after the jump joins; those between are dropped again
    rest     from `share` of the budget on the ladder alone is trained, its lowest level the most. Unless the
             rule is greedy, levels that no ladder of least error uses are dropped first: where refining does not pay, all of the rest
             trains the top
    end      the ladder is derived once more from the final network over the levels that it was trained on

With `calls: 1` no level below the top can be used, and all samples train the top.

Where the answer is a distribution (`score: crps`), refining need not lower an error to pay, and no level joins by itself: the
rounds train all levels of the grid, and the ladder of least score on the exact front is what the rest trains.

A killed growth goes on where its last checkpoint stands: what a round measured is part of the checkpoint, and every
measurement has a seed of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from biasbound.core.bias import Estimate, Stability, TwoStepTable, clean_error, stability
from biasbound.core.bias.estimate import Statistic
from biasbound.core.front import Front, at_most, best_schedule, inference_error, optimal_schedules, paired_schedule
from biasbound.core.ladder import grid, grid_below, measure_of
from biasbound.core.noise import Condition, State
from biasbound.core.options import SearchOptions
from biasbound.core.schedule import Schedule
from biasbound.core.score import Score
from biasbound.core.search import greedy_schedule
from biasbound.models.diffusion import Diffusion
from biasbound.train.trainer import Trainer


@dataclass(frozen=True)
class Growth:
    """The state of a growth after some measurements, as JSON values."""

    ladder: tuple[float, ...]  # from the top down
    grid: tuple[float, ...] = ()  # from the top down; empty until the top was measured
    c: float | None = None
    rounds: int = 0
    idle: int = 0  # rounds since the ladder last grew
    fixed: bool = False
    history: tuple[dict[str, Any], ...] = ()  # one entry per measurement, for people

    @property
    def below(self) -> tuple[float, ...]:
        return tuple(s for s in self.grid if s < self.ladder[-1])


@dataclass(frozen=True)
class Grown:
    """What a growth ended with: the ladder, how it came about, and the measurements on the final network."""

    schedule: Schedule
    tau: float
    statistic: Statistic  # of the biases, which τ bounds
    growth: Growth
    table: TwoStepTable
    levels: dict[float, Stability]
    front: Front
    greedy: tuple[Schedule, Estimate]  # the greedy ladder and its measured error, to be compared with the front
    score: Score = "error"  # what the front compares


class Grower:
    """Grows the ladder of a trainer's diffusion model; `x` and `y` are validation pairs in the network's units."""

    def __init__(self, options: SearchOptions, trainer: Trainer, x: Condition, y: State) -> None:
        self.options, self.trainer, self.x, self.y = options, trainer, x, y
        saved = trainer.progress.extra.get("growth")
        top = grid(options).sigma[-1]
        self.state = Growth((top,)) if saved is None else _restored(saved)
        if saved is not None and self.state.ladder[0] != top:
            raise ValueError(f"{trainer.folder} holds a growth from another top level; use another folder")

    def run(self, on_round: Callable[[Growth], None] | None = None) -> Grown:
        """Train to the end of the budget, and derive the ladder from the final network."""
        options = self.options
        warm = self._warm()
        if not self.state.grid:
            self._train(warm)
            self._keep(replace(self._scaled(), fixed=self._alone), on_round)
        while not self.state.fixed:
            now = self.state.rounds + 1
            self._train(warm + (options.share - warm) * now / options.rounds)
            self._keep(self._joined(now), on_round)
        self._train(1.0)
        return self._derived()

    # --- training -----------------------------------------------------------------------------

    @property
    def _alone(self) -> bool:
        """Whether the ladder is the top whatever a level below could do: then none is tried."""
        return self.options.calls == 1 and (self.options.rule != "greedy" or self.options.score == "crps")

    def _warm(self) -> float:
        """The share of the budget for the top alone, as asked for, or as suits the prediction."""
        told = self.trainer.model.rule.warm if self.options.warm is None else self.options.warm
        return min(told, self.options.share)

    def _train(self, share: float) -> None:
        """Up to a share of the budget, on the levels and shares of the samples of the present state."""
        state, trainer = self.state, self.trainer
        trainer.choosing = trainer.options.keep == "best" and state.fixed  # before, errors are of other ladders
        ahead = () if state.fixed else self._ahead()
        band = () if state.grid or not self.options.band or self._alone else self._band()
        levels = (*state.ladder, *ahead, *band)
        shares = self._shares(state.ladder, ahead)
        if band:
            shares = (1 - self.options.band, *[self.options.band / len(band)] * len(band))
        for model in (trainer.model, trainer.averaged):
            if state.c is not None:
                model.rescale(state.c)
            model.schedule = Schedule(levels[::-1])
        trainer.averaged.schedule = Schedule(state.ladder[::-1])  # which reports and the emulator use
        trainer.model.schedule = Schedule(levels[::-1])
        trainer.model.recipe = replace(trainer.model.recipe, share=shares[::-1] if len(levels) > 1 else None)
        trainer.run(until=math.ceil(share * trainer.total), save=False)

    def _ahead(self) -> tuple[float, ...]:
        """The levels below the frontier that are trained beside the ladder."""
        return self.state.below if self.options.score == "crps" else self.state.below[: self.options.ahead or None]

    def _band(self) -> tuple[float, ...]:
        """Levels from the spread r of the target down to a hundredth of it, three per decade."""
        ratios = (self._spread() * 10 ** (-q / 3) for q in range(7))
        return tuple(s for k in ratios if (s := k / math.sqrt(1 + k * k)) < self.state.ladder[-1])

    def _spread(self) -> float:
        """r, the spread of the target, the root mean square over channels."""
        scale = self.trainer.model.target.scale or (1.0,)
        return math.sqrt(sum(one**2 for one in scale) / len(scale))

    def _shares(self, ladder: Sequence[float], ahead: Sequence[float]) -> tuple[float, ...]:
        """Of the samples, from the top down: `tried` for the levels ahead; with none ahead, `lowest` for σ_0.

        What the top needs to have its least share `top` is taken from all others in proportion.
        """
        options = self.options
        if len(ladder) + len(ahead) == 1:
            return (1.0,)
        upper, lower, part = (ladder, ahead, options.tried) if ahead else (ladder[:-1], ladder[-1:], options.lowest)
        shares = [(1 - part) / len(upper)] * len(upper) + [part / len(lower)] * len(lower)
        if shares[0] < options.top:
            rest = 1 - shares[0]
            shares = [options.top, *(share * (1 - options.top) / rest for share in shares[1:])]
        return tuple(shares)

    # --- measurements -------------------------------------------------------------------------

    def _scaled(self) -> Growth:
        """c and the grid from the error of the top, which predicts from x alone.

        Levels far above that error tell nothing new whatever the network predicts, and rounds are too few to walk down to it
        from the top. Only an answer that is a distribution may use them: then every prediction but the scaled has the whole grid.
        """
        denoiser: Diffusion = self.trainer.averaged
        top = self.state.ladder[0]
        how = measure_of(self.options, "renoise")
        error = math.sqrt(clean_error(denoiser, self.x, self.y, top, replace(how, power=2)).mean)
        told = {"update": self.trainer.progress.update, "ladder": [top], "levels": [], "top_error": error}
        scaled, history = denoiser.prediction == "scaled", (*self.state.history, told)
        if self.options.score == "crps" and not scaled:
            return replace(self.state, grid=grid(self.options).sigma[::-1], history=history)
        levels = (top, *(s for s in grid_below(error, self.options) if s < top))
        c = error / self._spread() if scaled else None
        return replace(self.state, grid=levels, c=c, history=history)

    def _joined(self, now: int) -> Growth:
        """The state after a round: with one more level in the ladder, or not."""
        options, state, denoiser = self.options, self.state, self.trainer.averaged
        ahead, frontier = self._ahead(), state.ladder[-1]
        how = measure_of(options, denoiser.transition, now)
        found = {s: stability(denoiser, self.x, self.y, s, how) for s in (frontier, *ahead)}
        table = TwoStepTable(dict.fromkeys(found, denoiser), self.x, self.y, how)
        two = {s: table(s, frontier) for s in ahead}
        joins = None if options.score == "crps" else self._joining(found, two)
        ladder, idle = (state.ladder, state.idle + 1) if joins is None else ((*state.ladder, joins), 0)
        told = {
            "update": self.trainer.progress.update,
            "ladder": list(ladder),
            "levels": [
                {"sigma": s, **found[s].as_dict(), **(two[s].as_dict("two_step") if s in two else {})} for s in found
            ],
        }
        grown = replace(state, ladder=ladder, rounds=now, idle=idle, history=(*state.history, told))
        spent = now >= options.rounds or not grown.below
        tired = options.patience is not None and idle >= options.patience
        return self._fixed(grown) if spent or tired else grown

    def _joining(self, found: Mapping[float, Stability], two: Mapping[float, Estimate]) -> float | None:
        """Of the levels that are stable, feasible from the frontier and better than it, that of least error; None for none."""
        options, bound, better = self.options, self.options.statistic, found[self.state.ladder[-1]].clean.mean
        feasible = [
            s
            for s in two
            if found[s].own.value(bound) <= options.tau_own
            and two[s].value(bound) <= options.tau
            and found[s].clean.mean < better
        ]
        # The error after the jump: a lower level with a larger bias may be no gain.
        return min(feasible, key=lambda s: found[s].clean.mean * two[s].value(bound), default=None)

    def _fixed(self, grown: Growth) -> Growth:
        """The ladder that the rest of the budget trains: unless it is greedy, that of least error so far."""
        levels = grown.grid if self.options.score == "crps" else grown.ladder
        if len(levels) == 1 or (self.options.rule == "greedy" and self.options.score == "error"):
            return replace(grown, fixed=True)
        front = self._front(self.trainer.averaged, levels, 1_000_001)
        kept = at_most(front, max(front))[0].sigma[::-1]
        last = {**grown.history[-1], "ladder": list(kept)}
        return replace(grown, fixed=True, ladder=kept, history=(*grown.history[:-1], last))

    def _front(self, denoiser: Diffusion, levels: Sequence[float], shift: int) -> Front:
        """The exact front over these levels, on noise of its own."""
        how, calls = measure_of(self.options, denoiser.transition, shift), min(len(levels), self.options.calls)
        return optimal_schedules(denoiser, self.x, self.y, levels, calls, generator=how.generator, **self._compared())

    def _compared(self) -> dict[str, Any]:
        """How ladders are compared, beside the noise."""
        options = self.options
        return {"draws": options.draws, "transition": self.trainer.kept.transition, "score": options.score}

    def _derived(self) -> Grown:
        """The ladder of the final network, by the greedy rule or as the best of the exact front."""
        options, denoiser = self.options, self.trainer.kept
        trained = self.state.ladder[::-1]
        how = measure_of(options, denoiser.transition, 1_000_003)
        levels = {s: stability(denoiser, self.x, self.y, s, how) for s in trained}
        table = TwoStepTable(dict.fromkeys(trained, denoiser), self.x, self.y, how)
        stable = [s for s, found in levels.items() if found.own.value(options.statistic) <= options.tau_own]
        usable = sorted({*stable, trained[-1]})

        def bias(to: float, start: float) -> float:
            return table(to, start).value(options.statistic)

        greedy = greedy_schedule(usable, bias, options.tau, meta={"start": "sigma"})
        front = self._front(denoiser, trained, 1_000_005)
        error = (
            front[len(greedy)][1] if front.get(len(greedy), (None,))[0] == greedy else self._error(denoiser, greedy)
        )
        chosen = {
            "greedy": lambda: greedy,
            "best": lambda: best_schedule(front),
            "paired": lambda: self._paired(front),
        }
        meta = {**greedy.meta, "method": "grown", "rule": options.rule, "greedy": list(greedy.sigma)}
        schedule = Schedule(
            chosen[options.rule]().sigma, meta | {"front": {str(k): s.sigma for k, (s, _) in front.items()}}
        )
        for model in (self.trainer.model, self.trainer.averaged, denoiser):
            model.schedule = schedule
        found = (table, levels, front, (greedy, error), options.score)
        return Grown(schedule, options.tau, options.statistic, self.state, *found)

    def _paired(self, front: Front) -> Schedule:
        """The fewest calls that are as good as any on the front, pair by pair."""
        denoiser, seed = self.trainer.kept, self.options.seed + 1_000_007
        return paired_schedule(denoiser, self.x, self.y, front, seed=seed, **self._compared())

    def _error(self, denoiser: Diffusion, ladder: Schedule) -> Estimate:
        """E_inf of a ladder that is not on the front, on the front's noise."""
        how = measure_of(self.options, denoiser.transition, 1_000_005)
        return inference_error(denoiser, self.x, self.y, ladder, generator=how.generator, **self._compared())

    def _keep(self, state: Growth, on_round: Callable[[Growth], None] | None) -> None:
        self.state = state
        self.trainer.progress.lowest = math.inf  # losses of other levels have another size
        self.trainer.progress.extra = {"growth": asdict(state)}
        self.trainer.save()
        if on_round is not None:
            on_round(state)


def _restored(saved: dict[str, Any]) -> Growth:
    lists = {name: tuple(saved[name]) for name in ("ladder", "grid", "history")}
    return Growth(**{**saved, **lists})
