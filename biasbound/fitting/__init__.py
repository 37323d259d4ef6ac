"""One call from trajectories to an emulator that was compared: `fit`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from biasbound.data.trajectories import Trajectories
from biasbound.fitting.request import Prefer, Request
from biasbound.fitting.run import Fitted, fit_arrays
from biasbound.nets import NETS
from biasbound.registry import enrol
from biasbound.study.view import watching

__all__ = ["Fitted", "fit"]


def fit(
    train: Trajectories,
    valid: Trajectories | None = None,
    test: Trajectories | None = None,
    *,
    net: Any = "unet",
    minutes: float | None = None,
    updates: int | None = None,
    prefer: Prefer = "accuracy",
    history: int = 1,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    quiet: bool = False,
) -> Fitted:
    """An emulator of these trajectories: the better of a direct model and a grown ladder with the same ledger.

    Without `valid` the data are divided here, by trajectory, or in time where there is one. Scores are those on `test`,
    or on `valid` where there is none. `net` is the name of a network, or one of your own: a module, its class or a
    function that makes it. With `out` everything is kept in that folder, and the same call goes on where it stopped.

        fitted = fit(data, minutes=5)
        fitted.emulator.rollout(data.first(), steps=25)

    Two trainings and a page take seconds at least. What a fit does first is quick, the division of its data:

    >>> import torch
    >>> from biasbound.data import divided
    >>> data = Trajectories.from_array(torch.zeros(10, 20, 1, 16), dt=0.1, channels=["u"])
    >>> {name: len(part) for name, part in divided(data).items()}
    {'train': 8, 'valid': 1, 'test': 1}
    """
    request = Request(minutes, updates, prefer, enrol(NETS, net), history, seed)
    say = (lambda text: None) if quiet else (lambda text: print(text, flush=True))
    place = None if out is None else Path(out)
    given = {"train": train, "valid": valid, "test": test}
    parts = {name: part for name, part in given.items() if part is not None}
    if "test" in parts and "valid" not in parts:
        raise ValueError("fit needs validation data beside test data: give valid= too")
    with watching(quiet) as tell:
        return fit_arrays(parts, request, place, say=say, tell=tell)
