r"""Schedules that others find from one network, as functions of its denoiser, pairs and the levels that it was trained on.

Noise is in the units of EDM, r = σ/√ᾱ: z_r = y + r ε, and D(z_r, r) is the estimate. Every schedule begins at the highest
level; those with more than one call end at the lowest.

    karras, log-linear     closed forms in r; cosine, linear and sigmoid in β
    entropic               equal increments of ∫ E_clean²/r³ dr
    score-optimal          equal arc length, of steps √L with L(u, t) = t² E‖s(z_u, t) − s(z_u, u)‖², s = (D − z)/r²
    ays                    least Σ ∫_t^u E‖D(z_τ, τ) − D(z_u, u)‖² dτ/τ³ over the steps from u to t (Align Your Steps):
                           half of ∫ E‖difference of drifts‖²/g² dτ between the reverse SDE and the one whose estimate stays
                           that of u, Girsanov's bound on the KL divergence. It is additive over steps, so the least sum is
                           found exactly. Where τ is drawn ∝ (1/(τ² + c²) − 1/(u² + c²))/τ³ instead of integrated over,
                           the quotient ‖…‖²/(1/(τ² + c²) − 1/(u² + c²)) is left of it: the same sum, as an estimate
    greedy                 Algorithm 2 from the lowest level, with the least τ that needs so many calls
    greedy-free            the same from every level: the ladder of least predicted error
    predicted              least error as the biases of Algorithm 2 predict it (`core.predicted`)
    front                  least measured error (`core.front`)

All integrals and steps are over the given levels. What is found by measurement is given levels among these, so that no
network is asked about a level that it does not know.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from biasbound.core.bias import Measure, TwoStepTable
from biasbound.core.denoise import Denoiser
from biasbound.core.front import optimal_schedules
from biasbound.core.interop.edm import as_edm, levels_of
from biasbound.core.noise import Condition, State, alpha_bar, draw
from biasbound.core.ode import karras
from biasbound.core.predicted import predicted_error, predicted_schedules
from biasbound.core.schedule import Schedule, cosine, linear, log_uniform, sigmoid
from biasbound.core.search import ForcedTransition, greedy_schedule, start_level

__all__ = ["PANEL", "Dense", "ays_cost", "entropies", "least_sum", "quantiles", "schedules", "score_steps"]

BETAS = {"cosine": cosine, "linear": linear, "sigmoid": sigmoid}


@dataclass(frozen=True)
class Dense:
    """A denoiser that knows all of `levels`, and the pairs that it is asked about."""

    denoiser: Denoiser
    x: Condition
    y: State
    levels: Schedule
    seed: int = 0
    draws: int = 2
    start: Literal["sigma", "error"] = "sigma"  # the rule for σ_0 of the greedy ladder

    @cached_property
    def ratios(self) -> list[float]:
        """r of each level, rising."""
        return [s / math.sqrt(alpha_bar(s)) for s in self.levels.sigma]

    @cached_property
    def noise(self) -> list[State]:
        """r ε of every level, as the forward process has it: what a level has more than the one below is drawn anew."""
        generator, walk, below = torch.Generator().manual_seed(self.seed), [torch.zeros_like(self.y)], 0.0
        for r in self.ratios:
            walk.append(walk[-1] + math.sqrt(r**2 - below**2) * draw(self.y, generator))
            below = r
        return walk[1:]

    @torch.no_grad()
    def estimate(self, at: int, asked: int) -> State:
        """D(z_r, r′) for the field of level `at`, as one of level `asked`."""
        model = as_edm(self.denoiser, self.x)
        return model(self.y + self.noise[at], self.ratios[asked])

    @cached_property
    def estimates(self) -> list[State]:
        """D(z_r, r) of every level."""
        return [self.estimate(i, i) for i in range(len(self.levels))]

    @cached_property
    def gaps(self) -> Tensor:
        """E‖D(z_i, r_i) − D(z_j, r_j)‖² of every two levels."""
        flat = torch.stack([e.flatten() for e in self.estimates]).double()
        count = len(self.levels)
        return torch.stack([(flat - flat[j]).square().mean(1) for j in range(count)]).reshape(count, count)

    def ladder(self, index: Sequence[int], name: str) -> Schedule:
        return Schedule([self.levels.sigma[i] for i in sorted(set(index))], {"method": name})

    @cached_property
    def table(self) -> TwoStepTable:
        noise = torch.Generator().manual_seed(self.seed)
        return TwoStepTable(
            dict.fromkeys(self.levels.sigma, self.denoiser), self.x, self.y, Measure(self.draws, generator=noise)
        )

    @cached_property
    def predicted(self) -> dict[int, tuple[Schedule, float]]:
        """Ladders for every number of calls, with their predicted errors."""
        return predicted_schedules(self.levels, self.table.clean_error, self.table, len(self.levels))


def quantiles(lengths: Sequence[float], count: int) -> list[int]:
    """Indices of `count` of the points 0 … n between which the `lengths` lie, at equal distances along the whole.

    The ends are the first and the last point; a single one is the last. Points differ: where lengths are very uneven, the
    next free point below is taken.
    """
    place = [0.0]
    for length in lengths:
        place.append(place[-1] + length)
    top = len(place) - 1
    if count > len(place):
        raise ValueError(f"{len(place)} points have no {count} different ones")
    found = [top]
    for i in range(count - 2, -1, -1):
        most, least = found[-1] - 1, i  # so many points are still needed below
        wanted = place[-1] * i / (count - 1)
        found.append(min(range(least, most + 1), key=lambda j: abs(place[j] - wanted)) if i else 0)
    return found[::-1]


def least_sum(cost: Tensor, count: int) -> list[int]:
    """The path of `count` points from the last one, n, down to 0 with the least Σ cost[t, u] over its steps u → t."""
    n = len(cost) - 1
    if count == 1:
        return [n]
    best = {n: (0.0, [n])}
    for k in range(2, count + 1):
        ends = range(1, n) if k < count else [0]
        found = {}
        for t in ends:
            ways = [(total + float(cost[t, u]), [t, *path]) for u, (total, path) in best.items() if u > t]
            if ways:
                found[t] = min(ways)
        best = found
    return best[0][1]


def entropies(dense: Dense) -> list[float]:
    """∫ E_clean²/r³ dr between neighbouring levels, with E_clean² linear in log r."""
    errors = [dense.table.clean_error(s).mean ** 2 for s in dense.levels.sigma]
    rows = list(zip(dense.ratios, errors, strict=True))
    return [(a + b) / 2 * (1 / r**2 - 1 / s**2) / 2 for (r, a), (s, b) in pairwise(rows)]


def score_steps(dense: Dense) -> list[float]:
    """√L of the step between neighbouring levels, both scores at the noisier field."""
    found = []
    for t in range(len(dense.levels) - 1):
        u, (low, high) = t + 1, (dense.ratios[t], dense.ratios[t + 1])
        noisy = dense.y + dense.noise[u]
        there, here = ((dense.estimate(u, i) - noisy) / r**2 for i, r in ((t, low), (u, high)))
        found.append(low * float((there - here).double().square().mean().sqrt()))
    return found


def ays_cost(dense: Dense) -> Tensor:
    """[t, u] ↦ ∫_t^u E‖D(z_τ, τ) − D(z_u, u)‖² dτ/τ³: between levels the integrand's first factor is that of the lower."""
    inverse = torch.tensor([1 / r**2 for r in dense.ratios], dtype=torch.float64)
    weights = torch.cat([(inverse[:-1] - inverse[1:]) / 2, torch.zeros(1, dtype=torch.float64)])
    count, cost = len(dense.levels), torch.full((len(inverse), len(inverse)), math.inf, dtype=torch.float64)
    for u in range(count):
        sums = (weights * dense.gaps[u])[:u].flip(0).cumsum(0).flip(0)
        cost[:u, u] = sums
    return cost


def _measured(index: Callable[[Dense, int], Sequence[int]], name: str) -> Callable[[Dense, int], Schedule | None]:
    return lambda dense, calls: dense.ladder(index(dense, calls), name)


def _closed(name: str, dense: Dense, calls: int) -> Schedule:
    low, high = dense.ratios[0], dense.ratios[-1]
    if calls == 1:
        return dense.ladder([len(dense.levels) - 1], name)
    if name == "karras":
        return Schedule(_within(levels_of(karras(calls, low, high)), dense), {"method": name})
    if name == "log-linear":
        return log_uniform(calls, dense.levels.sigma[0], dense.levels.sigma[-1])
    return Schedule(_within(BETAS[name](calls, dense.levels.sigma[-1]).sigma, dense), {"method": name})


def _within(sigma: Sequence[float], dense: Dense) -> list[float]:
    """Levels inside the range that the network knows, its ends to the last bit."""
    low, high = dense.levels.sigma[0], dense.levels.sigma[-1]
    return sorted({*(min(max(s, low), high) for s in sigma[:-1]), high})


def _greedy(dense: Dense, calls: int, first: float | None = None) -> Schedule | None:
    """The ladder of the least τ that needs at most so many calls from σ_0; None where every τ needs more or fewer."""
    if first is None:
        first = start_level(dense.levels.sigma, dense.table.clean_error, dense.start)
    biases = sorted({1.0, *(max(1.0, b.mean) for *_, b in dense.table.matrix() if math.isfinite(b.mean))})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForcedTransition)
        low, high = 0, len(biases) - 1
        while low < high:  # the length falls as τ rises
            middle = (low + high) // 2
            long = len(greedy_schedule(dense.levels.sigma, dense.table, biases[middle], start=first)) > calls
            low, high = (middle + 1, high) if long else (low, middle)
        found = greedy_schedule(dense.levels.sigma, dense.table, biases[low], start=first)
    return found if len(found) == calls else None


def _greedy_free(dense: Dense, calls: int) -> Schedule | None:
    """Of the greedy ladders with so many calls, whatever their σ_0, that of least predicted error; None where there is none."""
    found = [g for s in dense.levels.sigma if (g := _greedy(dense, calls, s)) is not None]
    return min(found, key=lambda g: predicted_error(g, dense.table.clean_error, dense.table), default=None)


PANEL: Mapping[str, Callable[[Dense, int], Schedule | None]] = {
    **{name: partial(_closed, name) for name in ("karras", "log-linear", "cosine", "linear", "sigmoid")},
    "entropic": _measured(lambda d, k: quantiles(entropies(d), k), "entropic"),
    "score-optimal": _measured(lambda d, k: quantiles(score_steps(d), k), "score-optimal"),
    "ays": _measured(lambda d, k: least_sum(ays_cost(d), k), "ays"),
    "greedy": _greedy,
    "greedy-free": _greedy_free,
    "predicted": lambda dense, calls: dense.predicted[calls][0],
}


def schedules(dense: Dense, calls: int = 8) -> Iterator[tuple[str, int, Schedule]]:
    """(name, calls, schedule) of the whole panel for 1 … `calls` calls, the front last; a name may lack some numbers.

    A published schedule whose levels beyond the range fall together has fewer calls than it was asked for; the first with a
    number of calls stands.
    """
    for name, make in PANEL.items():
        known: set[int] = set()
        for k in range(1, min(calls, len(dense.levels)) + 1):
            if (found := make(dense, k)) is not None and len(found) not in known:
                known.add(len(found))
                yield name, len(found), found
    noise = torch.Generator().manual_seed(dense.seed)
    front = optimal_schedules(
        dense.denoiser, dense.x, dense.y, dense.levels, calls, draws=dense.draws, generator=noise
    )
    for k, (found, _) in front.items():
        yield "front", k, found
