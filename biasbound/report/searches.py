"""Schedule searches: what their files hold, and how they are read.

A search is a unit of its own (02-search), or its ladder grew inside a training (03-train).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from biasbound.core.schedule import Schedule
from biasbound.report.parts import CURE, Bounds, Infinite, Level, Stage, read


@dataclass(frozen=True)
class Point:
    """A level that was measured in a round of the exploration."""

    round: int
    sigma: float
    own: Infinite  # own-prediction bias
    clean: Infinite  # clean-input error
    update: int | None = None


@dataclass(frozen=True)
class Exploration:
    """exploration.json: the grid of levels, what was measured on it, and which levels are solved."""

    levels: tuple[float, ...] = ()
    tau: float | None = None
    solved: dict[float, Any] = field(default_factory=dict)
    points: tuple[Point, ...] = ()


@dataclass(frozen=True)
class Measured:
    """The clean-input error of a level."""

    sigma: float
    mean: Infinite
    stderr: Infinite


@dataclass(frozen=True)
class Jump:
    """The two-step bias of a jump from a level down to another."""

    to: float
    start: Annotated[float, Field(alias="from")]
    mean: Infinite
    stderr: Infinite
    pooled: Infinite | None = None  # the statistics that records before them lack
    q95: Infinite | None = None

    def value(self, statistic: str) -> float:
        """The one that the search bounded."""
        found: float | None = getattr(self, statistic)
        return self.mean if found is None else found


@dataclass(frozen=True)
class LandscapeFile:
    """landscape.json."""

    tau: float
    start: str
    start_sigma: float
    levels: tuple[float, ...]
    clean: tuple[Measured, ...]
    biases: tuple[Jump, ...]
    statistic: Literal["mean", "pooled", "q95"] = "mean"


@dataclass(frozen=True)
class Landscape:
    """What Algorithm 2 saw: solved levels from low to high, their clean-input errors, and the
    two-step bias of every jump."""

    tau: float
    start: str
    start_sigma: float
    levels: tuple[float, ...]
    clean: Mapping[float, tuple[float, float]]  # σ → (mean, standard error)
    biases: Mapping[tuple[float, float], tuple[float, float]]  # (σ_to, σ_from) → the same

    def bias(self, to: float, start: float) -> float:
        """𝓑^(2S)(σ_to, σ_from)."""
        return self.biases[to, start][0]


@dataclass(frozen=True)
class Round:
    """A measurement of growth.json: the ladder after it, and the levels that it was on (none after the warm phase)."""

    update: int
    ladder: tuple[float, ...]  # from the top down
    levels: tuple[Level, ...] = ()  # the frontier, then those tried ahead
    top_error: float | None = None  # after the warm phase


@dataclass(frozen=True)
class Growth:
    """How a ladder grew inside its training: growth.json, and from its stage.json the bounds and the updates."""

    tau: float
    rounds: Annotated[tuple[Round, ...], Field(min_length=1)]
    c: float | None = None
    tau_own: float = math.nan
    statistic: str = "mean"
    updates: int = 0  # of the whole training

    @property
    def warm(self) -> int:
        """The update up to which the ladder was the top alone."""
        return self.rounds[0].update

    @property
    def fixed(self) -> int:
        """The update from which the ladder alone was trained."""
        return self.rounds[-1].update

    def tried(self, number: int) -> tuple[Level, ...]:
        """The levels below the frontier that a round measured."""
        levels = self.rounds[number].levels
        return tuple(level for level in levels if level.sigma != self._frontier(number))

    def feasible(self, number: int, level: Level) -> bool:
        """Whether a level could have joined in a round: stable, within τ from the frontier, and better than it."""
        best = [one.clean for one in self.rounds[number].levels if one.sigma == self._frontier(number)]
        return (
            level.bias("own", self.statistic) <= self.tau_own
            and level.bias("two_step", self.statistic) <= self.tau
            and level.clean < min(best, default=math.inf)
        )

    def _frontier(self, number: int) -> float:
        return self.rounds[max(number - 1, 0)].ladder[-1]


@dataclass(frozen=True)
class FrontPoint:
    """The best ladder of a number of calls, and its inference error."""

    calls: int
    sigma: tuple[float, ...]
    mean: Infinite
    stderr: Infinite


@dataclass(frozen=True)
class Front:
    """front.json; `greedy` is there where the greedy ladder's error was measured too."""

    front: Annotated[tuple[FrontPoint, ...], Field(min_length=1)]
    chosen: int  # calls of the study's ladder
    greedy: FrontPoint | None = None
    score: Literal["error", "crps"] = "error"  # what ladders were compared by


@dataclass(frozen=True)
class Search:
    """One schedule search: 02-search/<label>/seed-<s>, or 03-train/<label>/seed-<s> where the ladder grew."""

    label: str
    seed: int
    schedule: Schedule | None = None
    landscape: Landscape | None = None
    exploration: Exploration = field(default_factory=Exploration)
    growth: Growth | None = None
    front: Front | None = None
    dataset: str = ""  # set where a study holds several runs

    @property
    def chosen(self) -> FrontPoint | None:
        """The study's ladder, with its error where it is on the front (infinite otherwise)."""
        return None if self.schedule is None else self._placed(self.schedule.sigma)

    @property
    def greedy(self) -> FrontPoint | None:
        """The greedy ladder, with its error where that is known (infinite otherwise)."""
        if self.front is not None and self.front.greedy is not None:
            return self.front.greedy
        levels = None if self.schedule is None else self.schedule.meta.get("greedy")
        return None if not levels else self._placed(tuple(levels))

    def _placed(self, levels: tuple[float, ...]) -> FrontPoint | None:
        if self.front is None:
            return None
        known = (*self.front.front, *([self.front.greedy] if self.front.greedy else []))
        unknown = FrontPoint(len(levels), levels, math.inf, math.inf)
        return next((point for point in known if point.sigma == levels), unknown)


def read_search(path: Path, label: str, seed: int) -> Search | None:
    """What a search left in a unit's folder; None if there was none, as in most trainings."""
    schedule = path / "schedule.json"
    found = Search(
        label,
        seed,
        schedule=Schedule.load(schedule) if schedule.exists() else None,
        landscape=_landscape(path / "landscape.json"),
        exploration=read(path / "exploration.json", Exploration, Exploration()),
        growth=_growth(path),
        front=read(path / "front.json", Front),
    )
    return None if found == Search(label, seed) else found


def _growth(path: Path) -> Growth | None:
    found: Growth | None = read(path / "growth.json", Growth)
    if found is None:
        return None
    stage: Stage = read(path / "stage.json", Stage, Stage())
    bounds = stage.config.search or Bounds()
    updates = max(stage.updates or 0, found.rounds[-1].update)
    return replace(found, tau_own=bounds.tau_explore or found.tau, statistic=bounds.statistic, updates=updates)


def _landscape(path: Path) -> Landscape | None:
    found: LandscapeFile | None = read(path, LandscapeFile)
    if found is None:
        return None
    try:
        levels = Schedule(found.levels).sigma
        biases = {(b.to, b.start): (b.value(found.statistic), b.stderr) for b in found.biases}
        pairs = {(to, start) for to in levels for start in levels if to < start}
        if missing := pairs - biases.keys():
            raise ValueError(f"{len(missing)} of {len(pairs)} biases are missing")
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); {CURE}") from None
    clean = {c.sigma: (c.mean, c.stderr) for c in found.clean}
    return Landscape(found.tau, found.start, found.start_sigma, levels, clean, biases)
