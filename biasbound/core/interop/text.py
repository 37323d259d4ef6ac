"""Schedules as files for and from other programs: `biasbound schedule export` and `import`, without those programs.

txt          one σ per line
csv          t, σ, ᾱ and log-SNR
json         our own schedule file
betas        an object with diffusers' trained_betas
diffusers    scheduler_config.json of a DDIMScheduler, for its `from_pretrained`
edm          an object with the ratios σ/√ᾱ, decreasing
k-diffusion  the list of ratios with a last 0, as `sigmas` of its samplers
azula        an object with time, α and σ, for a `Schedule` that looks them up
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from typing import Any

from biasbound._io import from_json
from biasbound._io.limits import read_bounded
from biasbound.core.noise import alpha_bar, log_snr
from biasbound.core.schedule import LEVELS, Schedule

__all__ = ["TEXTS", "read"]


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _csv(schedule: Schedule) -> str:
    rows = [f"{t},{s!r},{alpha_bar(s)!r},{log_snr(s)!r}" for t, s in enumerate(schedule.sigma)]
    return "\n".join(["t,sigma,alpha_bar,log_snr", *rows]) + "\n"


def _betas(schedule: Schedule) -> dict[str, Any]:
    return {"trained_betas": schedule.to_betas(), "num_train_timesteps": len(schedule)}


def _diffusers(schedule: Schedule) -> dict[str, Any]:
    """Nothing is clipped, timesteps are 0 … T, and the last step returns the estimate."""
    fixed = {"clip_sample": False, "set_alpha_to_one": True, "steps_offset": 0, "timestep_spacing": "leading"}
    return {"_class_name": "DDIMScheduler", **_betas(schedule), **fixed, "prediction_type": "epsilon"}


def _edm(schedule: Schedule) -> dict[str, Any]:
    ratios = schedule.to_edm().tolist()[:-1]
    return {"sigma_max": ratios[0], "sigma_min": ratios[-1], "num_steps": len(ratios), "sigmas": ratios}


def _azula(schedule: Schedule) -> dict[str, Any]:
    """Of times in equal steps, from a clean field up: a sampler of `steps` steps calls the denoiser at all but the first."""
    levels, n = [0.0, *schedule.sigma], len(schedule)
    times = [t / n for t in range(n + 1)]
    return {"steps": n, "time": times, "alpha": [alpha_bar(s) ** 0.5 for s in levels], "sigma": levels}


TEXTS: dict[str, Callable[[Schedule], str]] = {
    "txt": lambda schedule: "".join(f"{s!r}\n" for s in schedule.sigma),
    "csv": _csv,
    "json": Schedule.text,
    "betas": lambda schedule: _json(_betas(schedule)),
    "diffusers": lambda schedule: _json(_diffusers(schedule)),
    "edm": lambda schedule: _json(_edm(schedule)),
    "k-diffusion": lambda schedule: _json(schedule.to_edm().tolist()),
    "azula": lambda schedule: _json(_azula(schedule)),
}


def read(path: str | os.PathLike[str]) -> Schedule:
    """The schedule in a file of any of these formats, or in a saved `LadderScheduler`; its contents tell which."""
    try:
        text = read_bounded(path).decode()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text") from error
    first, *rest = text.strip().splitlines() or [""]
    try:
        if first == "t,sigma,alpha_bar,log_snr":
            return Schedule(_numbers([line.split(",")[1] for line in rest]), {"method": "csv"})
        if first[:1] not in "[{":
            return Schedule(_numbers([first, *rest]), {"method": "txt"})
        content: Any = from_json(text, Any, "no valid JSON")
        if isinstance(content, dict) and content.get("format") == "biasbound.schedule":
            return Schedule.load(path)
        return _known(content)
    except (ValueError, IndexError) as error:
        raise ValueError(f"{path}: {error}") from error


def _known(content: Any) -> Schedule:
    if isinstance(content, list):
        return Schedule.from_edm(_numbers(content))
    if content.get("_class_name") == "LadderScheduler" and "sigmas" in content:
        return Schedule(_numbers(content["sigmas"]), {"method": "diffusers.LadderScheduler"})
    if content.get("trained_betas") is not None:
        return Schedule.from_betas(_numbers(content["trained_betas"]))
    if "alpha" in content and "sigma" in content:
        pairs = zip(_numbers(content["alpha"]), _numbers(content["sigma"]), strict=True)
        return Schedule([s / math.hypot(a, s) for a, s in pairs if s != 0], {"method": "azula"})
    if "sigmas" in content:
        return Schedule.from_edm(_numbers(content["sigmas"]))
    raise ValueError(
        "no levels of a known form: trained_betas, sigmas, alpha and sigma, or a list of ratios; for a scheduler whose "
        "betas diffusers computes, use Schedule.from_diffusers"
    )


def _numbers(values: Any) -> list[float]:
    if not isinstance(values, list) or not 0 < len(values) <= LEVELS:
        raise ValueError(f"levels must be a list of numbers, at most {LEVELS:,}")
    if any(isinstance(v, bool) or not isinstance(v, int | float | str) for v in values):
        raise ValueError("levels must be numbers")
    try:
        return [float(v) for v in values]
    except ValueError as error:
        raise ValueError("neither numbers, a line each, nor JSON") from error
