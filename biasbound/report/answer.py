"""What a study found, in words: the best emulator beside the direct model and the first guess, then why.

All numbers are those of the table (`biasbound.report.tables`): mean squared errors, means over seeds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from biasbound.metrics.rows import Row, Summary, over_seeds, select
from biasbound.models.method import GUESSES, method, title_of
from biasbound.report.errors import at_step, one_step
from biasbound.report.searches import Front, Search
from biasbound.report.study import Study
from biasbound.report.tables import DATASETS, alone, power, unequal

LITTLE = 1.2  # a smaller ratio of mean squared errors may change with the seed (docs/results-tasks.md)
NAMES = {"kolmogorov": "Kolmogorov flow", "transonic": "transonic flow", "ks": "the Kuramoto–Sivashinsky equation"}


@dataclass(frozen=True)
class Scored:
    """One method on one dataset, as the table has it; an infinite error is one that a seed lost, NaN is not measured."""

    label: str
    calls: tuple[int, ...]  # those of its seeds, increasing
    one: float
    ten: float
    spread: float  # of the one-step error, over seeds
    seeds: int
    broken: int

    @property
    def title(self) -> str:
        return title_of(self.label)

    @property
    def cost(self) -> str:
        """Its network calls per frame, in words."""
        numbers = " to ".join(str(n) for n in dict.fromkeys((self.calls[0], self.calls[-1])))
        return f"{numbers} network call{'' if numbers == '1' else 's'}"

    def errors(self) -> str:
        """Its own errors, in words."""
        later = "" if math.isnan(self.ten) else f" over one step and {_number(self.ten)} over ten"
        return f"{power(self.one, 2)}{later}"

    def over(self, other: "Scored") -> str:
        """Its errors in units of another's, in words."""
        one, ten = _ratio(self.one, other.one), _ratio(self.ten, other.ten)
        return f"{one} times that error" + (f" over one step and {ten} times over ten" if ten else "")


@dataclass(frozen=True)
class Answer:
    """The best emulator of a dataset, and the sentences that say so; the first begins with its title."""

    dataset: str
    label: str
    title: str
    sentences: tuple[str, ...]
    reasons: tuple[str, ...] = ()


def answers(study: Study) -> tuple[Answer, ...]:
    """One answer per dataset of the rows for which some emulator has a finite error."""
    known = [d for d in DATASETS if any(row.dataset == d for row in study.rows)]
    datasets = dict.fromkeys((*known, *(row.dataset for row in study.rows)))
    found = (answer(select(study.rows, dataset=d), study, len(datasets) > 1) for d in datasets)
    return tuple(one for one in found if one is not None)


def answer(rows: Sequence[Row], study: Study, named: bool) -> Answer | None:
    """The answer of one dataset; None where no emulator was scored, or none with a finite error."""
    every = [_scored(select(rows, method=label)) for label in dict.fromkeys(row.method for row in rows)]
    guesses = [one for one in every if one.label in GUESSES]
    ranked = sorted((o for o in every if o not in guesses and math.isfinite(o.one)), key=lambda o: o.one)
    if not ranked:
        return None
    best = ranked[0]
    told = [
        _opening(best, len(ranked), rows[0].dataset if named else ""),
        f"Its mean squared error is {best.errors()}.",
    ]
    told += [_beside(best, ranked)] if len(ranked) > 1 else []
    told += [f"{one.title} has {one.over(best)}{_beaten(one, best)}." for one in guesses if math.isfinite(one.one)]
    return Answer(
        rows[0].dataset, best.label, best.title, (*told, *_caveats(best, ranked, rows)), _reasons(best, rows[0], study)
    )


def _scored(rows: Sequence[Row]) -> Scored:
    one, ten = over_seeds(one_step(rows)), over_seeds(at_step(rows, 10))
    lost = sum(int(row.value or 0) for row in select(rows, metric="broken"))

    def mean(of: Summary | None) -> float:
        return math.nan if of is None else math.inf if of.mean is None else of.mean

    return Scored(
        rows[0].method,
        tuple(sorted({row.nfe for row in rows})),
        mean(one),
        mean(ten),
        one.spread if one else 0.0,
        len({row.seed for row in rows}),
        lost,
    )


def _number(value: float) -> str:
    return power(value, 2) if math.isfinite(value) else "∞"


def _ratio(one: float, other: float) -> str:
    """Of two errors, for reading; empty where there is none."""
    if math.isnan(one) or math.isnan(other) or not other or math.isinf(other):
        return ""
    ratio = one / other
    if math.isinf(ratio):
        return "∞"
    if 0.1 <= ratio < 100:
        return f"{ratio:.2f}"
    return f"{ratio:.2g}" if ratio < 100 else f"{float(f'{ratio:.2g}'):,.0f}"


def _opening(best: Scored, emulators: int, dataset: str) -> str:
    place = f" on {NAMES.get(dataset, dataset)}" if dataset else ""
    steps = "" if math.isnan(best.ten) else " over one step"
    rank = "is the only emulator" if emulators == 1 else f"is the most accurate of {emulators} emulators{steps}"
    return f"{best.title} {rank}{place}, with {best.cost} per frame."


def _beside(best: Scored, ranked: Sequence[Scored]) -> str:
    """The direct model, or the next one where the direct model is the best."""
    direct = next((one for one in ranked if _direct(one.label)), None)
    if direct is None or direct is best:
        return f"Next is {ranked[1].title} ({ranked[1].cost}), with {ranked[1].over(best)}."
    return f"The direct model ({direct.cost}) has {direct.over(best)}."


def _beaten(guess: Scored, best: Scored) -> str:
    """What it means that the best emulator is no better than a guess."""
    return "" if best.one < guess.one else ": no emulator beats it yet, so train longer or on more data"


def _direct(label: str) -> bool:
    try:
        return method(label.partition(" @ ")[0]).model == "direct"
    except ValueError:  # somebody else's
        return False


def _caveats(best: Scored, ranked: Sequence[Scored], rows: Sequence[Row]) -> list[str]:
    """What the reader must know beside the ranks."""
    lasting = min((o for o in ranked if math.isfinite(o.ten)), key=lambda o: o.ten, default=best)
    near = len(ranked) > 1 and ranked[1].one < LITTLE * best.one
    later = f"Over ten steps {lasting.title} ({lasting.cost}) is better: {_number(lasting.ten)}."
    seeds = f"These are means over {best.seeds} seeds; the best one-step error varies by {100 * best.spread / (best.one or 1):.0f} %."
    told = {
        later: lasting is not best and not math.isnan(best.ten),
        seeds: best.seeds > 1,
        "There is one seed, and a difference below a factor of 1.2 may change with it.": best.seeds == 1 and near,
        f"{best.broken} of its trajectories became non-finite.": best.broken > 0,
    }
    single = [_members(ranked, rows)] if alone(rows) else []  # along a rollout, a CRPS belongs to its step
    gaps = [
        f"Ledgers differ by a factor of up to {ratio:.3g}, so training was not equal."
        for ratio in unequal(rows).values()
    ]
    return [*(sentence for sentence, holds in told.items() if holds), *single, *gaps]


def _members(ranked: Sequence[Scored], rows: Sequence[Row]) -> str:
    """The best where the answer is a distribution: an error of single answers is least for the mean of it."""
    found = {one: over_seeds(select(rows, method=one.label, metric="crps")) for one in ranked}
    scores = {one: of.mean for one, of in found.items() if of is not None and of.mean is not None}
    if not scores:
        return "No emulator has an ensemble."
    best = min(scores, key=scores.__getitem__)
    return f"As an ensemble {best.title} ({best.cost}) is the best: its CRPS is {power(scores[best], 2)}."


def _reasons(best: Scored, row: Row, study: Study) -> tuple[str, ...]:
    """Why these calls: the bias along the best emulator's chain, and what the exact front says."""
    of = [m for m in study.models if m.label == best.label and m.dataset in ("", row.dataset) and m.bias]
    told = []
    levels = [level for level in (of[0].bias if of else ()) if math.isfinite(level.reb)]
    if len(levels) > 1:  # a single call is fed noise alone
        worst = max(levels, key=lambda level: level.reb)
        stays = (
            "the chain stays where its network was trained"
            if worst.reb <= LITTLE
            else "the chain leaves where its network was trained"
        )
        if worst.reb > LITTLE and alone(select(study.rows, dataset=row.dataset)):
            stays = "where many answers fit, members that differ as they should have at least 1.41"
        told.append(f"Along its chain the error is at most {worst.reb:.3f} times the one on noised truth: {stays}.")
    searches = [s for s in _own_first(study.searches, best.label) if s.dataset in ("", row.dataset) and s.front]
    return (*told, *(_paid(s.front, s.growth is not None) for s in searches[:1] if s.front))


def _own_first(searches: Sequence[Search], label: str) -> list[Search]:
    return sorted(searches, key=lambda search: search.label != label)


def _paid(front: Front, grown: bool) -> str:
    """Whether more calls would have paid."""
    if grown and len(front.front) == 1 == front.chosen:
        return "The searched ladder ended with a single noise level: none of the lower levels that it tried was worth a call."
    chosen = next((point for point in front.front if point.calls == front.chosen), None)
    least = min(front.front, key=lambda point: point.mean)
    calls = f"{front.chosen} network call{'' if front.chosen == 1 else 's'}"
    if chosen is None or least.calls <= chosen.calls:
        return f"Of all ladders of the trained levels, none with more than {calls} is better on validation data."
    gain = 100 * (1 - least.mean / chosen.mean)
    small = ", which is within one standard error" if chosen.mean <= least.mean + least.stderr else ""
    lower = f"{gain:.1f} %" if gain >= 0.1 else "less than 0.1 %"
    return f"The searched ladder takes {calls}. With {least.calls} calls its error on validation data is {lower} lower{small}."
