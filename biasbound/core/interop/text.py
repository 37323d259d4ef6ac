"""Schedules as files for other programs: `biasbound schedule export`. None of them needs the program to be installed.

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
from collections.abc import Callable
from typing import Any

from biasbound.core.noise import alpha_bar, log_snr
from biasbound.core.schedule import Schedule

__all__ = ["TEXTS"]


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
