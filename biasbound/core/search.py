r"""The schedule search: exploration (paper Algorithm 1), then greedy jumps (Algorithm 2).

Both work with callables and numbers and know nothing about networks. `explore` repeatedly calls
back to train on the levels that are still open and to measure their own-prediction biases. A level
whose bias falls to τ is solved: it keeps the checkpoint of that round and leaves the training.
`greedy_schedule` starts at the lowest solved level and always takes the largest jump whose
two-step bias stays within τ.

The greedy ladder is the shortest one if the bias grows with the jump (no interior level can then
be left out). On other landscapes it is feasible, but a shorter ladder may exist.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from biasbound.core.bias import Estimate
from biasbound.core.front import best_schedule, optimal_schedules
from biasbound.core.schedule import Schedule

__all__ = [
    "Exploration",
    "ForcedTransition",
    "Infeasible",
    "NothingSolved",
    "Solved",
    "best_schedule",
    "explore",
    "greedy_schedule",
    "optimal_schedules",
    "start_level",
]

Checkpoint = TypeVar("Checkpoint")
Advance = Callable[[tuple[float, ...]], tuple[Checkpoint, Mapping[float, Estimate | float]]]


class NothingSolved(ValueError):
    """The exploration ended without a stable level, so there are no levels for a schedule."""


class Infeasible(ValueError):
    """No level above the current one keeps the two-step bias within τ."""


class ForcedTransition(UserWarning):
    """A step of the schedule exceeds τ because no feasible step exists."""


@dataclass(frozen=True)
class Solved(Generic[Checkpoint]):
    """A stable level: its checkpoint θ*(σ), the bias 𝓑^(own) then, and the round (from 1)."""

    checkpoint: Checkpoint
    bias: float
    round: int


@dataclass(frozen=True)
class Exploration(Generic[Checkpoint]):
    """The state of Algorithm 1 after some rounds, sufficient to resume from."""

    levels: tuple[float, ...]
    tau: float
    solved: Mapping[float, Solved[Checkpoint]] = field(default_factory=dict)
    history: tuple[Mapping[float, float], ...] = ()  # own bias of each open level, per round
    last: Checkpoint | None = None
    stopped: Literal["", "all solved", "budget", "patience"] = ""

    @property
    def open(self) -> tuple[float, ...]:
        """Levels that are not solved yet."""
        return tuple(s for s in self.levels if s not in self.solved)

    @property
    def idle(self) -> int:
        """Rounds since the last one that solved a level."""
        return len(self.history) - max((s.round for s in self.solved.values()), default=0)

    def checkpoints(self) -> dict[float, Checkpoint]:
        """θ*(σ) for each solved level and for the top of the grid, where every chain begins.

        An unsolved top gets the last checkpoint; the greedy rule measures the bias of jumps from
        it.
        """
        if not self.solved:
            raise NothingSolved(
                f"no level of {len(self.levels)} reached an own-prediction bias of "
                f"τ = {self.tau} in {len(self.history)} rounds: train longer, use a larger "
                f"network, raise τ, or extend the grid above σ = {self.levels[0]:.3g}"
            )
        found = {s: self.solved[s].checkpoint for s in self.levels if s in self.solved}
        top = self.levels[-1]
        if top not in found:
            assert self.last is not None
            found[top] = self.last
        return found


def explore(
    levels: Schedule | Iterable[float],
    advance: Advance[Checkpoint],
    *,
    tau: float = 1.05,
    rounds: int,
    patience: int | None = None,
    resume: Exploration[Checkpoint] | None = None,
    on_round: Callable[[Exploration[Checkpoint]], None] | None = None,
) -> Exploration[Checkpoint]:
    """Algorithm 1: find the levels at which this task and network are stable, 𝓑^(own) ≤ τ.

    `advance(open_levels)` trains for one interval of the budget, drawing these levels uniformly.
    It returns a checkpoint (any object: a state, a path, a denoiser) and the own-prediction bias
    per level. The budget is `rounds` intervals. The exploration ends when the budget is spent,
    when all levels are solved, or when `patience` consecutive rounds solved none. `on_round`
    receives each new state, for instance to save it. `resume` continues from a saved state.
    """
    state = resume or Exploration[Checkpoint](Schedule(_values(levels)).sigma, _checked_tau(tau))
    if rounds < 1 or (patience is not None and patience < 1):
        raise ValueError(f"rounds and patience must be at least 1, got {rounds} and {patience}")
    while not (stopped := _stop(state, rounds, patience)):
        checkpoint, biases = advance(state.open)
        own = {s: _number(biases[s], f"the own bias at σ = {s:.6g}") for s in _asked(state.open, biases)}
        now = len(state.history) + 1
        fresh = {s: Solved(checkpoint, b, now) for s, b in own.items() if b <= state.tau}
        state = Exploration(state.levels, state.tau, {**state.solved, **fresh}, (*state.history, own), checkpoint)
        if on_round is not None:
            on_round(state)
    return Exploration(state.levels, state.tau, state.solved, state.history, state.last, stopped)


def _stop(
    state: Exploration[Any], rounds: int, patience: int | None
) -> Literal["", "all solved", "budget", "patience"]:
    if not state.open:
        return "all solved"
    if len(state.history) >= rounds:
        return "budget"
    return "patience" if patience is not None and state.idle >= patience else ""


def _asked(levels: Sequence[float], biases: Mapping[float, Any]) -> Sequence[float]:
    missing = [s for s in levels if s not in biases]
    if missing:
        raise ValueError(f"the exploration callback returned no bias for the levels {missing}")
    return levels


def start_level(
    levels: Iterable[float],
    clean_error: Callable[[float], Estimate] | None = None,
    rule: Literal["sigma", "error"] = "sigma",
) -> float:
    """σ_0: the lowest solved level ("sigma", the paper's rule), or that of least error ("error").

    Some denoisers, in particular with x₀-prediction, stop improving below some σ. Lower levels are
    then stable but useless. "error" takes the highest level whose clean-input error is within one
    standard error of the minimum.
    """
    candidates = sorted(levels)
    if rule == "sigma":
        return candidates[0]
    if rule != "error":
        raise ValueError(f'the start rule must be "sigma" or "error", got {rule!r}')
    if clean_error is None:
        raise ValueError('the start rule "error" needs the clean-input error of each level')
    errors = {s: clean_error(s) for s in candidates}
    best = min(errors.values(), key=lambda e: e.mean)
    slack = best.stderr if math.isfinite(best.stderr) else 0.0
    return max(s for s, e in errors.items() if e.mean <= best.mean + slack)


def greedy_schedule(
    levels: Iterable[float],
    two_step_bias: Callable[[float, float], Estimate | float],
    tau: float = 1.05,
    *,
    start: float | None = None,
    infeasible: Literal["force", "raise"] = "force",
    meta: Mapping[str, Any] | None = None,
) -> Schedule:
    """Algorithm 2: from σ_0, repeat the largest jump with 𝓑^(2S)(σ_t, σ′) ≤ τ up to the top.

    σ_0 is `start`, by default the lowest level. `two_step_bias(sigma_to, sigma_from)` is called
    for the largest jump first, then for shorter ones until one is feasible. If none is, the next
    level is taken with a warning and recorded as forced, or `Infeasible` is raised
    (infeasible="raise"). The steps and their biases are kept in the schedule's `meta`.

    >>> levels = [0.1, 0.2, 0.4, 0.8]
    >>> greedy_schedule(levels, lambda to, start: 1 + 0.01 * start / to, tau=1.05).sigma
    (0.1, 0.4, 0.8)
    """
    _checked_tau(tau)
    if infeasible not in ("force", "raise"):
        raise ValueError(f'infeasible must be "force" or "raise", got {infeasible!r}')
    every = Schedule(sorted(set(_values(levels)))).sigma
    sigma = [every[0] if start is None else start]
    if sigma[0] not in every:
        raise ValueError(f"the start σ_0 = {start} is not one of the levels {every}")
    steps: list[dict[str, Any]] = []
    while sigma[-1] < every[-1]:
        step = _largest_jump(sigma[-1], [s for s in every if s > sigma[-1]], two_step_bias, tau)
        if step["forced"]:
            problem = (
                f"no level above σ = {step['to']:.6g} keeps the two-step bias within τ = {tau}: "
                f"the next one, {step['from']:.6g}, has {step['bias']}; use a finer grid, "
                "a larger τ or a longer exploration"
            )
            if infeasible == "raise":
                raise Infeasible(problem)
            warnings.warn(problem, ForcedTransition, stacklevel=2)
        steps.append(step)
        sigma.append(step["from"])
    forced = [[s["to"], s["from"]] for s in steps if s["forced"]]
    return Schedule(sigma, {"method": "greedy", "tau": tau, "forced": forced, "steps": steps, **(meta or {})})


def _largest_jump(
    sigma_t: float, above: Sequence[float], two_step_bias: Callable[[float, float], Estimate | float], tau: float
) -> dict[str, Any]:
    """The step from the highest feasible level, or a forced step from the next level.

    Infinities become None, because JSON has none.
    """
    for sigma in reversed(above):
        measured = two_step_bias(sigma_t, sigma)
        bias = _number(measured, f"the two-step bias from σ = {sigma:.6g} to {sigma_t:.6g}")
        if bias <= tau or sigma == above[0]:
            stderr = measured.stderr if isinstance(measured, Estimate) else math.inf
            return {
                "to": sigma_t,
                "from": sigma,
                "bias": bias if math.isfinite(bias) else None,
                "stderr": stderr if math.isfinite(stderr) else None,
                "forced": bias > tau,
            }
    raise AssertionError("unreachable: there is always a next level above")


def _values(levels: Schedule | Iterable[float]) -> Iterable[float]:
    return levels.sigma if isinstance(levels, Schedule) else levels


def _number(bias: Estimate | float, what: str) -> float:
    value = bias.mean if isinstance(bias, Estimate) else float(bias)
    if math.isnan(value):
        raise ValueError(f"{what} is NaN and cannot be compared with τ")
    return value


def _checked_tau(tau: float) -> float:
    if not (math.isfinite(tau) and tau >= 1):
        raise ValueError(f"the bias tolerance τ must be a finite number of at least 1, got {tau}")
    return tau
