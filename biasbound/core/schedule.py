"""Noise schedules: a validated value that can be saved and shared, and the standard ones."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from biasbound._io import from_json, read_bounded, write_text
from biasbound.core.noise import log_snr, sigma_from_log_snr
from biasbound.registry import home

__all__ = [
    "LEVELS",
    "SCHEDULES",
    "SIGMA_MAX",
    "Schedule",
    "cap",
    "check_levels",
    "cosine",
    "linear",
    "log_uniform",
    "sigmoid",
]

LEVELS = 100_000  # of a schedule file: more than any chain visits
SIGMA_MAX = 10**-1e-4  # ≈ 0.99977, ᾱ = 4.6e-4: the default top of an exploration grid


@dataclass(frozen=True, init=False)
class Schedule:
    """Noise levels 0 < σ_0 < … < σ_T < 1, with `meta` on where they come from.

    A schedule is immutable and hashable, and equal to another if their levels are equal. `meta` is
    any JSON object (method, τ, forced transitions, biases); each access returns a fresh copy.

    >>> ladder = Schedule([0.05, 0.4, 0.99], {"method": "by hand"})
    >>> len(ladder), ladder.top, ladder.level(1)  # calls, T, σ_1
    (3, 2, 0.4)
    >>> ladder.save("ladder.json")
    >>> Schedule.load("ladder.json") == ladder
    True
    """

    sigma: tuple[float, ...]
    _meta: str = field(repr=False, compare=False)

    def __init__(self, sigma: Iterable[Any], meta: Mapping[str, Any] | None = None) -> None:
        try:
            levels = tuple(float(s) for s in sigma)
        except (TypeError, ValueError) as error:
            raise ValueError(f"noise levels must be a list of numbers, got {sigma!r}") from error
        check_levels(levels)
        try:
            note = json.dumps(dict(meta or {}), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"the meta of a schedule must be a JSON object with finite numbers: {error}") from error
        object.__setattr__(self, "sigma", levels)
        object.__setattr__(self, "_meta", note)

    @property
    def meta(self) -> dict[str, Any]:
        note: dict[str, Any] = json.loads(self._meta)
        return note

    @property
    def top(self) -> int:
        """T, the index of the highest level."""
        return len(self.sigma) - 1

    def __len__(self) -> int:
        """T + 1, the number of denoiser calls per chain (NFE)."""
        return len(self.sigma)

    def level(self, t: int) -> float:
        """σ_t. Raises an error for an index outside 0 … T, including negative ones."""
        if not 0 <= t <= self.top:
            raise ValueError(f"there is no level {t}: the schedule has levels 0 to {self.top}")
        return self.sigma[t]

    def capped(self, sigma_max: float = SIGMA_MAX) -> Schedule:
        """The same levels below `sigma_max`, with `sigma_max` as the top.

        ε-prediction divides by √ᾱ_T, so a top level very close to 1 multiplies the error of the
        network by 1/√ᾱ_T (2.7·10⁷ for the sigmoid schedule of 20 levels).
        """
        if self.sigma[-1] <= sigma_max:
            return self
        return Schedule(cap(self.sigma, sigma_max), {**self.meta, "capped": sigma_max})

    def text(self) -> str:
        """What `save` writes: JSON, from which every float64 is restored exactly."""
        content = {"format": "biasbound.schedule", "version": 1, "sigma": self.sigma, "meta": self.meta}
        return json.dumps(content, indent=1) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schedule as a file, which `load` reads."""
        write_text(path, self.text())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schedule:
        """Read a file that `save` wrote. For any other file, the error names the file."""
        try:
            text = read_bounded(path)
        except OSError as error:
            raise ValueError(f"cannot read schedule {path}: {error.strerror}") from error
        content: Any = from_json(text, Any, f"schedule {path} is not valid JSON; write it with Schedule.save")
        if not isinstance(content, dict) or content.get("format") != "biasbound.schedule":
            raise ValueError(f'{path} is not a schedule file: expected an object with "format": "biasbound.schedule"')
        if content.get("version") != 1:
            raise ValueError(
                f"schedule {path} has version {content.get('version')!r}, but this release reads version 1 only"
            )
        sigma, meta = content.get("sigma"), content.get("meta", {})
        if not isinstance(sigma, list) or not isinstance(meta, dict):
            raise ValueError(f'schedule {path} needs a list "sigma" and an object "meta"')
        if any(isinstance(s, bool) or not isinstance(s, int | float) for s in sigma) or len(sigma) > LEVELS:
            raise ValueError(f"schedule {path}: its noise levels must be a list of numbers, at most {LEVELS:,}")
        try:
            return cls(sigma, meta)
        except ValueError as error:
            raise ValueError(f"schedule {path}: {error}") from error

    def to_betas(self) -> list[float]:
        """β_t = 1 − ᾱ_t/ᾱ_{t−1} for t = 0 … T, with ᾱ_{−1} = 1."""
        from biasbound.core.interop import betas

        return betas.betas_of(self.sigma)

    @classmethod
    def from_betas(cls, betas: Iterable[Any]) -> Schedule:
        """The levels of betas."""
        from biasbound.core.interop import betas as other

        return cls(other.levels_of(betas), {"method": "betas"})

    def to_edm(self) -> Tensor:
        """σ/√ᾱ from the top down to a last 0, as EDM's and k-diffusion's samplers take it (float64)."""
        from biasbound.core.interop import edm

        return edm.ratios(self.sigma)

    @classmethod
    def from_edm(cls, ratios: Iterable[Any]) -> Schedule:
        """The levels of ratios σ/√ᾱ in any order; zeros are left out."""
        from biasbound.core.interop import edm

        return cls(edm.levels_of(ratios), {"method": "edm"})

    def to_diffusers(self, transition: Any = "renoise", like: Any = None, prediction: str = "epsilon") -> Any:
        """A scheduler of diffusers; `like` is the one that a network was trained with (`interop.diffusers.scheduler_of`)."""
        from biasbound.core.interop import diffusers

        return diffusers.scheduler_of(self.sigma, transition, like, prediction)

    @classmethod
    def from_diffusers(cls, scheduler: Any) -> Schedule:
        """The levels that a scheduler of diffusers visits, as its `set_timesteps` was called last."""
        from biasbound.core.interop import diffusers

        return cls(diffusers.levels_of(scheduler), {"method": f"diffusers.{type(scheduler).__name__}"})

    def to_azula(self) -> Any:
        """A schedule of azula; its samplers visit these levels in `len(self)` steps."""
        from biasbound.core.interop import azula

        return azula.schedule_of(self.sigma)

    @classmethod
    def from_azula(cls, schedule: Any, steps: int = 64) -> Schedule:
        """The levels at which a sampler of azula with so many steps calls its denoiser."""
        from biasbound.core.interop import azula

        return cls(azula.levels_of(schedule, steps), {"method": f"azula.{type(schedule).__name__}", "steps": steps})


def check_levels(levels: Sequence[float]) -> None:
    """Raise an error that says what is wrong, unless 0 < σ_0 < … < σ_T < 1."""
    if not levels:
        raise ValueError("a schedule needs at least one noise level")
    for t, s in enumerate(levels):
        if not math.isfinite(s):
            raise ValueError(f"noise levels must be finite, but σ_{t} = {s}")
        if not 0 < s < 1:
            raise ValueError(
                f"noise levels are standard deviations strictly between 0 and 1, but σ_{t} = {s!r}"
                + ("; end the schedule lower, for instance at 10**-1e-4" if s >= 1 else "")
            )
    for t, (low, high) in enumerate(pairwise(levels)):
        if not low < high:
            raise ValueError(f"noise levels must increase, but σ_{t} = {low!r} and σ_{t + 1} = {high!r}")


def cap(levels: Sequence[float], sigma_max: float) -> list[float]:
    """The levels below `sigma_max`, with `sigma_max` as the top."""
    return [*(s for s in levels if s < sigma_max), sigma_max]


def _from_betas(method: str, beta: Tensor, sigma_max: float | None) -> Schedule:
    """σ_t from ᾱ_t = Π (1 − β_s), β clipped to [1e-4, 0.9999] as in the published baselines."""
    from biasbound.core.interop.betas import levels_of

    sigma = levels_of(beta.clamp(1e-4, 0.9999))
    meta = {"method": method, "T": len(sigma)}
    if sigma_max is not None and sigma[-1] > sigma_max:
        return Schedule(cap(sigma, sigma_max), {**meta, "capped": sigma_max})
    if sigma[-1] == 1:
        raise ValueError(
            f"{method}(T={len(sigma)}) has levels that float64 cannot tell from 1; "
            f"pass sigma_max, for instance {method}(T={len(sigma)}, sigma_max=10**-1e-4)"
        )
    return Schedule(sigma, meta)


def _ramp(T: int) -> Tensor:
    if T < 1:
        raise ValueError(f"a schedule needs T ≥ 1 levels, got T={T}")
    return torch.linspace(0, 1, T, dtype=torch.float64)


def linear(T: int = 20, sigma_max: float | None = None) -> Schedule:
    """T levels from β increasing linearly from 1e-4·500/T to 0.02·500/T.

    T counts the β's, as in DDPM: T levels, T denoiser calls. `sigma_max` replaces the levels above
    it.
    """
    return _from_betas("linear", (1e-4 + (0.02 - 1e-4) * _ramp(T)) * 500 / T, sigma_max)


def cosine(T: int = 20, sigma_max: float | None = None) -> Schedule:
    """T levels from ᾱ(u) ∝ cos²(π/2 · (u + 0.008)/1.008), u = t/T; arguments as in `linear`."""
    u = torch.arange(len(_ramp(T)) + 1, dtype=torch.float64) / T
    signal = torch.cos((u + 0.008) / 1.008 * math.pi / 2) ** 2
    return _from_betas("cosine", 1 - signal[1:] / signal[:-1], sigma_max)


def sigmoid(T: int = 20, sigma_max: float | None = None) -> Schedule:
    """T levels from β on a logistic curve over [−6, 6], from 1e-4·1000/T to 0.02·1000/T.

    Arguments as in `linear`.
    """
    ramp = torch.sigmoid(12 * _ramp(T) - 6)
    return _from_betas("sigmoid", (1e-4 + (0.02 - 1e-4) * ramp) * 1000 / T, sigma_max)


def log_uniform(
    T: int = 40, sigma_min: float = 1e-3, sigma_max: float = SIGMA_MAX, over: Literal["ratio", "sigma"] = "ratio"
) -> Schedule:
    """T levels from `sigma_min` to `sigma_max`, equally spaced in log(σ/√ᾱ).

    With over="sigma" they are equally spaced in log σ. The ratio σ/√ᾱ = SNR^-½ is unbounded, so
    its grid stays dense near σ = 1, where a grid in log σ makes a single step from 0.79 to 0.999.
    """
    if over not in ("ratio", "sigma"):
        raise ValueError(f'log_uniform needs over="ratio" or over="sigma", got {over!r}')
    check_levels([sigma_min] if T == 1 else [sigma_min, sigma_max])
    if over == "sigma":
        low, high = math.log(sigma_min), math.log(sigma_max)
        inner = torch.exp(low + (high - low) * _ramp(T))
    else:
        low, high = log_snr(sigma_min), log_snr(sigma_max)
        inner = sigma_from_log_snr(low + (high - low) * _ramp(T))
    ends = ([sigma_min], [sigma_max]) if T > 1 else ([sigma_min], [])
    return Schedule([*ends[0], *inner[1:-1].tolist(), *ends[1]], {"method": "log_uniform", "T": T, "over": over})


# Each is a function of the number of levels.
SCHEDULES: dict[str, Callable[[int], Schedule]] = home(
    "schedules", {"linear": linear, "cosine": cosine, "sigmoid": sigmoid, "log-uniform": log_uniform}
)
